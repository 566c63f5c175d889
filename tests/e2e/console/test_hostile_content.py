"""Contents besides names are shown as they are: headers, keys, ids, bodies, reasons, log lines."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import quote

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Page, expect

from tests.support.brokers import Gateway
from tests.support.console import HOSTILE, leave, sign_in
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")

NO_UTF8 = b"<img src=x onerror=alert(2)>\xff\xfe"


def shows(page: Page, *texts: str) -> None:
    """The page has these as texts, and made nothing of them."""
    for text in texts:
        expect(page.locator("main").get_by_text(text).first).to_be_visible()
    assert page.locator("main img, main script").count() == 0


def test_a_message_of_hostile_parts(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    """In a queue, in a search, and by itself; the reason of its death and the bytes that are no text, too."""
    dead = f"{HOSTILE}{unique}"
    rules = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True, "arguments": rules}) == 201
    assert api.status("PUT", f"queues/%2F/{quote(dead, safe='')}", {"durable": True}) == 201
    parts = {f"{part}{HOSTILE}" for part in ("id", "correlation", "type", "app", "reply")}
    id_, correlation, type_, app, reply = (
        f"{part}{HOSTILE}" for part in ("id", "correlation", "type", "app", "reply")
    )
    properties = pika.BasicProperties(
        content_type=HOSTILE, message_id=id_, correlation_id=correlation, type=type_, app_id=app,
        reply_to=reply,
        headers={f"header{HOSTILE}": [HOSTILE, {HOSTILE: HOSTILE}], "raw": NO_UTF8},
    )  # fmt: skip
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in (HOSTILE.encode(), NO_UTF8, b"<b>" * (1 << 19)):
            channel.basic_publish("", unique, body, properties)
        channel.basic_nack(channel.basic_get(unique)[0].delivery_tag, requeue=False)
        channel.queue_declare(unique, passive=True)
    sign_in(page, at=f"#/queues/%2F/{unique}")
    page.get_by_role("button", name="Look at messages").click()
    shows(page, f"header{HOSTILE}", "not text", "<b><b><b>")
    page.goto(f"/#/search?queue={quote(dead)}&run=1")
    found = page.get_by_role("region", name="Messages")
    expect(found).to_contain_text(HOSTILE)
    expect(found).to_contain_text(f"header{HOSTILE}")
    shows(page)
    page.get_by_role("region", name="Messages").get_by_role("link").first.click()
    expect(page.get_by_role("region", name="Deaths")).to_be_visible()
    shows(page, *parts)
    leave(page)
    for name in (unique, dead):
        assert api.status("DELETE", f"queues/%2F/{quote(name, safe='')}") == 204


def test_lines_of_the_log_and_reasons(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    """A client's id in the lines of its login and its end, and the reason that somebody gave for that."""
    name, reason = f"{HOSTILE}{unique}", f"because {HOSTILE}"
    sign_in(page, at="#/live?of=log")
    with page.expect_response("**/tail?events=log"):
        page.get_by_role("button", name="Follow").click()
    client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    expect(page.get_by_role("row").filter(has_text=name).first).to_be_visible()
    page.goto("/#/connections")
    page.get_by_role("row").filter(has_text=name).get_by_role("link").click()
    page.get_by_role("button", name="Close connection").click()
    # It is the end of this connection that is looked for, so the page follows first.
    elsewhere = page.context.new_page()
    elsewhere.goto("/#/live?of=log")
    with elsewhere.expect_response("**/tail?events=log", timeout=1000 * LIMIT_S):
        elsewhere.get_by_role("button", name="Follow").click()
    page.get_by_role("dialog").get_by_label("Reason, which the client is told").fill(reason)
    page.get_by_role("dialog").get_by_role("button", name="Close connection").click()
    expect(page.get_by_role("heading", name="Connections")).to_be_visible()
    expect(elsewhere.get_by_role("row").filter(has_text=reason).first).to_be_visible()
    shows(elsewhere, reason)
    client.disconnect()
    client.loop_stop()
