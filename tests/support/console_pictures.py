"""Pictures of the console for its guide: `python -m tests.support.console_pictures`.

A gateway with traffic by AMQP and MQTT is started, and Chromium takes the pictures of docs/how-to/console.md.
Look at each before you keep it.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import paho.mqtt.client as paho
import pika
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Page, expect

from tests.support.brokers import ROOT, Gateway
from tests.support.browser import chromium, watched_page
from tests.support.console import sign_in
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

_FOLDER = ROOT / "docs" / "how-to"
_PLOTTED_S = 60
"""How long the traffic goes on before the overview is taken."""


@contextmanager
def _traffic(gateway: Gateway) -> Iterator[tuple[pika.BlockingConnection, paho.Client]]:
    """A shop by AMQP and a weather station by MQTT."""
    client = paho.Client(CallbackAPIVersion.VERSION2, "station-7", protocol=paho.MQTTv5)
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.subscribe("weather/+/temperature", 1)
    client.loop_start()
    parameters = pika.ConnectionParameters(
        "127.0.0.1", gateway.amqp_port, client_properties={"connection_name": "shop"}
    )
    with closing(pika.BlockingConnection(parameters)) as connection:
        yield connection, client
    client.disconnect()
    client.loop_stop()


def _move(connection: pika.BlockingConnection, client: paho.Client, seconds: float) -> None:
    channel = connection.channel()
    channel.queue_declare("orders", durable=True)
    channel.queue_bind("orders", "amq.topic", "shop.#")
    channel.basic_qos(prefetch_count=50)
    channel.basic_consume("orders", lambda one, how, *_: one.basic_ack(how.delivery_tag))
    ends = time.monotonic() + seconds
    number = 0
    while time.monotonic() < ends:
        for _ in range(40):
            channel.basic_publish("amq.topic", "shop.order", json.dumps({"order": number}))
            number += 1
        client.publish("weather/oslo/temperature", f"{20 + number % 5}", 1, retain=True)
        connection.process_data_events(0.1)


def _picture(page: Page, name: str) -> None:
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=_FOLDER / name)


def _overview(page: Page) -> None:
    page.goto("/#/overview?range=60")
    expect(page.get_by_text("Messages per second")).to_be_visible()
    page.wait_for_load_state("networkidle")
    _picture(page, "console-overview.png")


def _try(page: Page) -> None:
    page.goto("/#/try")
    page.get_by_role("button", name="Connect all").click()
    buttons = page.get_by_role("button", name="Publish")
    for number in range(3):
        rows = page.get_by_role("row")
        before = rows.count()
        buttons.nth(number).click()
        # Each has a head of its own from its first message on.
        expect(rows).to_have_count(6 if number == 0 else before + 3)
    _picture(page, "console-try.png")


def _definitions(page: Page, api: Api, folder: Path) -> None:
    whole = api.get("definitions")
    queue = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    whole["queues"].append({**queue, "name": "invoices"})
    whole["users"][0]["tags"] = ["monitoring"]
    whole["queues"][0]["arguments"] = {"x-max-length": 100_000}
    file = folder / "definitions.json"
    file.write_text(json.dumps(whole))
    page.goto("/#/definitions")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("region", name="Changes")).to_be_visible()
    _picture(page, "console-definitions.png")


def _delayed(page: Page, api: Api) -> None:
    target = (
        f"http://127.0.0.1:{api.port}/v1/vhosts/%2F/exchanges/amq.topic/messages?routing_key=shop.reminder"
    )
    later = [{"value": "x", "delay_ms": 3_600_000 * (number % 9 + number % 2)} for number in range(1, 30)]
    assert (
        httpx.post(target, json={"messages": later}, auth=("guest", "guest"), timeout=LIMIT_S).status_code
        == 200
    )
    page.goto("/#/delayed")
    expect(page.get_by_role("heading", name="Due by hour")).to_be_visible()
    _picture(page, "console-delayed.png")


def main() -> None:
    """Take them all."""
    with tempfile.TemporaryDirectory() as name, Gateway(Path(name), settings=SETTINGS) as gateway:
        with closing(Api(gateway)) as api, _traffic(gateway) as (connection, client), chromium() as browser:
            _move(connection, client, _PLOTTED_S)
            with watched_page(browser, f"http://127.0.0.1:{api.port}") as page:
                page.set_viewport_size({"width": 1280, "height": 860})
                sign_in(page)
                _overview(page)
                _try(page)
                _definitions(page, api, Path(name))
                _delayed(page, api)


if __name__ == "__main__":
    main()
