"""`/v1/live`: totals of what is on a screen as they change, within limits and rights; its plots in a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.console import HOSTILE, leave, publish, sign_in
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own stream")

Event = tuple[str, Any]


def queue_of(vhost: str, name: str) -> str:
    return f"queue:{quote(vhost, safe='')}/{quote(name, safe='')}"


@contextmanager
def following(
    gateway: Gateway, *names: str, auth: tuple[str, str] = ("guest", "guest"), each_ms: str = "250"
) -> Iterator[Iterator[Event]]:
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    asked = {"of": ",".join(names), "each_ms": each_ms}
    with httpx.stream("GET", f"{base}/v1/live", params=asked, auth=auth, timeout=LIMIT_S) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        yield _events(answer)


def _events(answer: httpx.Response) -> Iterator[Event]:
    kind = ""
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def refused(gateway: Gateway, of: str, **more: str) -> tuple[int, str]:
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    asked = {"of": of, **more}
    answer = httpx.get(f"{base}/v1/live", params=asked, auth=("guest", "guest"), timeout=LIMIT_S)
    return answer.status_code, answer.json()["code"]


def test_totals_come_when_they_change(gateway: Gateway, api: Api, unique: str) -> None:
    hostile = HOSTILE + unique
    for name in (unique, hostile):
        assert api.status("PUT", f"queues/%2F/{quote(name, safe='')}", {}) == 201
    one, other, none = queue_of("/", unique), queue_of("/", hostile), queue_of("/", f"{unique}none")
    with following(gateway, "overview", one, other, none) as events:
        kind, first = next(events)
        assert kind == "totals" and first["of"].keys() == {"overview", one, other, none}
        assert first["of"][none] is None and first["of"][one]["messages"] == 0
        publish(gateway, hostile, b"x")
        changed = next(event["of"] for _, event in events if other in event["of"])
        assert changed[other]["messages_ready"] == changed[other]["message_stats"]["publish"] == 1
        assert one not in changed and none not in changed
        assert changed.get("overview", first["of"]["overview"])["message_stats"].keys() >= {"publish", "ack"}
        assert api.status("DELETE", f"queues/%2F/{quote(hostile, safe='')}") == 204
        assert next(event["of"] for _, event in events if other in event["of"])[other] is None
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


def test_a_query_that_makes_no_sense_is_refused(gateway: Gateway) -> None:
    many = ",".join(queue_of("/", f"q{number}") for number in range(201))
    for of in ("", "overview,", "queue:q", "queue:/", "queue:%2F/a/b", "exchange:%2F/x", many):
        assert refused(gateway, of) == (400, "bad_field"), of[:50]
    for each_ms in ("0", "249", "60001", "-1", "1e3", ""):
        assert refused(gateway, "overview", each_ms=each_ms) == (400, "bad_field"), each_ms


def test_rights_are_those_of_now(gateway: Gateway, api: Api, unique: str) -> None:
    assert api.status("PUT", f"vhosts/{unique}") == 201
    assert api.status("PUT", f"queues/{unique}/q", {}) == 201
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": ""}) == 201
    base, auth = f"http://127.0.0.1:{gateway.ports['management']}/v1/live?of=overview", (unique, "p")
    assert httpx.get(base, timeout=LIMIT_S).status_code == 401
    assert httpx.get(base, auth=auth, timeout=LIMIT_S).status_code == 403
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "management"}) == 204
    rights = dict.fromkeys(("configure", "write", "read"), "")
    assert api.status("PUT", f"permissions/{unique}/{unique}", rights) == 201
    own, others = queue_of(unique, "q"), queue_of("/", "q")
    with following(gateway, own, others, auth=auth) as events:
        first = next(events)[1]["of"]
        assert first[own] is not None and first[others] is None
        assert api.status("DELETE", f"permissions/{unique}/{unique}") == 204
        assert next(event["of"] for _, event in events if event["of"]) == {own: None}
        assert api.status("DELETE", f"users/{unique}") == 204
        assert "login has ended" in next(event for kind, event in events if kind == "end")["reason"]
        assert next(events, None) is None
    assert api.status("DELETE", f"vhosts/{unique}") == 204


def test_a_page_of_another_origin_follows_nothing(gateway: Gateway) -> None:
    base = f"http://127.0.0.1:{gateway.ports['management']}/v1/live?of=overview"
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "http://elsewhere.example"}):
        answer = httpx.get(base, headers=headers, auth=("guest", "guest"), timeout=LIMIT_S)
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")


def test_there_are_not_too_many(gateway: Gateway, api: Api, unique: str) -> None:
    """Of one user; another one still may."""
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "monitoring"}) == 201
    base, asked = f"http://127.0.0.1:{gateway.ports['management']}/v1/live", {"of": "overview"}
    limits = httpx.Limits(max_connections=60)
    with httpx.Client(auth=(unique, "p"), timeout=LIMIT_S, limits=limits) as http:
        opened = [http.send(http.build_request("GET", base, params=asked), stream=True) for _ in range(51)]
        assert [one.status_code for one in opened] == [200] * 50 + [503]
        with following(gateway, "overview") as events:
            next(events)
        for one in opened:
            one.close()
    assert api.status("DELETE", f"users/{unique}") == 204


def test_a_queue_is_plotted_live(gateway: Gateway, browser: Browser, api: Api, unique: str) -> None:
    name = HOSTILE + unique
    encoded = quote(name, safe="")
    assert api.status("PUT", f"queues/%2F/{encoded}", {}) == 201
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    with watched_page(browser, base) as page:
        sign_in(page, at=f"#/queues/%2F/{encoded}")
        with page.expect_request(lambda request: "/v1/live?" in request.url):
            page.get_by_label("Range").select_option(label="Live, each second")
        publish(gateway, name, b"x", b"y", b"z")
        plot = page.locator("figure", has_text="Messages that wait")
        plot.get_by_text("As a table").click()
        expect(plot.get_by_role("row").nth(3)).to_contain_text("3")
        expect(page.locator(".cards")).to_contain_text("3 since the start")
        assert obstacles(page) == []
        # The stream ends with the page that shows it.
        with page.expect_event("requestfailed", lambda request: "/v1/live?" in request.url):
            page.get_by_label("Range").select_option(label="10 minutes")
        page.goto("/#/overview?range=0")
        figure = page.locator("figure", has_text="Messages per second")
        figure.get_by_text("As a table").click()
        expect(figure.get_by_role("row").nth(3)).to_be_visible()
        leave(page)
    assert api.status("DELETE", f"queues/%2F/{encoded}") == 204


def test_a_session_that_ends_ends_the_stream(gateway: Gateway, page: Page) -> None:
    sign_in(page, at="#/overview?range=0")
    page.get_by_text("As a table").first.click()
    expect(page.locator("figure").first.get_by_role("row").nth(2)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    leave(page)


def test_a_stream_of_two_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Worker 0 has the totals of all, and a queue of another one."""
    from tests.support.management import SETTINGS

    settings = {**SETTINGS, "server.workers": "2"}
    with Gateway(tmp_path_factory.mktemp("live"), settings=settings) as running, closing(Api(running)) as api:
        names = [f"v{number}" for number in range(4)]
        for name in names:
            assert api.status("PUT", f"vhosts/{name}") == 201
            assert api.status("PUT", f"queues/{name}/q", {"durable": True}) == 201
            body = {"routing_key": "q", "payload": "x", "payload_encoding": "string", "properties": {}}
            assert api.status("POST", f"exchanges/{name}/amq.default/publish", body) == 200
        wanted = [queue_of(name, "q") for name in names]
        with following(running, "overview", *wanted) as events:
            seen: dict[str, Any] = {}
            for _, event in events:
                seen |= event["of"]
                if all(seen[name] and seen[name]["messages"] == 1 for name in wanted):
                    break
            assert seen["overview"]["messages"] == 4
