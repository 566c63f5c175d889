"""Consumers of several topics, readers that stop at the end and start again, and how much is out at once."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import pytest

import penstock
import penstock.sync
from penstock.sdk.consuming.consumer import Consumer
from penstock.sdk.consuming.topics import TopicsConsumer
from penstock.testing import Gateway

WAIT_S = 60.0


async def publish(client: penstock.Client, **bodies: list[bytes]) -> None:
    for topic, some in bodies.items():
        async with client.producer(topic) as producer:
            await producer.send_many(some)


async def reconnect(client: penstock.Client) -> None:
    (await client.link()).abort()
    while not client.reconnects:
        await asyncio.sleep(0.001)


async def take(consumer: TopicsConsumer[Any], n: int) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    while len(found) < n:
        some = await consumer.receive_many(n - len(found), WAIT_S)
        assert some, f"{len(found)} of {n} messages came"
        found += [(message.topic, message.body) for message in some]
        await consumer.ack(some, durable=True)
    return found


async def test_topics_that_are_listed_are_consumed_as_one(client: penstock.Client) -> None:
    await publish(client, orders=[b"1", b"2"], returns=[b"3"])
    async with client.subscribe_topics(
        ["orders", "returns", "refunds"], "billing", start="earliest"
    ) as billing:
        assert sorted(await take(billing, 3)) == [("orders", b"1"), ("orders", b"2"), ("returns", b"3")]
        await publish(client, refunds=[b"4"])
        message = await billing.receive(WAIT_S)
        assert message is not None and (message.topic, message.body) == ("refunds", b"4")
        await billing.nack(message, delay_s=0)
        async for message in billing:
            async with message.process():
                assert message.redelivered
            break
        await billing.seek("earliest")
        assert len(await take(billing, 4)) == 4
    lags = [await client.admin.lag(topic, "billing") for topic in ("orders", "returns", "refunds")]
    assert lags == [0, 0, 0], "each topic has a subscription of its own"


async def test_no_topic_keeps_the_others_waiting(client: penstock.Client) -> None:
    await publish(client, much=[b"x"] * 1000, little=[b"y"])
    async with client.subscribe_topics(["much", "little"], "s", start="earliest") as both:
        while sum(consumer.waiting for consumer in both._consumers) < 400 or not both._consumers[1].waiting:
            await asyncio.sleep(0.001)
        assert {(await take(both, 1))[0][0] for _ in range(2)} == {"much", "little"}


async def test_a_topic_that_is_found_while_messages_are_received_is_consumed(
    client: penstock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client.subscribe_topics(re.compile(r"\w+\.orders"), "s", look_s=0.001) as orders:
        opened = Consumer.open

        async def opened_in_a_receive(self: Consumer[Any]) -> Consumer[Any]:
            found = await opened(self)
            assert await orders.receive_many(1, 0) == []
            return found

        monkeypatch.setattr(Consumer, "open", opened_in_a_receive)
        await publish(client, **{"eu.orders": [b"1"]})
        assert await take(orders, 1) == [("eu.orders", b"1")]


async def test_a_pattern_follows_topics_that_come_and_go(client: penstock.Client) -> None:
    await publish(client, **{"eu.orders": [b"1"], "us.orders": [b"2"], "us.orders.dead": [b"no"]})
    pattern = re.compile(r"\w+\.orders")
    async with client.subscribe_topics(pattern, "s", start="earliest", look_s=0.02) as orders:
        assert sorted(await take(orders, 2)) == [("eu.orders", b"1"), ("us.orders", b"2")]
        await publish(client, **{"cn.orders": [b"3", b"4"]})
        assert await take(orders, 2) == [("cn.orders", b"3"), ("cn.orders", b"4")], "from its beginning"
        await client.admin.delete_topic("eu.orders")
        while "eu.orders" in orders.topics:
            await asyncio.sleep(0.001)
        await reconnect(client)
        await publish(client, **{"us.orders": [b"5"]})
        assert await take(orders, 1) == [("us.orders", b"5")]
        waiting = asyncio.create_task(orders.receive())
        await asyncio.sleep(0)
        orders.stop()
        with pytest.raises(penstock.Closed):
            await waiting


async def test_a_pattern_that_matches_nothing_yet_waits(client: penstock.Client) -> None:
    async with client.subscribe_topics(re.compile("later.*"), "s", look_s=0.02) as consumer:
        waiting = asyncio.create_task(take(consumer, 1))
        await publish(client, **{"later-1": [b"x"]})
        assert await waiting == [("later-1", b"x")]


async def test_a_consumer_settles_only_its_own_messages(client: penstock.Client) -> None:
    await publish(client, a=[b"1"], b=[b"2"])
    async with (
        client.subscribe_topics(["a"], "s", start="earliest") as one,
        client.subscribe("b", "s", start="earliest") as other,
    ):
        message = await other.receive(WAIT_S)
        assert message is not None
        with pytest.raises(ValueError, match="came from subscription 's' of topic 'b'"):
            await one.ack(message)
        mine = await one.receive(WAIT_S)
        await client.admin.delete_topic("a")
        assert mine is not None
        while not mine.stale:
            await asyncio.sleep(0.001)
        with pytest.raises(penstock.StaleDelivery):
            await one.ack(mine)


@pytest.mark.parametrize(
    ("topics", "error"),
    [("orders", TypeError), ([], ValueError), (["a", "a"], ValueError), (re.compile(b"a"), TypeError)],
)
async def test_topics_that_cannot_be_are_refused(client: penstock.Client, topics: Any, error: Any) -> None:
    with pytest.raises(error, match="topics"):
        client.subscribe_topics(topics, "s")


def test_it_is_there_without_asyncio(gateway: Gateway) -> None:
    with penstock.sync.connect(gateway.url) as client:
        for name in ("a", "b"):
            with client.producer(name) as producer:
                producer.send(name)
        with client.subscribe_topics(["a", "b"], "s", start="earliest") as consumer:
            found = set()
            for message in consumer:
                with consumer.process(message):
                    found.add((message.topic, message.body))
                if len(found) == 2:
                    consumer.stop()
            assert found == {("a", b"a"), ("b", b"b")} and consumer.topics == ["a", "b"]


# Readers


async def test_a_reader_knows_its_end_and_may_begin_again(client: penstock.Client) -> None:
    await publish(client, orders=[b"1", b"2", b"3"])
    async with client.reader("orders", start="earliest") as reader:
        found = []
        while await reader.has_more():
            found.append(await reader.receive())
        assert [message.body for message in found] == [b"1", b"2", b"3"]
        await reader.seek(found[1].id)
        assert [message.body for message in await reader.receive_many(1)] == [b"2"]
        with pytest.raises(penstock.Refused, match="yesterday"):
            await reader.seek("yesterday")
        assert await reader.has_more(), "it goes on where it was"
        await reconnect(client)
        assert [message.body for message in await reader.receive_many(9)] == [b"3"]
        assert not await reader.has_more()
        await reader.seek("latest")
        assert not await reader.has_more()
        await publish(client, orders=[b"4"])
        assert await reader.has_more()
    async with client.reader(mqtt_filter="a/#") as reader:
        with pytest.raises(penstock.ClientError, match="receive"):
            await reader.has_more()
        with pytest.raises(penstock.ClientError, match="cannot seek"):
            await reader.seek("earliest")
    await client.admin.create_topic("empty")
    async with client.reader("empty", start="earliest") as reader:
        assert not await reader.has_more()


def test_a_reader_without_asyncio_knows_its_end(gateway: Gateway) -> None:
    with penstock.sync.connect(gateway.url) as client:
        with client.producer("orders") as producer:
            producer.send_many([b"1", b"2"])
        with client.reader("orders", start="earliest") as reader:
            for _ in range(2):
                found = []
                while reader.has_more():
                    found.append(reader.receive().body)
                assert found == [b"1", b"2"]
                reader.seek("earliest")


# How much is out, and what is sent


@pytest.mark.parametrize("of", ["topic", "queue", "exchange"])
async def test_a_consumer_has_so_much_out_at_most(client: penstock.Client, of: str) -> None:
    if of == "queue":
        await client.admin.declare_queue("jobs")
    place: dict[str, Any] = {
        "topic": {"topic": "jobs", "subscription": "s", "start": "earliest"},
        "queue": {"queue": "jobs"},
        "exchange": {"exchange": "amq.direct", "routing_key": "jobs", "subscription": "s"},
    }[of]
    sends = {"exchange": "amq.direct", "routing_key": "jobs"} if of == "exchange" else {of: "jobs"}
    async with (
        client.producer(**sends) as producer,
        client.subscribe(**place, max_unacked=3) as bounded,
        client.subscribe(**place) as other,
    ):
        await producer.send_many([b"%d" % number for number in range(20)])
        mine = [await bounded.receive(WAIT_S) for _ in range(3)]
        others = []
        while len(others) < 17:
            others += await other.receive_many(20, WAIT_S)
        assert bounded.waiting == 0, "what it did not settle keeps the rest away from it"
        await other.ack(others)
        await other.close()
        await producer.send("more")
        await bounded.ack([message for message in mine if message is not None])
        message = await bounded.receive(WAIT_S)
        assert message is not None and message.body == b"more"


async def test_a_message_is_delayed_without_waiting(gateway: Gateway) -> None:
    async with penstock.connect(gateway.url, clock=gateway.now) as client:
        async with client.producer("later") as producer, client.reader("later", start="earliest") as reader:
            sent = producer.send_nowait("x", deliver_after_s=3600)
            assert (await sent).due_ms > gateway.now() * 1000
            assert not await reader.has_more()
            gateway.advance(3600)
            assert (await reader.receive()).body == b"x"
        async with client.producer("later", name="named") as producer:
            with pytest.raises(penstock.ClientError, match="cannot delay"):
                producer.send_nowait("x", deliver_after_s=1)


async def test_when_it_happened_and_how_long_it_is_good_for(client: penstock.Client) -> None:
    happened = datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC)
    async with client.producer("events") as producer, client.reader("events", start="earliest") as reader:
        await producer.send("x", timestamp=happened)
        async with client.transaction() as transaction:
            transaction.send("y", to=producer, ttl_s=60)
        first, second = await reader.receive(), await reader.receive()
        assert first.properties["timestamp"] == int(happened.timestamp())
        assert second.properties["expiration"] == "60000"
        with pytest.raises(ValueError, match="time zone"):
            await producer.send("x", timestamp=happened.replace(tzinfo=None))
