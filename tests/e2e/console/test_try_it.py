"""The page for trying: clients of MQTT, AMQP and HTTP in it; each gets what the others publish."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.console import HOSTILE, leave, publish, sign_in
from tests.support.data_plane import until
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")

MQTT, AMQP, HTTP = "MQTT 5 over WebSocket", "AMQP terms over WebSocket", "HTTP requests and events"


def _pane(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title, exact=True)


def _arrived(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=f"Arrived by {title}", exact=True)


def _connect(page: Page) -> None:
    page.get_by_role("button", name="Connect all").click()
    expect(_pane(page, MQTT).get_by_role("status")).to_contain_text("connected as console-")
    expect(_pane(page, AMQP).get_by_role("status")).to_contain_text("follows amq.topic with try.#")
    expect(_pane(page, HTTP).get_by_role("status")).to_contain_text("follows try/#")


def _send(page: Page, title: str, payload: str) -> None:
    pane = _pane(page, title)
    pane.get_by_label("Payload").fill(payload)
    pane.get_by_role("button", name="Publish").click()


def test_each_gets_what_any_of_them_publishes(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    sign_in(page, at="#/try")
    _connect(page)
    (client,) = [one for one in api.get("connections") if one["protocol"] == "MQTT 5-0"]
    assert client["user"] == "guest" and client["variable_map"]["client_id"].startswith("console-")
    for sender in (MQTT, AMQP, HTTP):
        payload = f"{sender[:4]} {HOSTILE}{unique}"
        _send(page, sender, payload)
        for receiver, place in ((MQTT, "try/console"), (AMQP, "try.console"), (HTTP, "try/console")):
            row = _arrived(page, receiver).get_by_role("row").filter(has_text=payload)
            expect(row).to_have_count(1)
            expect(row).to_contain_text(place)
    assert page.locator("main img, main script").count() == 0
    assert obstacles(page) == []
    # Many at once: packets share frames, and nothing is lost or taken twice.
    for number in range(20):
        _send(page, MQTT, f"{number} of many")
    expect(_arrived(page, AMQP).get_by_role("row").filter(has_text="of many")).to_have_count(20)
    expect(_arrived(page, MQTT).get_by_role("row").filter(has_text="of many")).to_have_count(20)
    page.get_by_role("button", name="Disconnect all").click()
    expect(_pane(page, MQTT).get_by_role("status")).to_have_text("not connected")
    until(lambda: not [one for one in api.get("connections") if one["protocol"] == "MQTT 5-0"])
    # It ended as MQTT does, by a DISCONNECT.
    ended = api.get("closed-connections")[0]
    assert ended["protocol"] == "mqtt50" and ended["reason"] == "the client disconnected"
    leave(page)


def test_a_queue_is_consumed_and_settled(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    publish(gateway, unique, b"first", b"second")
    sign_in(page, at="#/try")
    _connect(page)
    pane, rows = _pane(page, AMQP), _arrived(page, AMQP).get_by_role("row")
    pane.get_by_label("Consume a queue instead").fill(unique)
    pane.get_by_role("button", name="Consume").click()
    first = rows.filter(has_text="first")
    expect(first).to_have_count(1)
    first.get_by_role("button", name="Acknowledge").click()
    expect(first).to_have_count(0)
    expect(rows.filter(has_text="second")).to_have_count(1)
    until(lambda: api.get(f"queues/%2F/{unique}")["messages"] == 1)
    page.get_by_role("button", name="Disconnect all").click()
    # It goes back when the page lets go of it.
    until(lambda: api.get(f"queues/%2F/{unique}")["messages_ready"] == 1)
    leave(page)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


def test_by_keyboard_alone(page: Page) -> None:
    sign_in(page, at="#/try")
    page.get_by_role("button", name="Connect all").focus()
    page.keyboard.press("Enter")
    expect(_pane(page, MQTT).get_by_role("status")).to_contain_text("connected as")
    _pane(page, HTTP).get_by_label("Payload").focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    for title in (MQTT, AMQP, HTTP):
        expect(_arrived(page, title).get_by_role("row").filter(has_text="typed")).to_have_count(1)
    leave(page)


def test_a_reader_has_no_form_to_publish(gateway: Gateway, browser: Browser, api: Api, unique: str) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "management"}) == 201
    rights = {"configure": ".*", "write": "^mqtt-subscription-", "read": ".*"}
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}") as page:
        sign_in(page, unique, "p", at="#/try")
        expect(page.get_by_role("button", name="Connect all")).to_be_visible()
        page.get_by_role("button", name="Connect all").click()
        expect(_pane(page, MQTT).get_by_role("status")).to_contain_text("connected as")
        expect(page.get_by_role("button", name="Publish")).to_have_count(0)
        leave(page)
    assert api.status("DELETE", f"users/{unique}") == 204


def test_the_page_says_why_a_client_is_gone(page: Page, api: Api) -> None:
    """Somebody closes its connection, with a reason."""
    sign_in(page, at="#/try")
    _connect(page)
    (name,) = [one["name"] for one in api.get("connections") if one["protocol"] == "MQTT 5-0"]
    assert api.client.delete("connections/" + re.sub("/", "%2F", name)).status_code == 204
    expect(_pane(page, MQTT).get_by_role("alert")).to_contain_text("DISCONNECT was refused with reason code")
    expect(_pane(page, MQTT).get_by_role("button", name="Publish")).to_be_disabled()
    leave(page)
