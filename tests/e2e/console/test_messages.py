"""The pages about messages: search in the past, one message with its path, replay."""

from __future__ import annotations

from contextlib import closing

import pika
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.console import HOSTILE, leave, publish, sign_in
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def test_search_finds_in_pieces_stops_and_goes_on(
    gateway: Gateway, page: Page, api: Api, unique: str
) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    publish(gateway, unique, *(f"{unique} {number}".encode() for number in range(620)))
    publish(gateway, unique, HOSTILE.encode(), headers={unique: HOSTILE})
    sign_in(page, at="#/search")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("[name=from]")).to_be_focused()
    page.get_by_label("Text in the body").fill(unique)
    page.keyboard.press("Enter")
    rows = page.get_by_role("region", name="Messages").get_by_role("row")
    # It stops by itself after so many rows, each request of which has a hundred.
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    expect(rows).to_have_count(501)
    expect(page.get_by_role("status")).to_contain_text("Stopped")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("status")).to_contain_text("Done: 100 %, 620 found")
    expect(page.get_by_role("button", name="Continue")).to_have_count(0)
    page.get_by_label("Text in the body").fill("")
    page.get_by_label("Headers").fill(f"{unique}={HOSTILE}")
    page.get_by_label("Queue or stream").fill(unique)
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("status")).to_contain_text("Done: 100 %, 1 found")
    expect(page.get_by_text(HOSTILE, exact=True)).to_be_visible()
    assert page.locator("main img, main script").count() == 0
    address = page.url
    page.goto("/#/overview")
    page.goto(address)  # a link that was sent
    expect(page.get_by_role("status")).to_contain_text("Done: 100 %, 1 found")
    leave(page)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


def test_a_long_search_can_be_stopped(gateway: Gateway, page: Page, unique: str) -> None:
    sign_in(page, at="#/search")
    asked: list[str] = []

    def half(route: Route) -> None:
        asked.append(route.request.post_data or "")
        told = {"messages": [], "progress": 0.5, "scanned_bytes": 1 << 20, "damaged": 0, "cursor": "1:2:3"}
        route.fulfill(json=told)

    page.route("**/log/search", half)
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("status")).to_contain_text("Searching: 50 %")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status")).to_contain_text("Stopped: 50 %")
    assert '"cursor":"1:2:3"' not in asked[0] and '"cursor":"1:2:3"' in asked[-1]
    page.unroute("**/log/search")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("status")).to_contain_text("Done: 100 %")


def test_a_refusal_of_a_search_is_said(gateway: Gateway, browser: Browser) -> None:
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}", refusals=True) as page:
        sign_in(page, at="#/search?from=yesterday&run=1")
        expect(page.get_by_role("alert")).to_contain_text("from is")


def test_a_message_shows_its_path(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    rules = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{unique}d"}
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True, "arguments": rules}) == 201
    assert api.status("PUT", f"queues/%2F/{unique}d", {"durable": True}) == 201
    publish(gateway, unique, b"before", headers={HOSTILE[:100]: HOSTILE})
    sign_in(page, at=f"#/search?queue={unique}&run=1")
    page.get_by_role("region", name="Messages").get_by_role("link").click()
    expect(page.get_by_text("This is all that the log knows.")).to_be_visible()
    expect(page.get_by_text("Not known: who published it.")).to_be_visible()
    expect(page.get_by_role("region", name="Places").get_by_role("row").nth(1)).to_contain_text("waits there")
    expect(page.locator("main").get_by_text(HOSTILE).first).to_be_visible()
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("button", name="Record for 10 minutes").click()
    page.get_by_role("dialog").get_by_role("button", name="Record for 10 minutes").click()
    expect(page.get_by_text("The gateway records: deliver, ack")).to_be_visible()
    assert obstacles(page) == []
    publish(gateway, unique, f"{unique} rejected".encode())
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        for requeue in (True, False):
            channel.basic_get(unique)
            method, _, _ = channel.basic_get(unique)
            channel.basic_nack(method.delivery_tag, multiple=True, requeue=requeue)
        channel.queue_declare(unique, passive=True)
    page.goto(f"/#/search?contains={unique} rejected&run=1")
    page.get_by_role("region", name="Messages").get_by_role("link").first.click()
    steps = page.get_by_role("region", name="Path").get_by_role("row")
    expect(steps).to_have_count(6)
    wanted = [("Published", "by amqp, user guest"), ("Delivered", unique), ("Given back", unique)]
    for at, (what, where) in enumerate([*wanted, ("Delivered", "again"), ("Dead-lettered", "rejected")]):
        expect(steps.nth(at + 1)).to_contain_text(what)
        expect(steps.nth(at + 1)).to_contain_text(where)
    assert obstacles(page) == []
    page.get_by_role("link", name="Find its dead letter").click()
    page.get_by_role("region", name="Messages").get_by_role("link").click()
    expect(steps.nth(1)).to_contain_text(f"from {unique}")
    expect(page.get_by_role("region", name="Deaths")).to_contain_text("rejected")
    assert obstacles(page) == []
    assert api.status("PUT", "recording", {"kinds": [], "for_s": 0}) == 200
    leave(page)
    for name in (unique, f"{unique}d"):
        assert api.status("DELETE", f"queues/%2F/{name}") == 204


def test_recording_is_offered_to_administrators(page: Page, api: Api, gateway: Gateway, unique: str) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    publish(gateway, unique, b"one")
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "management"}) == 201
    rights = {"configure": "", "write": "", "read": f"^{unique}$"}
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    sign_in(page, unique, "p", at=f"#/search?queue={unique}&run=1")
    page.get_by_role("region", name="Messages").get_by_role("link").click()
    expect(page.get_by_text("The gateway does not record what happens to messages.")).to_be_visible()
    expect(page.get_by_role("button", name="Record for 10 minutes")).to_have_count(0)
    leave(page)
    assert api.status("DELETE", f"users/{unique}") == 204
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


def test_a_slider_counts_and_replays(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    body = {"properties": {}, "routing_key": f"{unique}.a", "payload": "x", "payload_encoding": "string"}
    for _ in range(7):
        assert api.status("POST", "exchanges/%2F/amq.topic/publish", body) == 200
    sign_in(page, at="#/replay")
    page.get_by_label("Topic filter").fill(f"{unique}/#")
    page.get_by_role("button", name="Count").click()
    expect(page.get_by_role("status")).to_have_text("7 messages")
    slider = page.get_by_role("slider", name="Since")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "45 min ago")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("1.5 h ago")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("7 messages")
    assert obstacles(page) == []
    page.get_by_role("button", name="Replay into a new queue").click()
    page.get_by_role("dialog").get_by_label("Name of the queue").fill(unique)
    page.get_by_role("dialog").get_by_role("button", name="Replay into a new queue").click()
    expect(page.get_by_role("heading", name=f"Queue {unique}")).to_be_visible()
    assert api.get(f"queues/%2F/{unique}")["messages_ready"] == 7
    page.goto("/#/replay?of=exchange&exchange=amq.topic&key=nothing")
    expect(page.get_by_role("status")).to_have_text("0 messages")
    leave(page)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


@pytest.mark.parametrize("lacking", ["configure", "write"])
def test_a_user_without_queues_of_their_own_sees_no_replay(
    page: Page, api: Api, unique: str, lacking: str
) -> None:
    rights = dict.fromkeys(("configure", "write", "read"), f"^({unique}|amq[.]topic)")
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "management"}) == 201
    assert api.status("PUT", f"permissions/%2F/{unique}", {**rights, lacking: ""}) == 201
    button = page.get_by_role("button", name="Replay into a new queue")
    with page.expect_response("**/api/may?*operation=configure"), page.expect_response("**/api/may?*=write"):
        sign_in(page, unique, "p", at=f"#/replay?topic={unique}")
    expect(page.get_by_role("status")).to_have_text("0 messages")
    expect(button).to_have_count(0)
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 204
    page.reload()
    button.click()
    page.get_by_label("Name of the queue").fill(unique)
    page.get_by_role("dialog").get_by_role("button", name="Replay into a new queue").click()
    expect(page.get_by_role("heading", name=f"Queue {unique}")).to_be_visible()
    leave(page)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204
    assert api.status("DELETE", f"users/{unique}") == 204


def test_a_stream_is_followed_from_its_beginning(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    stream = {"arguments": {"x-queue-type": "stream"}, "durable": True}
    assert api.status("PUT", f"queues/%2F/{unique}", stream) == 201
    publish(gateway, unique, b"earlier")
    sign_in(page, at=f"#/live?of=stream&name={unique}&from=first")
    page.get_by_role("button", name="Follow").click()
    rows = page.get_by_role("region", name="Messages").get_by_role("row")
    expect(rows.filter(has_text="earlier")).to_have_count(1)
    publish(gateway, unique, b"later")
    expect(rows.filter(has_text="later")).to_have_count(1)
    leave(page)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


def test_a_queue_and_the_default_exchange_are_followed(
    gateway: Gateway, page: Page, api: Api, unique: str
) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {}) == 201
    rows = page.get_by_role("region", name="Messages").get_by_role("row")
    sign_in(page, at="#/live")
    for source, address in (("queue", f"name={unique}"), ("default", f"pattern={unique}")):
        page.goto(f"/#/live?of={source}&{address}")
        expect(page.get_by_label("Follow")).to_have_value(source)
        with page.expect_response("**/tail?*"):
            page.get_by_role("button", name="Follow").click()
        publish(gateway, unique, f"body-{source}".encode())
        expect(rows.filter(has_text=f"body-{source}")).to_have_count(1)
    page.goto(f"/#/live?of=queue&name={unique}&from=first")
    page.get_by_role("button", name="Follow").click()
    expect(rows.filter(has_text="body-")).to_have_count(2)  # nothing was taken
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204
    expect(page.get_by_role("alert")).to_have_text("It has ended: the queue was deleted")
    leave(page)
