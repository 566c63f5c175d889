"""Delayed messages by hour, and one sent now; topics level by level with rates; a webhook at work."""

from __future__ import annotations

import re
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.mqtt.mqtt_clients import connected
from tests.support.brokers import Gateway
from tests.support.browser import watched_page
from tests.support.console import leave, sign_in
from tests.support.data_plane import until
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")

HOUR_MS = 3_600_000
NONE = re.compile("^There are none")
"""Or none among those looked at, where other virtual hosts have some."""


def test_delayed_messages_by_hour_and_one_is_sent(page: Page, api: Api, unique: str) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    base = f"http://127.0.0.1:{api.port}/v1/vhosts/%2F"
    login = ("guest", "guest")
    # Other tests of this gateway may have left some.
    for left in httpx.get(f"{base}/delayed?max=500", auth=login, timeout=LIMIT_S).json()["messages"]:
        assert httpx.delete(f"{base}/delayed/{left['id']}", auth=login, timeout=LIMIT_S).status_code == 204
    for hours in (20, 20, 30):
        message = {"value": "later", "delay_ms": hours * HOUR_MS}
        sent = httpx.post(f"{base}/queues/{unique}/messages", json=message, auth=login, timeout=LIMIT_S)
        assert sent.status_code == 200
    sign_in(page, at="#/delayed")
    hours_ = page.get_by_role("region", name="Due by hour")
    expect(hours_.get_by_role("listitem")).to_have_count(2)
    expect(hours_.get_by_role("listitem").first).to_contain_text("2 messages")
    hours_.get_by_role("link").nth(1).click()
    expect(page.get_by_role("heading", name="Messages from there on")).to_be_visible()
    rows = page.get_by_role("region", name="Delayed messages").get_by_role("row")
    expect(rows).to_have_count(2)
    rows.nth(1).get_by_role("button", name="Send now").click()
    page.get_by_role("dialog").get_by_role("button", name="Send now").click()
    until(lambda: api.get(f"queues/%2F/{unique}")["messages"] == 1)
    expect(page.get_by_text(NONE)).to_be_visible()
    page.goto("/#/delayed")
    expect(rows).to_have_count(3)
    rows.nth(1).get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(rows).to_have_count(2)
    rows.nth(1).get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text(NONE)).to_be_visible()
    leave(page)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


def test_the_calendar_counts_all_when_there_are_too_many_to_read(page: Page) -> None:
    """The page gets counts, and no list, of as many as there are."""
    at = 1_893_456_000_000
    few = {"hours": [{"at": at, "messages": 5_000}], "cursor": f"{at}-1"}
    all_ = {"hours": [{"at": at, "messages": 70_000}, {"at": at + HOUR_MS, "messages": 8_000}], "more": False}
    page.route("**/v1/vhosts/*/delayed-hours", lambda route: route.fulfill(json=few))
    page.route("**/api/delayed-hours", lambda route: route.fulfill(json=all_))
    sign_in(page, at="#/delayed")
    expect(page.get_by_role("heading", name="Due by hour, of all virtual hosts")).to_be_visible()
    hours = page.get_by_role("region", name="Due by hour").get_by_role("listitem")
    expect(hours).to_have_count(2)
    expect(hours.first).to_contain_text("70,000 messages")
    expect(page.get_by_text("Only the first")).to_have_count(0)
    page.unroute_all()
    leave(page)


def test_topics_and_their_rates(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    with connected(gateway.mqtt_port, version=5) as client:
        for topic in ("oslo/t", "oslo/w", "bergen.x/t"):
            client.paho.publish(f"{unique}/{topic}", b"21.4", 1, retain=True).wait_for_publish(60)
        sign_in(page, at="#/topics")
        page.get_by_role("link", name=unique).click()
        rows = page.get_by_role("region", name="Topics", exact=True).get_by_role("row")
        expect(rows).to_have_count(3)
        expect(rows.filter(has_text="oslo")).to_contain_text("2")
        page.get_by_role("button", name="Measure rates").click()
        rate = rows.filter(has_text="bergen.x").get_by_role("cell").nth(2)
        expect(rate).to_have_text("0")

        def moved() -> bool:
            for _ in range(10):
                client.paho.publish(f"{unique}/bergen.x/t", b"1", 1)
                client.paho.publish(f"{unique}/new/t", b"1", 1)
            return rate.inner_text() not in ("0", "")

        until(moved)
        # A level without a retained message is seen while it is measured.
        expect(rows.filter(has_text="new")).to_have_count(1)
        page.get_by_role("link", name="bergen.x").click()
        expect(rows.filter(has_text="21.4")).to_have_count(1)
        page.get_by_role("link", name="All topics").click()
        expect(page.get_by_role("link", name=unique)).to_be_visible()
        leave(page)
        for topic in ("oslo/t", "oslo/w", "bergen.x/t"):
            client.paho.publish(f"{unique}/{topic}", b"", 1, retain=True).wait_for_publish(60)


class _Receiver(BaseHTTPRequestHandler):
    status = 200

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(type(self).status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_a_webhook_at_work(browser: Browser, tmp_path: Path, unique: str) -> None:
    """Its success and times; dead letters go again, the past is replayed, and the secret is another one."""
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    settings = {**SETTINGS, "webhooks.allow_networks": "127.0.0.0/8", "webhooks.allow_http": "true"}
    with Gateway(tmp_path, settings=settings) as gateway, closing(Api(gateway)) as api:
        base = f"http://127.0.0.1:{gateway.ports['management']}"
        http = httpx.Client(base_url=f"{base}/v1/vhosts/%2F/", auth=("guest", "guest"), timeout=60)
        assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
        url = f"http://127.0.0.1:{receiver.server_port}/"
        hook = {"source": {"queue": unique}, "url": url, "verify": "none", "retry": {"refused_attempts": 1}}
        assert http.put("webhooks/w", json=hook).status_code == 201

        def state() -> dict[str, int]:
            found: dict[str, int] = http.get("webhooks/w").json()
            return found

        for _ in range(3):
            http.post(f"queues/{unique}/messages", json={"value": "x"})
        until(lambda: state()["delivered"] == 3)
        _Receiver.status = 400
        http.post(f"queues/{unique}/messages", json={"value": "refused"})
        until(lambda: state()["dead"] == 1)
        _Receiver.status = 200
        with watched_page(browser, base) as page:
            sign_in(page, at="#/webhooks")
            row = page.get_by_role("region", name="Webhooks").get_by_role("row").nth(1)
            expect(row).to_contain_text("75 %")
            expect(row).to_contain_text(re.compile(r"[\d.]+ ms"))
            row.get_by_role("link", name="w").click()
            expect(page.get_by_text("of 4 requests since the start")).to_be_visible()
            for name, fields in (("Redrive", {}), ("Replay", {"From": "-1h"})):
                page.get_by_role("button", name=name).click()
                dialog = page.get_by_role("dialog")
                for label, value in fields.items():
                    dialog.get_by_label(label).fill(value)
                dialog.get_by_role("button", name=name).click()
                expect(dialog).to_have_count(0)
                if name == "Redrive":
                    until(lambda: state()["dead"] == 0)
                    assert state()["delivered"] == 4
            until(lambda: state()["delivered"] >= 8)
            page.get_by_role("button", name="Rotate the secret").click()
            page.get_by_role("dialog").get_by_role("button", name="Rotate the secret").click()
            secret = page.get_by_label("Secret", exact=True).inner_text()
            assert secret.startswith("whsec_") and state()["secrets"] == 2
            page.get_by_role("button", name="Hide").click()
            assert secret not in page.content()
            leave(page)
        http.close()
    receiver.shutdown()
    receiver.server_close()
