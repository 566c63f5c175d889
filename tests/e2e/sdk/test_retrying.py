"""Retry topics and pauses of the SDK, against a gateway in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import pika
import pytest

import penstock
import penstock.sync
from penstock.sdk.errors import StaleDelivery
from penstock.testing import Gateway

WAIT_S = 60.0
SOON = (0.01, 0.04)


async def next_of(consumer: Any) -> penstock.Message:
    found: penstock.Message | None = await consumer.receive(WAIT_S)
    assert found is not None, "nothing came"
    return found


async def backlog(client: penstock.Client, topic: str) -> int:
    described = (await client.admin.describe(topic))["subscriptions"]["s"]
    return int(described["backlog"] + described["unacked"])


async def test_a_failure_comes_again_counted_and_holds_up_nobody(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        first = await producer.send("bad", key="k", headers={"h": 1}, content_type="text/plain")
        await producer.send("good")
    async with client.retrying("t", "s", penstock.Retry(SOON, max=2), start="earliest") as consumer:
        with pytest.raises(ZeroDivisionError):
            async with (await next_of(consumer)).process() as message:
                assert message.body == b"bad"
                1 / 0  # noqa: B018
        seen = [await next_of(consumer), await next_of(consumer)]
        by_body = {message.body: message for message in seen}
        again = by_body[b"bad"]
        assert set(by_body) == {b"good", b"bad"}
        assert (again.routing_key, again.key, again.properties["content_type"]) == (
            "t-s-RETRY",
            "k",
            "text/plain",
        )
        assert {
            name: again.headers[name] for name in ("h", "x-retries", "x-first-topic", "x-first-position")
        } == {
            "h": 1,
            "x-retries": 1,
            "x-first-topic": "t",
            "x-first-position": first.position,
        }
        await consumer.ack(seen, durable=True)
    assert (await backlog(client, "t"), await backlog(client, "t-s-RETRY")) == (0, 0)


async def test_after_so_many_tries_it_goes_to_the_dead_letter_topic(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        await producer.send("never")
    await client.admin.create_topic("t-s-DLQ")
    async with (
        client.reader("t-s-DLQ", start="earliest") as dead,
        client.retrying("t", "s", penstock.Retry(SOON, max=3), start="earliest") as consumer,
    ):
        tries = []
        for _ in range(4):
            message = await next_of(consumer)
            tries.append(message.headers.get("x-retries", 0))
            await consumer.retry_later(message)
        assert tries == [0, 1, 2, 3]
        buried = await next_of(dead)
        assert (buried.body, buried.headers["x-retries"], buried.routing_key) == (b"never", 3, "t-s-DLQ")
        assert await consumer.receive(0.2) is None
    assert (await backlog(client, "t"), await backlog(client, "t-s-RETRY")) == (0, 0)


async def test_a_message_that_is_not_ours_any_more_is_not_put_off(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        await producer.send("a")
    async with client.retrying("t", "s", start="earliest") as consumer:
        message = await next_of(consumer)
        await client.admin.seek("t", "s", "earliest")
        assert (await next_of(consumer)).body == b"a"
        with pytest.raises(StaleDelivery):
            await consumer.retry_later(message)


async def test_a_wait_that_is_told_and_the_waits_that_double() -> None:
    retry = penstock.Retry((1, 10), max=5)
    assert [retry.delay_of(n) for n in (0, 1, 2, 3, 4, 1000)] == [1, 2, 4, 8, 10, 10]


async def test_closing_ends_the_loop(client: penstock.Client) -> None:
    consumer = client.retrying("t2", "s", create=True)
    await consumer.open()

    async def run() -> list[bytes]:
        return [message.body async for message in consumer]

    running = asyncio.create_task(run())
    async with client.producer("t2") as producer:
        await producer.send("a")
    await consumer.close()
    assert await asyncio.wait_for(running, WAIT_S) in ([], [b"a"])


def test_the_sync_face_has_it_too(gateway: Gateway) -> None:
    with penstock.sync.connect(gateway.url) as client:
        with client.producer("t") as producer:
            producer.send("bad")
        with client.retrying("t", "s", penstock.Retry(SOON), start="earliest") as consumer:
            message = consumer.receive(WAIT_S)
            assert message is not None
            with pytest.raises(ZeroDivisionError), consumer.process(message):
                1 / 0  # noqa: B018
            for again in consumer:
                assert again.headers["x-retries"] == 1
                with consumer.process(again):
                    break


async def test_a_paused_consumer_and_a_paused_subscription_get_nothing(client: penstock.Client) -> None:
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s") as first,
        client.subscribe("t", "s") as second,
    ):
        await first.pause()
        await producer.send_many([b"%d" % i for i in range(10)])
        got = [await next_of(second) for _ in range(10)]
        await second.ack(got, durable=True)
        await client.admin.pause("t", "s")
        await first.go_on()
        await producer.send("later")
        described = (await client.admin.describe("t"))["subscriptions"]["s"]
        assert (described["paused"], described["backlog"], first.waiting) == (True, 1, 0)
        await second.pause()
        await client.admin.resume("t", "s")
        assert (await next_of(first)).body == b"later"


async def test_headers_of_amqp_only_do_not_block_a_retry(client: penstock.Client, gateway: Gateway) -> None:
    """Headers of the gateway's own and direct replies come with AMQP's messages, and no native client may
    send them: the retry topic had refused such a message for ever."""
    await client.admin.create_topic("t")

    def publish() -> None:
        with pika.BlockingConnection(pika.URLParameters(gateway.amqp_url)) as connection:
            channel = connection.channel()
            channel.basic_consume("amq.rabbitmq.reply-to", lambda *_: None, auto_ack=True)
            said = pika.BasicProperties(headers={"CC": ["none"], "h": 1}, reply_to="amq.rabbitmq.reply-to")
            channel.basic_publish("", "t", b"x", said)
            channel.queue_declare("t", passive=True)  # it has come when this is answered

    await asyncio.to_thread(publish)
    async with client.retrying("t", "s", penstock.Retry(SOON, max=2), start="earliest") as consumer:
        message = await next_of(consumer)
        assert "CC" in message.headers and message.properties["reply_to"].startswith("amq.rabbitmq.reply-to")
        with pytest.raises(ZeroDivisionError):
            async with message.process():
                1 / 0  # noqa: B018
        again = await next_of(consumer)
        assert (again.body, again.headers["h"], again.headers["x-retries"]) == (b"x", 1, 1)
        await consumer.ack(again)


async def test_a_message_that_the_retry_topic_refuses_is_given_back_unchanged(
    client: penstock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    async with client.producer("t") as producer:
        await producer.send("x")
    async with client.retrying("t", "s", penstock.Retry(SOON), start="earliest") as consumer:
        await client.admin.delete_topic("t-s-RETRY")
        with pytest.raises(ZeroDivisionError):
            async with (await next_of(consumer)).process():
                1 / 0  # noqa: B018
        assert "could not be put off; it is given back as it is: there is no topic" in caplog.text
        (topic, _) = consumer._consumers
        again = await topic.receive(WAIT_S)
        assert again is not None and (again.body, again.redelivered) == (b"x", True)


async def test_a_permanent_failure_is_rejected_to_the_dead_letter_topic(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        await producer.send_many([b"no order", b"5", b"nor this"])
    async with client.retrying("t", "s", penstock.Retry(SOON), schema=int, start="earliest") as consumer:
        kept: list[int] = []
        for _ in range(3):
            message = await next_of(consumer)
            try:
                kept.append(message.value)
            except penstock.BadBody:
                await consumer.reject(message)
                with pytest.raises(StaleDelivery):
                    await consumer.reject(message)
            else:
                await consumer.ack(message, durable=True)
        assert kept == [5]
    assert (await backlog(client, "t"), await backlog(client, "t-s-RETRY")) == (0, 0)
    async with client.reader("t-s-DLQ", start="earliest") as reader:
        dead = [await next_of(reader), await next_of(reader)]
    assert [message.body for message in dead] == [b"no order", b"nor this"]
    assert [message.headers["x-retries"] for message in dead] == [0, 0]
    assert dead[0].headers["x-first-topic"] == "t"
