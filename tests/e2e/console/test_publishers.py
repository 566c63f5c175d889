"""The pages of what publishers have under way: half messages, transactions, numbered producers."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from urllib.parse import quote

import httpx
import pika
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.console import HOSTILE, leave, sign_in
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def data_plane(gateway: Gateway, vhost: str, user: str = "guest", password: str = "guest") -> httpx.Client:
    base = f"http://127.0.0.1:{gateway.ports['management']}/v1/vhosts/{vhost}/"
    return httpx.Client(base_url=base, auth=(user, password), timeout=LIMIT_S)


def made(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json()


@pytest.fixture
def vhost(api: Api, unique: str) -> str:
    assert api.status("PUT", f"vhosts/{unique}") == 201
    assert api.status("PUT", f"queues/{unique}/q", {"durable": True}) == 201
    return unique


def half(http: httpx.Client, name: str, **more: str) -> None:
    made(http.post("half", json={"queue": "q", "message": {"value": "x" * 2048}, "name": name, **more}))


def test_a_half_message_is_committed_and_one_rolled_back(
    gateway: Gateway, browser: Browser, api: Api, vhost: str
) -> None:
    with data_plane(gateway, vhost) as http:
        half(http, HOSTILE, ask="https://example.org/orders?key=secret")
        half(http, "other")
    assert [one["asks_at"] for one in api.get(f"half/{vhost}")] == ["https://example.org", None]
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    with watched_page(browser, base, scheme="dark") as page:
        sign_in(page, at=f"#/publishers?vhost={vhost}")
        rows = page.get_by_role("region", name="Half messages").get_by_role("row")
        expect(rows).to_have_count(3)
        row = rows.filter(has_text=HOSTILE)
        expect(row).to_contain_text("https://example.org")
        expect(row).not_to_contain_text("secret")
        assert page.locator("main img, main script").count() == 0
        assert obstacles(page) == []
        row.get_by_role("button", name="Commit").click()
        page.get_by_role("dialog").get_by_role("button", name="Commit").click()
        expect(rows).to_have_count(2)
        assert api.get(f"queues/{vhost}/q")["messages"] == 1
        rows.nth(1).get_by_role("button", name="Roll back").focus()
        page.keyboard.press("Enter")  # by keyboard alone
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Enter")
        expect(page.get_by_text("0 of 0")).to_be_visible()
        assert api.get(f"queues/{vhost}/q")["messages"] == 1 and api.get(f"half/{vhost}") == []
        leave(page)
    assert api.status("DELETE", f"vhosts/{vhost}") == 204


def test_open_transactions_and_producers_of_all_protocols(
    gateway: Gateway, page: Page, api: Api, vhost: str
) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, vhost)
    with data_plane(gateway, vhost) as http, closing(pika.BlockingConnection(parameters)) as connection:
        id = made(http.post("transactions", json={"timeout_ms": 900_000}))["id"]
        made(http.post("queues/q/messages", params={"txn": id}, json={"messages": [{"value": "x"}] * 3}))
        channel = connection.channel()
        channel.tx_select()
        channel.basic_publish("", "q", b"x")
        numbered = connection.channel()
        numbered.confirm_delivery()
        headers = {"x-penstock-producer": HOSTILE, "x-penstock-sequence": 4711}
        numbered.basic_publish("", "q", b"x", pika.BasicProperties(headers=headers))
        made(http.post("producers", json={"name": "till"}))
        first, second = sorted(api.get(f"transactions/{vhost}"), key=lambda one: one["protocol"])
        assert (first["protocol"], first["messages"], first["may_end"]) == ("amqp", 1, False)
        assert (second["name"], second["messages"], second["bytes"]) == (id, 3, 3)
        assert 0 < second["left_ms"] <= 900_000 and second["age_ms"] >= 0 and second["may_end"]
        producers = {one["name"]: one for one in api.get(f"producers/{vhost}")}
        assert producers[HOSTILE]["last_sequence"] == 4711 and producers[HOSTILE]["protocol"] == "amqp"
        assert producers["till"] | {"last_at": 0} == {
            "vhost": vhost, "name": "till", "user": "guest", "protocol": "http", "epoch": 1,
            "last_sequence": None, "last_at": 0, "last_id": None,
        }  # fmt: skip
        sign_in(page, at=f"#/publishers/transactions?vhost={vhost}")
        rows = page.get_by_role("region", name="Transactions").get_by_role("row")
        expect(rows).to_have_count(3)
        expect(rows.filter(has_text="amqp").get_by_role("button")).to_have_count(0)
        assert obstacles(page) == []
        rows.filter(has_text=id).get_by_role("button", name="Roll back").click()
        page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
        expect(rows).to_have_count(2)
        assert http.get(f"transactions/{id}").status_code == 410
        page.get_by_role("link", name="Producers").click()
        rows = page.get_by_role("region", name="Producers").get_by_role("row")
        expect(rows).to_have_count(3)
        page.get_by_label("Filter by name").fill("onerror")
        expect(rows).to_have_count(2)
        expect(rows.nth(1)).to_contain_text(HOSTILE)
        expect(rows.nth(1)).to_contain_text("4,711")
        assert page.locator("main img, main script").count() == 0
        assert obstacles(page) == []
        rows.nth(1).get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("0:")
        leave(page)
    assert api.status("DELETE", f"vhosts/{vhost}") == 204


def test_a_user_without_a_tag_for_it_sees_their_own(gateway: Gateway, api: Api, vhost: str) -> None:
    all_rights = dict.fromkeys(("configure", "write", "read"), ".*")
    for name, tag in (("own", "management"), ("all", "monitoring")):
        assert api.status("PUT", f"users/{vhost}{name}", {"password": "p", "tags": tag}) == 201
        assert api.status("PUT", f"permissions/{vhost}/{vhost}{name}", all_rights) == 201
    for user, password in (("guest", "guest"), (f"{vhost}own", "p")):
        with data_plane(gateway, vhost, user, password) as http:
            half(http, "n")
            made(http.post("transactions", json={}))
            made(http.post("producers", json={"name": "p"}))
    for name, users in (("own", [f"{vhost}own"]), ("all", [f"{vhost}own", "guest"])):
        with closing(Api(gateway, f"{vhost}{name}", "p")) as theirs:
            for kind, own in (("half", "may_decide"), ("transactions", "may_end"), ("producers", "")):
                found = theirs.get(f"{kind}/{vhost}")
                assert sorted(one["user"] for one in found) == sorted(users), (name, kind)
                if own:
                    assert [one["user"] for one in found if one[own]] == users[:1] * (name == "own")
            assert theirs.status("GET", f"half/{quote('none', safe='')}") in (401, 404)
    assert api.status("PUT", f"permissions/{vhost}/{vhost}own", {**all_rights, "read": ""}) == 204
    assert api.status("DELETE", f"permissions/{vhost}/{vhost}own") == 204
    with closing(Api(gateway, f"{vhost}own", "p")) as theirs:
        assert theirs.status("GET", f"half/{vhost}") == 401
    for name in ("own", "all"):
        assert api.status("DELETE", f"users/{vhost}{name}") == 204
    assert api.status("DELETE", f"vhosts/{vhost}") == 204
