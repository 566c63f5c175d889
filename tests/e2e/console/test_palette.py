"""The palette: any page or object by a part of its name, by keyboard alone, for what the user may see."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.console import HOSTILE, leave, sign_in
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")

STREAM = {"arguments": {"x-queue-type": "stream"}, "durable": True}


def open_palette(page: Page) -> None:
    """By its key; the field has the focus, so the next keys are for it."""
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()


def test_letters_typed_before_the_palette_is_there_are_not_lost(page: Page) -> None:
    """It is loaded when it is opened first, and the user types on."""
    held: list[Route] = []
    page.route("**/palette.js", lambda route: held.append(route))
    sign_in(page)
    with page.expect_request("**/palette.js"):
        page.keyboard.press("Control+k")
    page.keyboard.type("gueu")  # "g u" leads to the users elsewhere
    held[0].continue_()
    field = page.get_by_role("dialog").get_by_role("combobox")
    expect(field).to_be_focused()
    page.keyboard.type("e")
    expect(field).to_have_value("gueue")
    assert "users" not in page.url
    for _ in "gueue":
        page.keyboard.press("Backspace")
    page.keyboard.type("queues")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page).to_have_url(re.compile("#/queues"))
    page.unroute_all()
    leave(page)


def test_objects_of_all_kinds_by_keyboard(page: Page, api: Api, unique: str) -> None:
    name = HOSTILE + unique
    encoded = quote(name, safe="")
    rule = {"pattern": "^nothing$", "definition": {"max-length": 9}}
    made = {
        f"queues/%2F/{encoded}": {},
        f"queues/%2F/{unique}s": STREAM,
        f"exchanges/%2F/{unique}x": {"type": "topic"},
        f"users/{unique}u": {"password": "p", "tags": ""},
        f"vhosts/{unique}v": None,
        f"policies/%2F/{unique}p": rule,
    }
    for path, body in made.items():
        assert api.status("PUT", path, body) == 201, path
    topic = {"routing_key": f"{unique}t", "payload": "x", "payload_encoding": "string", "properties": {}}
    assert api.send("POST", "exchanges/%2F/amq.topic/publish", topic).status_code == 200
    sign_in(page)
    expect(page.get_by_text("Messages that wait")).to_be_visible()
    found = page.get_by_role("dialog", name="Find")
    for opens in ("/", "Control+k"):  # the overview has no filter for "/"
        page.keyboard.press(opens)
        expect(found).to_be_visible()
        page.keyboard.press("Escape")
        expect(found).to_have_count(0)
    open_palette(page)
    page.keyboard.type(unique)
    kinds = ["Queue · /", "Stream · /", "Exchange · /", "Virtual host", "User", "Policy · /"]
    expect(found.get_by_role("option").locator("small")).to_have_text(kinds)
    expect(found.get_by_role("option", selected=True)).to_contain_text(name)
    assert page.locator("dialog img").count() == 0
    assert obstacles(page) == []
    page.keyboard.press("ArrowUp")
    expect(found.get_by_role("option", selected=True)).to_contain_text("Policy")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"{unique}s")).to_be_visible()
    expect(page.locator("#main")).to_be_focused()
    for text, heading in (
        (f"{unique}x", f"Exchange {unique}x"),
        (f"{unique}u", f"User {unique}u"),
        ("dead letters", "Dead letters of /"),
    ):
        open_palette(page)
        page.keyboard.type(text)
        # Other tests may have queues with the name of a page: pages come first.
        expect(found.get_by_role("status")).to_have_text(re.compile(r"\d+ found"))
        selected = found.get_by_role("option", selected=True).locator("span")
        expect(selected).to_have_text(re.compile(text, re.IGNORECASE))
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    open_palette(page)
    page.keyboard.type("users")
    page.keyboard.press("Enter")  # a page is known before the gateway has answered
    expect(page.get_by_role("heading", name="Users", exact=True)).to_be_visible()
    open_palette(page)
    page.keyboard.type("no such thing")
    expect(found.get_by_role("status")).to_have_text("Nothing has this in its name.")
    page.keyboard.press("Enter")
    expect(found).to_be_visible()
    assert obstacles(page) == []
    leave(page)
    for path in made:
        assert api.status("DELETE", path) == 204, path


def test_a_key_may_follow_a_close_before_the_browser_reports_it(page: Page) -> None:
    sign_in(page)
    for key, name in (("k", "Find"), ("?", "Keys")):
        dialog = page.get_by_role("dialog", name=name)
        event = f"new KeyboardEvent('keydown', {{ key: '{key}', ctrlKey: {str(key == 'k').lower()} }})"
        page.evaluate(f"() => dispatchEvent({event})")
        expect(dialog).to_be_visible()
        page.evaluate(f"() => {{ document.querySelector('dialog').close(); dispatchEvent({event}); }}")
        page.evaluate("() => new Promise(requestAnimationFrame)")  # the report has come
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


def test_a_kind_with_more_leads_to_its_list(page: Page, api: Api, unique: str) -> None:
    queues = [f"queues/%2F/{unique}{index}" for index in range(8)]
    for path in queues:
        assert api.status("PUT", path, {}) == 201
    sign_in(page)
    page.get_by_role("button", name="Find (Ctrl+K)").click()
    page.keyboard.type(unique)
    page.get_by_role("option", name="Queues: all 8 with this text").click()
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    expect(page.locator("main").get_by_role("status").first).to_contain_text("8 of")
    leave(page)
    for path in queues:
        assert api.status("DELETE", path) == 204


@pytest.mark.parametrize("tag", ["management", "monitoring", "auditor"])
def test_only_what_the_user_may_see(
    gateway: Gateway, browser: Browser, api: Api, unique: str, tag: str
) -> None:
    """Without a request that is refused, which would fail the page."""
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": tag}) == 201
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}") as page:
        sign_in(page, unique, "p")
        open_palette(page)
        found = page.get_by_role("dialog", name="Find")
        page.keyboard.type(unique)
        expect(found.get_by_role("status")).to_have_text("Nothing has this in its name.")
        found.get_by_role("combobox").fill("user")
        expect(found.get_by_role("status")).to_have_text("Nothing has this in its name.")
        found.get_by_role("combobox").fill("audit")
        expect(found.get_by_role("option")).to_have_count(int(tag == "auditor"))
        expect(found.get_by_role("alert")).to_have_count(0)
    assert api.status("DELETE", f"users/{unique}") == 204
