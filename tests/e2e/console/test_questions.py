"""Questions that a page answers: where a message would go, who may do what, what webhooks and users did."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles
from tests.support.console import leave, sign_in
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def test_where_a_message_would_go_and_who_may(page: Page, api: Api, unique: str) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    bound = {"routing_key": f"{unique}.#", "arguments": {}}
    assert api.status("POST", f"bindings/%2F/e/amq.topic/q/{unique}", bound) == 201
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": ""}) == 201
    sign_in(page, at="#/exchanges/%2F/amq.topic")
    form = page.locator("form").filter(has_text="Try the route")
    form.get_by_label("Routing key").fill(f"{unique}.x")
    page.keyboard.press("Enter")
    places = page.get_by_role("region", name="Places it would go to")
    expect(places.get_by_role("link", name=unique)).to_be_visible()
    form.get_by_label("Headers, as JSON").fill("{")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    form.get_by_label("Headers, as JSON").fill("")
    form.get_by_label("Routing key").fill("elsewhere")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nowhere: it would be dropped.")).to_be_visible()
    assert obstacles(page) == []
    page.goto(f"/#/users/{unique}")
    asked = page.locator("form").filter(has_text="Exchange or queue")
    asked.get_by_label("Exchange or queue").fill("amq.topic")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Refused")).to_be_visible()
    rights = {"configure": "", "write": "^amq[.]topic$", "read": ""}
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("Allowed", exact=True)).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="^amq[.]topic$")).to_contain_text("allows it")
    assert obstacles(page) == []
    leave(page)
    assert api.status("DELETE", f"users/{unique}") == 204
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


def test_webhooks_and_the_audit_trail(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    base = f"http://127.0.0.1:{gateway.ports['management']}/v1/vhosts/%2F/webhooks/{unique}"
    made = httpx.put(
        base,
        json={"source": {"queue": unique}, "url": "https://receiver.invalid/here"},
        auth=("guest", "guest"),
        timeout=120,
    )
    assert made.status_code == 201, made.text
    sign_in(page, at="#/webhooks")
    page.get_by_role("region", name="Webhooks").get_by_role("link", name=unique).click()
    expect(page.get_by_role("heading", name=f"Webhook {unique}")).to_be_visible()
    expect(page.get_by_text("https://receiver.invalid/here").first).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert obstacles(page) == []
    page.goto("/#/audit?action=webhook")
    entries = page.get_by_role("region", name="Entries")
    expect(entries.get_by_role("row").nth(1)).to_contain_text("webhook.pause")
    expect(entries.get_by_role("row").nth(2)).to_contain_text("webhook.put")
    expect(entries).not_to_contain_text("queue.declare")
    page.get_by_role("button", name="Verify the chain").click()
    page.get_by_role("dialog").get_by_role("button", name="Verify the chain").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert obstacles(page) == []
    assert httpx.delete(base, auth=("guest", "guest"), timeout=120).status_code == 204
    leave(page)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204
