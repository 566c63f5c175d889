"""The tables under Live: findings about the gateway, and slow consumers as they come and go."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pika
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.console import leave, publish, sign_in
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def test_the_overview_leads_to_the_findings(browser: Browser, tmp_path: Path) -> None:
    settings = {**SETTINGS, "log.fsync": "never"}
    with Gateway(tmp_path, settings=settings) as gateway:
        base = f"http://127.0.0.1:{gateway.ports['management']}"
        with watched_page(browser, base) as page:
            sign_in(page)
            page.get_by_role("link", name="The gateway has found 1 error about itself.").click()
            row = page.get_by_role("region", name="Findings").get_by_role("row").filter(has_text="log.fsync")
            expect(row).to_contain_text("error")
            expect(row).to_contain_text("confirmed messages are lost when the power fails")
            expect(page.get_by_role("button", name="Follow")).to_have_count(0)
            assert obstacles(page) == []
            leave(page)


def test_a_slow_consumer_is_shown_until_it_acknowledges(
    gateway: Gateway, page: Page, api: Api, unique: str
) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {}) == 201
    publish(gateway, unique, b"1", b"2")
    sign_in(page, at="#/live?of=slow")
    expect(page.get_by_text("All is well: no consumer is slow.")).to_be_visible()
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, heartbeat=600)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        tags: list[int] = []
        channel.basic_consume(unique, lambda _, method, *__: tags.append(method.delivery_tag))
        while not tags:
            connection.process_data_events(1)
        row = page.get_by_role("region", name="Slow consumers").get_by_role("row").filter(has_text=unique)
        expect(row).to_contain_text("stuck", timeout=60_000)
        expect(row.get_by_role("link", name=unique)).to_have_attribute("href", f"#/queues/%2F/{unique}")
        assert obstacles(page) == []
        channel.basic_ack(tags[0])
        while len(tags) < 2:
            connection.process_data_events(1)
        channel.basic_ack(tags[1])
        expect(page.get_by_text("All is well: no consumer is slow.")).to_be_visible(timeout=60_000)
    leave(page)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204
