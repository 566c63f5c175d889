"""The console around its pages: sessions, a gateway that is away, TLS and workers, the keyboard."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway, free_port
from tests.support.browser import obstacles, watched_page
from tests.support.certificates import Authority
from tests.support.console import leave, publish, sign_in
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def test_signing_in_and_out(gateway: Gateway, page: Page) -> None:
    page.goto("/")
    page.get_by_label("User name").fill("guest")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("Login failed")
    page.get_by_label("Password").fill("guest")
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    assert "guest" not in json.dumps(page.evaluate("[{...localStorage}, {...sessionStorage}, location.href]"))
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["expires"] == -1
    page.reload()
    expect(page.get_by_text("Messages that wait")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    assert cookie["value"] not in gateway.log_text() and "wrong" not in gateway.log_text()
    page.context.add_cookies([cookie])  # somebody kept it
    page.reload()
    expect(page.get_by_label("Password")).to_be_visible()


def test_a_session_that_ends_is_said_and_gone_on_from(
    gateway: Gateway, browser: Browser, api: Api, unique: str
) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "monitoring"}) == 201
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}", refusals=True) as page:
        sign_in(page, unique, "p", at="#/queues")
        assert api.status("PUT", f"users/{unique}", {"password": "q", "tags": "monitoring"}) == 204
        expect(page.get_by_text("The session has ended. Sign in again.")).to_be_visible()
        page.get_by_label("User name").fill(unique)
        page.get_by_label("Password").fill("q")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Queues")).to_be_visible()  # where it was
    assert api.status("DELETE", f"users/{unique}") == 204


def test_a_gateway_that_is_away_is_said_and_gone_on_with(
    tmp_path: Path, browser: Browser, unique: str
) -> None:
    port = free_port()
    with Gateway(tmp_path, settings={**SETTINGS, "management.listen": f"127.0.0.1:{port}"}) as gateway:
        with watched_page(browser, f"http://127.0.0.1:{port}", refusals=True) as page:
            sign_in(page, at="#/queues")
            expect(page.get_by_role("status")).to_have_text("0 of 0")
            gateway.terminate()
            expect(page.get_by_role("alert")).to_contain_text("does not answer")
            gateway.start()
            with closing(Api(gateway)) as api:
                assert api.status("PUT", f"queues/%2F/{unique}", {}) == 201
            # Neither the page nor its user does anything for that, and the session is the same.
            expect(page.get_by_role("link", name=unique)).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("live", [False, True])
def test_a_queue_that_is_deleted_is_said_and_gone_on_from(
    gateway: Gateway, browser: Browser, api: Api, unique: str, live: bool
) -> None:
    path = f"queues/%2F/{unique}"
    assert api.status("PUT", path, {}) == 201
    publish(gateway, unique, b"one")
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}", refusals=True) as page:
        sign_in(page, at=f"#/{path}{'?range=0' if live else ''}")
        main = page.locator("main")
        deletes = main.get_by_role("button", name="Delete")
        expect(deletes).to_be_visible()
        assert api.status("DELETE", path) == 204
        expect(main.get_by_role("alert")).to_contain_text("it was deleted")
        # Nothing of it is left that somebody could press, and nobody is signed out.
        expect(main.get_by_role("button")).to_have_count(0)
        expect(main.get_by_text("Messages that wait")).to_have_count(0)
        assert obstacles(page) == []
        assert api.status("PUT", path, {}) == 201
        expect(deletes).to_be_visible()
        expect(main.get_by_role("alert")).to_have_count(0)
        leave(page)
    assert api.status("DELETE", path) == 204


@pytest.mark.parametrize(
    ("made", "body", "page_of_it"),
    [
        ("exchanges/%2F/{}", {"type": "direct"}, "exchanges/%2F/{}"),
        ("queues/%2F/{}", {"durable": True, "arguments": {"x-queue-type": "stream"}}, "streams/%2F/{}"),
        ("users/{}", {"password": "p", "tags": ""}, "users/{}"),
    ],
)
def test_other_things_that_are_deleted_are_said_too(
    gateway: Gateway, browser: Browser, api: Api, unique: str, made: str, body: object, page_of_it: str
) -> None:
    path = made.format(unique)
    assert api.status("PUT", path, body) == 201
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}", refusals=True) as page:
        sign_in(page, at=f"#/{page_of_it.format(unique)}")
        main = page.locator("main")
        expect(main.get_by_role("button", name="Delete")).to_be_visible()
        assert api.status("DELETE", path) == 204
        expect(main.get_by_role("alert")).to_contain_text("it was deleted")
        expect(main.get_by_role("button")).to_have_count(0)


def test_over_tls_with_several_workers(tmp_path: Path, browser: Browser) -> None:
    pair = Authority(tmp_path).server()
    settings = {
        **SETTINGS,
        "server.workers": "2",
        "management.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with Gateway(tmp_path / "data", settings=settings) as gateway:
        with watched_page(browser, f"https://127.0.0.1:{gateway.ports['management_tls']}") as page:
            sign_in(page, at="#/queues")
            expect(page.get_by_role("status")).to_have_text("0 of 0")
            (cookie,) = page.context.cookies()
            assert cookie["secure"] and cookie["name"].startswith("__Host-")
            assert page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol") == "h2"
            page.goto("/#/overview")
            expect(page.get_by_role("heading", name="penstock-1@")).to_be_visible()
            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_label("Password")).to_be_visible()


def test_everything_by_keyboard(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    dead = f"{unique}.dead"
    rules = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True, "arguments": rules}) == 201
    assert api.status("PUT", f"queues/%2F/{dead}", {"durable": True}) == 201
    publish(gateway, unique, b"to be rejected", b"seen by keyboard")
    rejects = {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"}
    assert api.send("POST", f"queues/%2F/{unique}/get", rejects).status_code == 200
    page.goto("/")
    expect(page.get_by_label("User name")).to_be_focused()
    page.keyboard.type("guest")
    page.keyboard.press("Tab")
    page.keyboard.type("guest")
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.type("gq")
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    expect(page.locator("[data-search]")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(unique)
    expect(page.get_by_role("status")).to_contain_text("2 of")

    def tab_to(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent.trim()") == name:
                return
        raise AssertionError(f"{name} is not reached")

    tab_to(unique)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"Queue {unique}")).to_be_visible()
    tab_to("Look at messages")
    page.keyboard.press("Enter")
    expect(page.get_by_text("seen by keyboard")).to_be_visible()
    # One dead letter goes back.
    page.keyboard.type("gd")
    expect(page.get_by_role("heading", name="Dead letters of /")).to_be_visible()
    expect(page.get_by_role("link", name=dead)).to_be_visible()
    tab_to(dead)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"Dead letters in {dead}")).to_be_visible()
    tab_to("Preview")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Move 1 message")).to_be_visible()
    tab_to("Move 1 message")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Enter")  # what does it has the focus
    expect(page.get_by_role("status")).to_have_text("1 moved.")
    assert [api.get(f"queues/%2F/{name}")["messages"] for name in (dead, unique)] == [0, 2]
    leave(page)
    for name in (unique, dead):
        assert api.status("DELETE", f"queues/%2F/{name}") == 204
