"""The gateway of `penstock.testing` with its clock moved: nothing here waits for time to pass."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pika
import pytest

import penstock
from penstock.testing import Gateway
from tests.e2e.mqtt.mqtt_clients import connected

WAIT_S = 60.0
HOUR_S = 3600.0


@pytest.fixture
async def client(penstock_gateway: Gateway) -> AsyncIterator[penstock.Client]:
    async with penstock.connect(
        penstock_gateway.url, clock=penstock_gateway.now, connect_timeout_s=WAIT_S
    ) as client:
        yield client


async def received(consumer: penstock.Consumer[Any]) -> penstock.Message[Any]:
    message = await consumer.receive(WAIT_S)
    assert message is not None
    return message


async def until(what: Callable[[], Any]) -> None:
    """Wait until the gateway has finished its background work."""
    async with asyncio.timeout(WAIT_S):
        while not await what():
            await asyncio.sleep(0.01)


async def count(client: penstock.Client, topic: str = "t") -> int:
    return int((await client.admin.describe(topic))["messages"])


async def test_a_delayed_message_comes_when_its_time_has(
    client: penstock.Client, penstock_gateway: Gateway
) -> None:
    async with client.producer("t") as producer, client.reader("t", start="earliest") as reader:
        await producer.send("second", deliver_after_s=2 * HOUR_S)
        await producer.send("first", deliver_at=penstock_gateway.now() + HOUR_S)
        cancelled = await producer.send("never", deliver_after_s=HOUR_S)
        assert await client.cancel("t", cancelled)
        penstock_gateway.advance(HOUR_S / 2)
        assert await count(client) == 0
        penstock_gateway.advance(HOUR_S / 2)
        assert (await received(reader)).body == b"first"
        # It counts from the moved clock.
        await producer.send("third", deliver_after_s=2 * HOUR_S)
        penstock_gateway.advance(HOUR_S)
        assert (await received(reader)).body == b"second"
        assert await count(client) == 2
        penstock_gateway.advance(HOUR_S)
        message = await received(reader)
        assert message.body == b"third" and message.timestamp_ms / 1000 <= penstock_gateway.now()


async def test_messages_not_acknowledged_in_time_come_again(
    client: penstock.Client, penstock_gateway: Gateway
) -> None:
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest", ack_timeout_s=600) as consumer,
    ):
        await producer.send("x")
        first = await received(consumer)
        penstock_gateway.advance(500)
        await first.extend()
        penstock_gateway.advance(500)
        described = (await client.admin.describe("t"))["subscriptions"]["s"]
        assert described["unacked"] == 1
        penstock_gateway.advance(100)
        again = await received(consumer)
        assert (again.body, again.redelivered) == (b"x", True)
        await consumer.ack(again, durable=True)


async def test_backoff_grows_without_being_waited_for(
    client: penstock.Client, penstock_gateway: Gateway
) -> None:
    options = {"nack_backoff_s": (60.0, 600.0), "max_deliveries": 3, "dead_letter": "dead"}
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest", **options) as consumer,  # type: ignore[arg-type]
    ):
        await producer.send("x")
        for wait_s in (60, 120):
            await consumer.nack(await received(consumer))
            await client.admin.lag("t", "s")  # it is behind the nack on the same connection
            penstock_gateway.advance(wait_s * 0.4)
            assert consumer.waiting == 0
            penstock_gateway.advance(wait_s * 0.6)
        await consumer.nack(await received(consumer), delay_s=0)
        async with client.reader("dead", start="earliest") as reader:
            assert (await received(reader)).body == b"x"


async def test_retries_come_by_the_gateway_s_clock(
    client: penstock.Client, penstock_gateway: Gateway
) -> None:
    retry = penstock.Retry(delay_s=(HOUR_S, 4 * HOUR_S), max=2, dead_letter="dead")
    async with (
        client.producer("t") as producer,
        client.retrying("t", "s", retry, start="earliest") as consumer,
    ):
        await producer.send("x")
        for wait_s in (HOUR_S, 2 * HOUR_S, 0):
            message = await consumer.receive(WAIT_S)
            assert message is not None
            await consumer.retry_later(message)
            penstock_gateway.advance(wait_s)
        async with client.reader("dead", start="earliest") as reader:
            assert (await received(reader)).body == b"x"


async def test_messages_that_are_too_old_are_gone(client: penstock.Client, penstock_gateway: Gateway) -> None:
    async with client.producer("t") as producer, client.subscribe("t", "s", start="earliest") as consumer:
        await producer.send("short", ttl_s=600)
        await producer.send("long", ttl_s=2 * HOUR_S)
        await consumer.close()
        penstock_gateway.advance(HOUR_S)
        async with client.subscribe("t", "s") as again:
            assert (await received(again)).body == b"long"


async def test_retention_drops_what_is_too_old() -> None:
    """By whole segments, as ever: so there are some."""
    with Gateway(settings={"log.segment_bytes": "1MiB"}) as gateway:
        async with penstock.connect(gateway.url, connect_timeout_s=WAIT_S) as client:
            await client.admin.create_topic("t", max_age="1h")
            async with client.producer("t") as producer:
                await producer.send_many([bytes(10_000)] * 500)
                gateway.advance(HOUR_S / 2)
                assert await count(client) == 500
                gateway.advance(HOUR_S)
                await producer.send("new")

                async def some_are_gone() -> bool:
                    gateway.advance(1)
                    return await count(client) < 250

                await until(some_are_gone)


async def test_half_messages_are_asked_about(client: penstock.Client, penstock_gateway: Gateway) -> None:
    asked: list[int] = []

    def was_paid(question: penstock.Question) -> bool:
        asked.append(question.checks)
        return True

    group = penstock.Group("shop", was_paid, check_after_s=600)
    async with client.producer("t", group=group) as producer, client.reader("t", start="earliest") as reader:
        await producer.prepare("x")
        penstock_gateway.advance(600)
        assert (await received(reader)).body == b"x"
    assert asked == [1]


def test_an_amqp_queue_s_ttl_leads_to_its_dead_letters(penstock_gateway: Gateway) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(penstock_gateway.amqp_url))
    channel = connection.channel()
    channel.queue_declare("dead")
    arguments = {"x-message-ttl": 600_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("q", arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"x")
    assert channel.basic_get("dead", auto_ack=True)[2] is None
    penstock_gateway.advance(601)
    for _, _, body in channel.consume("dead", auto_ack=True, inactivity_timeout=WAIT_S):
        assert body == b"x"
        break
    connection.close()


def test_an_mqtt_session_expires(penstock_gateway: Gateway) -> None:
    lasting: dict[str, Any] = {"version": 5, "clean": False, "expiry_s": 600}
    with connected(penstock_gateway.mqtt_port, "c", **lasting):
        pass
    penstock_gateway.advance(300)
    with connected(penstock_gateway.mqtt_port, "c", **lasting) as client:
        assert client.session_present
    penstock_gateway.advance(601)
    with connected(penstock_gateway.mqtt_port, "c", **lasting) as client:
        assert not client.session_present


def test_the_clock_goes_on_over_a_restart_and_never_back(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    with pytest.raises(RuntimeError, match="does not run"):
        gateway.advance(1)
    with gateway:
        with pytest.raises(ValueError, match="only goes forward"):
            gateway.advance(-1)
        before = gateway.now()
        gateway.advance(HOUR_S)
        gateway.restart()
        assert gateway.now() >= before + HOUR_S
        with urllib.request.urlopen(f"{gateway.http_url}/openapi.json", timeout=60) as answer:
            assert answer.status == 200
    with pytest.raises(RuntimeError, match="does not run"):
        gateway.advance(1)
