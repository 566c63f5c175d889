"""Each rule against pages of other sites is needed: without it the attack that it stops succeeds.

The attacks are those of `test_cross_site`, which a gateway with its rules withstands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import httpx
import pytest
from playwright.sync_api import Browser, Error, Page, Route, expect

from penstock.protocols.http.server import cross_site, endpoint
from penstock.protocols.http.server.endpoint import HttpConnection
from penstock.testing import Gateway
from tests.e2e.http.test_cross_site import FOREIGN, FORM, MAKES_ADMIN, pages
from tests.support.browser import chromium
from tests.support.console import HOSTILE, sign_in
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("these are rules of penstock's own listeners")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway(settings={"management.listen": "127.0.0.1:0"}) as running:
        yield running


@pytest.fixture(scope="module")
def base(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.listener('management')}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@contextmanager
def without(place: Any, rule: str, instead: object) -> Iterator[None]:
    """The gateway, which is in this process, has something else for a rule."""
    with mock.patch.object(place, rule, instead):
        yield


def makes_an_administrator(base: str, browser: Browser) -> bool:
    """Whether a form of another origin does, in a browser with the session of a console."""
    form = FORM.replace("TARGET", f"{base}/api/definitions").replace("TYPE", "text/plain")
    context = browser.new_context(base_url=base)
    with pages({"/form": form.replace("BODY", json.dumps(MAKES_ADMIN))}) as url:
        sign_in(context.new_page())
        elsewhere = context.new_page()
        with elsewhere.expect_response(f"{base}/api/definitions", timeout=1000 * LIMIT_S):
            elsewhere.goto(f"{url}/form", wait_until="commit")
    context.close()
    with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=LIMIT_S) as http:
        made = http.get("/api/users/evil").status_code == 200
        if made:
            assert http.delete("/api/users/evil").status_code == 204
    return made


def test_a_form_makes_an_administrator_where_pages_are_not_looked_at(base: str, browser: Browser) -> None:
    assert not makes_an_administrator(base, browser)
    with without(endpoint, "check_page", lambda request: None):
        assert makes_an_administrator(base, browser)


def test_without_the_look_at_origins_every_foreign_page_is_let_in(base: str) -> None:
    def statuses() -> set[int]:
        with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=LIMIT_S) as http:
            json_ = {"content-type": "application/json"}
            return {
                http.put("/api/vhosts/x", content=b"{}", headers={**one, **json_}).status_code
                for one in FOREIGN
            }

    assert statuses() == {403}
    with without(cross_site, "foreign_page", lambda headers: None):
        assert statuses() <= {201, 204}


def test_without_the_rule_for_types_a_form_of_the_page_itself_is_taken(base: str) -> None:
    own = {"sec-fetch-site": "same-origin", "content-type": "text/plain"}
    with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=LIMIT_S) as http:
        assert http.put("/api/vhosts/y", content=b"{}", headers=own).status_code == 415
        with without(cross_site, "_FORM_TYPES", ()):
            assert http.put("/api/vhosts/y", content=b"{}", headers=own).status_code == 201


OPENS: Mapping[str, str] = {
    "EventSource": "new EventSource(`${target}/v1/vhosts/%2F/exchanges/amq.topic/tail`, WITH_COOKIES)",
    "WebSocket": 'new WebSocket(`${target.replace("http", "ws")}/v1/vhosts/%2F/ws`)',
}
"""Ways of a page to follow messages in its reader's name, whose cookie is sent along: ports are no sites."""


@pytest.mark.parametrize("way", OPENS)
def test_without_the_rule_a_foreign_page_follows_messages(base: str, browser: Browser, way: str) -> None:
    """An event stream or a socket of another origin, in a browser with the session of a console."""
    context = browser.new_context(base_url=base)
    sign_in(context.new_page())
    opened = OPENS[way].replace("WITH_COOKIES", "{ withCredentials: true }")
    script = f"""<!doctype html><body><script>const target = "{base}", source = {opened};
    source.onopen = source.onerror = () => location = "/done";</script>"""
    with pages({"/": script}) as url:

        def follows() -> bool:
            """Whether the gateway begins to send messages; a page of another origin sees no events itself."""
            elsewhere = context.new_page()
            with (
                mock.patch.object(HttpConnection, "_stream", wraps_method(HttpConnection._stream)) as stream,
                mock.patch.object(
                    HttpConnection, "_converse", wraps_method(HttpConnection._converse)
                ) as talk,
            ):
                elsewhere.goto(url, wait_until="commit")
                elsewhere.wait_for_url(f"{url}/done", timeout=1000 * LIMIT_S)
                elsewhere.close()
                return bool(stream.called or talk.called)

        assert not follows()
        with without(endpoint, "check_page", lambda request: None):
            assert follows()
        with without(cross_site, "foreign_page", lambda headers: None):
            assert follows()
    context.close()


def wraps_method(method: Callable[..., Any]) -> Any:
    """A method that does the same, and knows whether it was called."""
    return mock.create_autospec(method, side_effect=method)


INJECTED: Mapping[str, str] = {
    "html": "document.body.insertAdjacentHTML('beforeend', NAME)",
    "an inline script": "s = document.createElement('script'); s.text = 'alert(1)'; document.body.append(s)",
    "a text that is run": "setTimeout('alert(1)')",
}
"""Mistakes that the console could make with a name; the policy of its pages stops them."""


@pytest.mark.parametrize("way", INJECTED)
def test_without_the_policy_of_its_pages_a_name_could_run_a_script(
    base: str, browser: Browser, way: str
) -> None:
    def ran(headers: Callable[[dict[str, str]], dict[str, str]]) -> bool:
        context = browser.new_context(base_url=base)
        page = context.new_page()

        def serve(route: Route) -> None:
            answer = route.fetch()
            route.fulfill(response=answer, headers=headers(answer.headers))

        page.route(f"{base}/", serve)
        asked: list[str] = []
        page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
        sign_in(page)
        _inject(page, INJECTED[way].replace("NAME", json.dumps(HOSTILE)))
        context.close()
        return asked == ["1"]

    assert not ran(lambda headers: headers)
    assert ran(
        lambda headers: {name: of for name, of in headers.items() if name != "content-security-policy"}
    )


def _inject(page: Page, script: str) -> None:
    try:
        page.evaluate(f"() => {{ {script}; }}")
    except Error as error:
        assert "TrustedHTML" in str(error) or "TrustedScript" in str(error)
    # Where it is let in, an image has failed by now: its own request is answered before this one.
    page.evaluate("fetch('/api/auth').then(() => new Promise(requestAnimationFrame))")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
