"""The pages about messages: search in the past, one message with its path, replay."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.brokers import Gateway
from tests.support.browser import watched_page
from tests.support.console import HOSTILE, publish, sign_in
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def test_search_finds_in_pieces_stops_and_goes_on(
    gateway: Gateway, page: Page, api: Api, unique: str
) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    publish(gateway, unique, *(f"{unique} {number}".encode() for number in range(620)))
    publish(gateway, unique, HOSTILE.encode(), headers={unique: HOSTILE})
    sign_in(page, at="#/search")
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
