"""Several queues at once: a preview with their counts, one confirmation, a result for each."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.console import leave, publish, sign_in
from tests.support.data_plane import until
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")

STREAM = {"arguments": {"x-queue-type": "stream"}, "durable": True}


def test_several_are_purged_paused_and_deleted(
    gateway: Gateway, browser: Browser, api: Api, unique: str
) -> None:
    names = [f"{unique}{letter}" for letter in "abc"]
    for name in names:
        assert api.status("PUT", f"queues/%2F/{name}", {}) == 201
        publish(gateway, name, b"1", b"2")
    assert api.status("PUT", f"queues/%2F/{unique}s", STREAM) == 201
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    subscription = f"{base}/v1/vhosts/%2F/streams/{unique}s/subscriptions/sub"
    assert api.client.put(subscription, json={}).status_code in (200, 201)
    with watched_page(browser, base, refusals=True) as page:
        sign_in(page, at=f"#/queues?vhost=%2F&name={unique}")
        several = page.get_by_role("group", name="Several queues")
        expect(several.get_by_role("button")).to_have_text(["Select all"])
        # By keyboard: the space bar selects a row.
        page.get_by_role("region", name="Queues").focus()
        for key in ("ArrowDown", "ArrowDown", " ", "ArrowDown", " "):  # the first one is the subscription
            page.keyboard.press(key)
        expect(page.get_by_label(f"Select {names[1]}")).to_be_checked()
        expect(several.get_by_text("2 selected")).to_be_visible()
        several.get_by_role("button", name="Purge selected").click()
        dialog = page.get_by_role("dialog", name="Purge selected")
        expect(dialog).to_contain_text("2 of 2 that are selected; they have 4 messages.")
        expect(dialog.get_by_role("row")).to_have_count(3)
        assert obstacles(page) == []
        page.keyboard.type("2")
        page.keyboard.press("Enter")
        results = page.get_by_role("region", name="Results")
        expect(results.get_by_role("row")).to_have_text(
            ["NameResult", f"{names[0]}done", f"{names[1]}done"], use_inner_text=False
        )
        assert [api.get(f"queues/%2F/{name}")["messages"] for name in names] == [0, 0, 2]
        # Of all, each deed takes those that it fits.
        several.get_by_role("button", name="Select all").click()
        several.get_by_role("button", name="Pause selected").click()
        page.get_by_role("dialog").get_by_role("button", name="Pause selected").click()
        expect(results).to_contain_text(f"{unique}s/sub")
        until(lambda: api.client.get(subscription).json()["paused"])
        several.get_by_role("button", name="Select all").click()
        several.get_by_role("button", name="Delete selected").click()
        expect(dialog.or_(page.get_by_role("dialog"))).to_contain_text("4 of 5 that are selected")
        assert api.status("DELETE", f"queues/%2F/{names[0]}") == 204  # somebody is faster
        page.get_by_label("Type 4 to confirm").fill("4")
        page.get_by_role("dialog").get_by_role("button", name="Delete selected").click()
        expect(results.get_by_role("row").nth(1)).to_contain_text("refused")
        expect(results.get_by_role("row").nth(2)).to_contain_text("done")
        expect(page.get_by_role("region", name="Queues")).to_have_count(0)
        leave(page)


def test_only_what_the_user_may_do_is_offered(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    rights = {"configure": "", "write": "", "read": f"^{unique}a$"}
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "monitoring"}) == 201
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    for letter in "ab":
        assert api.status("PUT", f"queues/%2F/{unique}{letter}", {}) == 201
    sign_in(page, unique, "p", at=f"#/queues?vhost=%2F&name={unique}")
    expect(page.get_by_label(f"Select {unique}a")).to_be_visible()
    expect(page.get_by_label(f"Select {unique}b")).to_have_count(0)
    page.get_by_role("button", name="Select all").click()
    several = page.get_by_role("group", name="Several queues")
    expect(several.get_by_role("button")).to_have_text(["Select none", "Purge selected"])
    leave(page)
    for letter in "ab":
        assert api.status("DELETE", f"queues/%2F/{unique}{letter}") == 204
    assert api.status("DELETE", f"users/{unique}") == 204


def test_a_subscription_is_paused_on_its_page(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", STREAM) == 201
    subscription = (
        f"http://127.0.0.1:{gateway.ports['management']}/v1/vhosts/%2F/streams/{unique}/subscriptions/sub"
    )
    assert api.client.put(subscription, json={}).status_code in (200, 201)
    publish(gateway, unique, b"waits")
    sign_in(page, at=f"#/queues/%2F/subscription-{unique}%2Fsub")
    expect(page.get_by_text("Oldest waits")).to_be_visible()
    for button, state in (("Pause", "paused"), ("Resume", "runs")):
        page.get_by_role("button", name=button).click()
        page.get_by_role("dialog").get_by_role("button", name=button).click()
        expect(page.locator("dd").get_by_text(state, exact=True)).to_be_visible()
        assert api.client.get(subscription).json()["paused"] is (state == "paused")
    leave(page)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204
