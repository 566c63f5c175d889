"""The pages of messages outside of queues: those that wait for their time, and retained ones."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles
from tests.support.console import HOSTILE, leave, sign_in
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")

DAY_MS = 86_400_000
READER = {"configure": "", "write": "", "read": ".*"}


def post(gateway: Gateway, vhost: str, target: str, *values: str, delay_ms: int = 0) -> None:
    base = f"http://127.0.0.1:{gateway.ports['management']}/v1/vhosts/{vhost}/{target}"
    later = {"delay_ms": delay_ms} if delay_ms else {}
    messages = [{"value": value, **later} for value in values]
    answer = httpx.post(base, json={"messages": messages}, auth=("guest", "guest"), timeout=120)
    assert answer.status_code == 200, answer.text


@pytest.fixture
def vhost(api: Api, unique: str) -> str:
    assert api.status("PUT", f"vhosts/{unique}") == 201
    return unique


def test_a_delayed_message_is_listed_and_deleted(gateway: Gateway, page: Page, api: Api, vhost: str) -> None:
    hostile = f"{HOSTILE}/t"
    post(gateway, vhost, f"mqtt/messages?topic={quote(hostile, safe='')}", "x" * 2048, delay_ms=2 * DAY_MS)
    post(gateway, vhost, "exchanges/amq.direct/messages?routing_key=sooner", "x", delay_ms=DAY_MS)
    sign_in(page, at=f"#/delayed?vhost={vhost}")
    rows = page.get_by_role("region", name="Delayed messages").get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("sooner")
    expect(rows.nth(2)).to_contain_text(hostile)
    expect(rows.nth(2)).to_contain_text("2 KiB")
    assert page.locator("main img, main script").count() == 0
    assert obstacles(page) == []
    rows.nth(1).get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text(hostile)
    leave(page)
    assert api.status("DELETE", f"vhosts/{vhost}") == 204


def test_delayed_messages_are_cut_into_pages(gateway: Gateway, page: Page, api: Api, vhost: str) -> None:
    publish = "exchanges/amq.direct/messages?routing_key"
    post(gateway, vhost, f"{publish}=many", *["x"] * 500, delay_ms=30 * DAY_MS)
    post(gateway, vhost, f"{publish}=last", "x", delay_ms=40 * DAY_MS)
    sign_in(page, at=f"#/delayed?vhost={vhost}")
    region = page.get_by_role("region", name="Delayed messages")
    expect(region).to_contain_text("many")
    expect(region).not_to_contain_text("last")
    page.get_by_role("button", name="Next").click()
    expect(region).to_contain_text("last")
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    page.get_by_role("button", name="First").click()
    expect(region).not_to_contain_text("last")
    leave(page)
    assert api.status("DELETE", f"vhosts/{vhost}") == 204


def test_a_retained_message_is_listed_and_cleared(gateway: Gateway, page: Page, api: Api, vhost: str) -> None:
    hostile = f"a/{HOSTILE}"
    for topic in (hostile, "a/other", "b"):
        post(gateway, vhost, f"mqtt/messages?retain=true&topic={quote(topic, safe='')}", "x" * 1024)
    sign_in(page, at=f"#/retained?vhost={vhost}")
    rows = page.get_by_role("region", name="Retained messages").get_by_role("row")
    expect(rows).to_have_count(4)
    page.get_by_label("Topic filter").fill("a/+")
    page.get_by_role("button", name="Show").click()
    expect(rows).to_have_count(3)
    page.get_by_label("Text in the topic").fill("onerror")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text(hostile)
    expect(rows.nth(1)).to_contain_text("1 KiB")
    assert page.locator("main img, main script").count() == 0
    assert obstacles(page) == []
    rows.nth(1).get_by_role("button", name="Clear").click()
    page.get_by_role("dialog").get_by_role("button", name="Clear").click()
    expect(page.get_by_role("status")).to_contain_text("0 of 1")
    assert [one["name"] for one in api.get(f"retained/{vhost}")] == ["a/other", "b"]
    leave(page)
    assert api.status("DELETE", f"vhosts/{vhost}") == 204


def test_a_user_who_may_only_read_sees_no_button(gateway: Gateway, page: Page, api: Api, vhost: str) -> None:
    post(gateway, vhost, "mqtt/messages?topic=a", "x", delay_ms=DAY_MS)
    post(gateway, vhost, "mqtt/messages?topic=a&retain=true", "x")
    assert api.status("PUT", f"users/{vhost}", {"password": "p", "tags": "management"}) == 201
    assert api.status("PUT", f"permissions/{vhost}/{vhost}", READER) == 201
    sign_in(page, vhost, "p")
    for name in ("Delayed", "Retained"):
        page.goto(f"/#/{name.lower()}")
        rows = page.get_by_role("region", name=f"{name} messages").get_by_role("row")
        expect(rows).to_have_count(2)
        expect(rows.nth(1).get_by_role("button")).to_have_count(0)
    assert api.status("PUT", f"permissions/{vhost}/{vhost}", {**READER, "read": ""}) == 204
    for name in ("Delayed", "Retained"):
        page.goto(f"/#/{name.lower()}")
        expect(page.get_by_role("heading", level=1)).to_contain_text(name)
        expect(page.get_by_text("Loading …")).to_have_count(0)
        expect(page.get_by_role("region", name=f"{name} messages")).to_have_count(0)
    leave(page)
    assert api.status("DELETE", f"users/{vhost}") == 204
    assert api.status("DELETE", f"vhosts/{vhost}") == 204
