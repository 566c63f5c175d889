"""The newer pages by keyboard alone: Tab, Enter and letters; one page of the browser for all tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pika
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.mqtt.mqtt_clients import connected
from tests.support.brokers import Gateway
from tests.support.browser import watched_page
from tests.support.console import leave, publish, sign_in
from tests.support.data_plane import until
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")

HOUR_MS = 3_600_000
STEPS = 150
"""More than a page has places to stop at."""
STOPS = "one => one === document.activeElement && one.matches(':focus-visible')"


class Keys:
    """A user without a mouse."""

    def __init__(self, page: Page, gateway: Gateway, api: Api, unique: str, folder: Path) -> None:
        self.page, self.gateway, self.api, self.unique, self.folder = page, gateway, api, unique, folder
        self.region = partial(page.get_by_role, "region")
        self.dialog = page.get_by_role("dialog")

    def open(self, name: str) -> None:
        """A page, by its name."""
        self.page.keyboard.press("Control+k")
        expect(self.dialog.get_by_role("combobox")).to_be_focused()
        self.page.keyboard.type(name)
        expect(self.dialog.get_by_role("option").first).to_contain_text(name)
        self.page.keyboard.press("Enter")
        expect(self.dialog).to_have_count(0)
        expect(self.page.locator("nav [aria-current=page]").first).to_have_text(name)
        self.press(self.page.get_by_role("link", name="To the content"))

    def reach(self, place: Locator) -> None:
        """Press Tab until the place has the focus, which can be seen."""
        expect(place).to_be_visible()
        for _ in range(STEPS):
            if place.evaluate(STOPS):
                return
            self.page.keyboard.press("Tab")
        pytest.fail(f"Tab does not lead to {place}")

    def press(self, place: Locator) -> None:
        self.reach(place)
        self.page.keyboard.press("Enter")

    def fill(self, place: Locator, text: str) -> None:
        self.reach(place)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def choose(self, place: Locator, text: str) -> None:
        """Of a list: by its first letters."""
        self.reach(place)
        self.page.keyboard.type(text)

    def button(self, name: str, within: Locator | None = None) -> None:
        self.press((within or self.page).get_by_role("button", name=name, exact=True))

    def confirm(self, name: str) -> None:
        """The button of the dialog, which goes when it is done."""
        self.button(name, self.dialog)
        expect(self.dialog).to_have_count(0)


def limits(keys: Keys) -> None:
    keys.open("Limits")
    keys.button("Limit a virtual host")
    keys.choose(keys.dialog.locator("select[name=limit]"), "max-message-rate")
    keys.fill(keys.dialog.get_by_label("At most"), "900000")
    keys.confirm("Limit a virtual host")
    row = keys.region(name="Limits").get_by_role("row").filter(has_text="max-message-rate")
    keys.button("Change", row)
    keys.fill(keys.dialog.get_by_label("At most"), "800000")
    keys.page.keyboard.press("Enter")
    until(lambda: keys.api.get("vhost-limits/%2F") == [{"vhost": "/", "value": {"max-message-rate": 800000}}])
    expect(keys.dialog).to_have_count(0)
    keys.button("Clear", row)
    keys.confirm("Clear")
    assert keys.api.get("vhost-limits/%2F") == []
    keys.press(keys.page.get_by_role("link", name="Of users"))
    keys.button("Limit a user")
    keys.fill(keys.dialog.get_by_label("User"), "nobody")
    keys.page.keyboard.press("Escape")
    expect(keys.dialog).to_have_count(0)


def tokens(keys: Keys) -> None:
    keys.open("Tokens")
    keys.button("Make a token")
    keys.fill(keys.dialog.get_by_label("Name"), keys.unique)
    keys.confirm("Make a token")
    keys.reach(keys.page.get_by_label("Token", exact=True))
    keys.button("Copy")
    keys.button("Hide")
    row = keys.region(name="Tokens").get_by_role("row").filter(has_text=keys.unique)
    keys.button("Revoke", row)
    keys.confirm("Revoke")
    expect(row).to_have_count(0)


def definitions(keys: Keys) -> None:
    queue = {"vhost": "/", "name": keys.unique, "durable": True, "auto_delete": False, "arguments": {}}
    file = keys.folder / "definitions.json"
    file.write_text(json.dumps({"queues": [queue]}))
    keys.open("Definitions")
    with keys.page.expect_download():
        keys.press(keys.page.get_by_role("link", name="Download definitions"))
    with keys.page.expect_file_chooser() as chooser:
        keys.press(keys.page.get_by_label("File"))
    chooser.value.set_files(file)
    keys.button("Show what would change")
    keys.reach(keys.region(name="Changes"))
    keys.button("Import definitions")
    keys.confirm("Import definitions")
    assert keys.api.status("DELETE", f"queues/%2F/{keys.unique}") == 204


def certificates(keys: Keys) -> None:
    one = {
        "subject": "CN=here", "names": ["here"], "issuer": "CN=authority", "not_before": 0,
        "not_after": 2**42, "sha256": "00" * 32,
    }  # fmt: skip
    chain = {"name": "", "file": "here.pem", "fault": None, "certificates": [one]}
    served = {"fault": None, "chains": [chain], "listeners": [{"protocol": "amqps", "address": "::"}]}
    asked: list[str] = []

    def reloaded(route: object) -> None:
        asked.append("reload")
        route.fulfill(json=served)  # type: ignore[attr-defined]

    keys.page.route("**/api/certificates", lambda route: route.fulfill(json=served))
    keys.page.route("**/api/certificates/reload", reloaded)
    keys.open("Certificates")
    keys.button("Reload")
    keys.confirm("Reload")
    assert asked == ["reload"]
    for name in ("Certificates", "Listeners with TLS"):
        keys.reach(keys.region(name=name, exact=True))
    keys.page.unroute_all()


def feature_flags(keys: Keys) -> None:
    keys.open("Feature flags")
    keys.reach(keys.region(name="Feature flags"))


def topics(keys: Keys) -> None:
    with connected(keys.gateway.mqtt_port, version=5) as client:
        topic = f"{keys.unique}/room/t"
        client.paho.publish(topic, b"21.4", 1, retain=True).wait_for_publish(LIMIT_S)
        keys.open("Topics")
        for level in (keys.unique, "room"):
            keys.press(keys.region(name="Topics", exact=True).get_by_role("link", name=level))
        value = keys.region(name="Topics", exact=True).locator("pre")
        keys.reach(value)
        expect(value).to_have_text("21.4")
        keys.button("Measure rates")
        keys.button("Stop measuring")
        keys.press(keys.page.get_by_role("link", name="All topics"))
        client.paho.publish(topic, b"", 1, retain=True).wait_for_publish(LIMIT_S)


def try_it(keys: Keys) -> None:
    page = keys.page
    assert keys.api.status("PUT", f"queues/%2F/{keys.unique}", {"durable": True}) == 201
    publish(keys.gateway, keys.unique, b"waits")
    keys.open("Try it")
    keys.button("Connect all")
    mqtt, amqp, http = (
        page.get_by_role("region", name=name, exact=True)
        for name in ("MQTT 5 over WebSocket", "AMQP terms over WebSocket", "HTTP requests and events")
    )
    expect(mqtt.get_by_role("status")).to_contain_text("connected as")
    for pane in (amqp, http):
        expect(pane.get_by_role("status")).to_contain_text("follows")
    keys.fill(mqtt.get_by_label("Topic", exact=True), "try/keys")
    keys.fill(mqtt.get_by_label("Payload"), keys.unique)
    keys.choose(mqtt.get_by_label("QoS"), "0")
    keys.button("Publish", mqtt)
    for pane in (mqtt, amqp, http):
        expect(pane.get_by_role("row").filter(has_text=keys.unique)).to_have_count(1)
        keys.reach(pane.get_by_role("button", name="Publish"))
    keys.fill(amqp.get_by_label("Consume a queue instead"), keys.unique)
    keys.button("Consume", amqp)
    keys.button("Acknowledge", amqp)
    until(lambda: keys.api.get(f"queues/%2F/{keys.unique}")["messages"] == 0)
    keys.button("Disconnect all")
    assert keys.api.status("DELETE", f"queues/%2F/{keys.unique}") == 204


def delayed(keys: Keys) -> None:
    assert keys.api.status("PUT", f"queues/%2F/{keys.unique}", {"durable": True}) == 201
    url = f"http://127.0.0.1:{keys.api.port}/v1/vhosts/%2F/queues/{keys.unique}/messages"
    for hours in (20, 30):
        message = {"value": "later", "delay_ms": hours * HOUR_MS}
        sent = httpx.post(url, json=message, auth=("guest", "guest"), timeout=LIMIT_S)
        assert sent.status_code == 200
    keys.open("Delayed")
    keys.press(keys.region(name="Due by hour").get_by_role("link").first)
    rows = keys.region(name="Delayed messages").get_by_role("row").filter(has_text=keys.unique)
    expect(rows).to_have_count(2)
    keys.button("Send now", rows.first)
    keys.confirm("Send now")
    until(lambda: keys.api.get(f"queues/%2F/{keys.unique}")["messages"] == 1)
    expect(rows).to_have_count(1)
    keys.button("Delete", rows.first)
    keys.confirm("Delete")
    assert keys.api.status("DELETE", f"queues/%2F/{keys.unique}") == 204


def findings(keys: Keys) -> None:
    one = {"level": "warning", "what": "disk", "text": "it is nearly full", "remedy": "add some"}
    keys.page.route("**/api/findings*", lambda route: route.fulfill(json=[one]))
    keys.open("Live")  # so that the overview is loaded from here on
    keys.open("Overview")
    keys.press(keys.page.get_by_role("link", name="The gateway has found 1 warning"))
    keys.reach(keys.region(name="Findings"))
    keys.page.unroute_all()


def slow_consumers(keys: Keys) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", keys.gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.queue_declare(keys.unique, exclusive=True)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(keys.unique, lambda *_: None)
        for _ in range(3):
            channel.basic_publish("", keys.unique, b"x")
        connection.process_data_events(0)
        keys.open("Live")
        keys.choose(keys.page.locator("label", has_text="Follow").locator("select"), "slow consumers")
        row = keys.region(name="Slow consumers").get_by_role("row").filter(has_text=keys.unique)
        keys.press(row.get_by_role("link", name=keys.unique))
        expect(keys.page.locator("main h1")).to_contain_text(keys.unique)
        keys.open("Overview")


@pytest.fixture(scope="module")
def desk(gateway: Gateway, browser: Browser) -> Iterator[Page]:
    """One page, in which somebody has signed in."""
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}") as page:
        page.context.grant_permissions(["clipboard-write"])
        sign_in(page)
        yield page
        leave(page)


@pytest.mark.parametrize(
    "task",
    [
        limits, tokens, definitions, certificates, feature_flags, topics, try_it, delayed, findings,
        slow_consumers,
    ],
    ids=lambda task: task.__name__,
)  # fmt: skip
def test_all_of_it_is_done_without_a_mouse(
    task: Callable[[Keys], None], desk: Page, gateway: Gateway, api: Api, unique: str, tmp_path: Path
) -> None:
    task(Keys(desk, gateway, api, unique, tmp_path))
