"""The SDK against a gateway in this process: producing, consuming, reconnects, transactions, others."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any, Literal

import pytest

import penstock
from penstock.sdk.errors import (
    BufferFull,
    Busy,
    ClientError,
    Closed,
    ConnectionLost,
    Fenced,
    LoginRefused,
    Refused,
    StaleDelivery,
)
from penstock.testing import Gateway

WAIT_S = 60.0


async def take(consumer: penstock.Consumer, n: int) -> list[penstock.Message]:
    """The next n messages."""
    found: list[penstock.Message] = []
    while len(found) < n:
        some = await consumer.receive_many(n - len(found), WAIT_S)
        assert some, f"{len(found)} of {n} messages came"
        found += some
    return found


def bodies(messages: list[penstock.Message]) -> list[bytes]:
    return [message.body for message in messages]


# The package


def test_importing_the_client_loads_nothing_of_the_gateway() -> None:
    program = """
import sys, penstock
assert not [name for name in sys.modules if name.startswith("penstock.")]
penstock.connect, penstock.Producer, penstock.Consumer
import penstock.sdk.transaction, penstock.sdk.admin
parts = ("router", "subscriptions", "log_core", "server", "config", "protocols.amqp", "protocols.http")
print(*[name for name in sys.modules if name.startswith(tuple("penstock." + part for part in parts))])
print(*[name for name in ("orjson", "uvloop", "h2", "re2") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


# Producing


async def test_messages_come_as_they_were_sent(client: penstock.Client) -> None:
    async with client.producer("t") as producer, client.subscribe("t", "s", start="earliest") as consumer:
        headers = {"text": "ä", "number": 7, "flag": True, "list": [1, "x"], "nothing": None}
        sent = await producer.send(b"\0\xff", key="k", headers=headers, content_type="a/b", priority=3)
        await producer.send("text")
        first, second = await take(consumer, 2)
    assert (first.body, first.key, first.id) == (b"\0\xff", "k", sent)
    assert {name: first.headers[name] for name in headers} == headers
    assert (first.properties["content_type"], first.properties["priority"]) == ("a/b", 3)
    assert (second.body, second.key, second.headers, second.redelivered) == (b"text", None, {}, False)


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_no_more_waits_in_the_client_than_it_said(gateway: Gateway, compression: str | None) -> None:
    """Batches that go out as they are stored may overdraw what was granted."""
    async with penstock.connect(gateway.url, compression=compression) as client:
        async with client.producer("t") as producer:
            for first in range(0, 130 * 60, 130):  # a batch of the log each
                await producer.send_many([b"%d" % i for i in range(first, first + 130)])
        async with client.reader("t", start="earliest", prefetch=1000) as reader:
            most = 0
            for number in range(130 * 60):
                message = await reader.receive(WAIT_S)
                assert message is not None and message.body == b"%d" % number
                most = max(most, 1 + reader.waiting)
                if number % 50 == 0:
                    await asyncio.sleep(0)
    assert 600 < most <= 1000


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_no_more_bytes_wait_in_the_client_than_it_said(
    gateway: Gateway, compression: str | None
) -> None:
    """Batches of 8 to 32 KB, and a client that wants to have 40 KB at most."""
    sent = [b"%d" % i + bytes(i % 61) for i in range(8_000)]
    size_of = [28 + 3 + 3 + len(body) for body in sent]
    arrived = given = most = 0
    async with penstock.connect(gateway.url, compression=compression) as client:
        for count in (130, 250, 500):
            async with client.producer("t", batch_messages=count) as producer:
                await producer.send_many(sent)
        async with client.reader("t", start="earliest", prefetch=100_000, prefetch_bytes=40_000) as reader:
            for number in range(3 * len(sent)):
                message = await reader.receive(WAIT_S)
                assert message is not None
                assert message.body == sent[number % len(sent)]
                while arrived < number + 1 + reader.waiting:
                    given += size_of[arrived % len(sent)]
                    arrived += 1
                most = max(most, given)
                given -= size_of[number % len(sent)]
                if number % 50 == 0:
                    await asyncio.sleep(0)
    assert 20_000 < most <= 40_000


@pytest.mark.parametrize("acks", ["all", "written", "none"])
async def test_a_producer_gathers_batches_and_keeps_their_order(client: penstock.Client, acks: str) -> None:
    wanted = [b"%d" % i for i in range(2000)]
    async with client.producer("t", acks=acks, batch_messages=300, linger_ms=5) as producer:
        waiting = [producer.send_nowait(body) for body in wanted]
        await producer.flush()
        await asyncio.gather(*waiting)
        assert producer.under_way == 0
    async with client.reader("t", start="earliest") as reader:
        assert bodies(await take(reader, 2000)) == wanted


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
async def test_batches_are_compressed_in_both_directions(
    gateway: Gateway, compression: Literal["zstd", "lz4"]
) -> None:
    wanted = [b"%d %s" % (i, b"text " * 20) for i in range(5000)]
    sent = 0
    async with penstock.connect(gateway.url, compression=compression) as client:
        link = await client.link()
        write = link.write

        def counted(frame: bytes) -> None:
            nonlocal sent
            sent += len(frame)
            write(frame)

        link.write = counted  # type: ignore[method-assign]
        async with client.producer("t") as producer, client.reader("t", start="earliest") as reader:
            await producer.send_many(wanted)
            late = await producer.send(bytes(1000), deliver_after_s=0.01)
            assert bodies(await take(reader, 5001)) == [*wanted, bytes(1000)]
            assert late.due_ms
        assert 0 < sent < sum(map(len, wanted)) / 4
    async with penstock.connect(gateway.url) as client, client.reader("t", start="earliest") as reader:
        assert bodies(await take(reader, 5000)) == wanted


async def test_a_full_buffer_makes_senders_wait_or_raises(client: penstock.Client) -> None:
    async with client.producer("t", buffer_bytes=10_000) as producer:
        producer.send_nowait(bytes(9000))
        with pytest.raises(BufferFull, match="under way"):
            producer.send_nowait(bytes(2000))
        await asyncio.gather(*(producer.send(bytes(3000)) for _ in range(20)))
        assert producer.under_way == 0
    assert (await client.admin.describe("t"))["messages"] == 21


async def test_many_at_once_are_split_into_batches(client: penstock.Client) -> None:
    async with client.producer("t", batch_messages=1000) as producer:
        ids = await producer.send_many([b"%d" % i for i in range(5500)])
        assert ids == sorted(ids) and len(set(ids)) == 5500
    async with client.reader("t", start=str(ids[5000])) as reader:
        assert bodies(await take(reader, 2)) == [b"5000", b"5001"]


async def test_a_newer_producer_of_a_name_fences_off_the_older(client: penstock.Client) -> None:
    async with client.producer("t", name="p") as old:
        await old.send("1")
        async with client.producer("t", name="p") as new:
            await new.send("2")
            with pytest.raises(Fenced):
                await old.send("3")
    async with client.reader("t", start="earliest") as reader:
        assert bodies(await take(reader, 2)) == [b"1", b"2"]
        assert await reader.receive(0.05) is None


# Consuming


async def test_unsettled_messages_of_a_lost_consumer_come_again_to_the_others(
    client: penstock.Client, gateway: Gateway
) -> None:
    async with client.producer("t") as producer, penstock.connect(gateway.url) as other:
        await client.admin.create_topic("t")
        async with other.subscribe("t", "s", start="earliest") as lost:
            await producer.send_many([b"%d" % i for i in range(10)])
            held = await take(lost, 10)
            await lost.ack(held[:3], durable=True)
        async with client.subscribe("t", "s") as consumer:
            again = await take(consumer, 7)
            assert bodies(again) == [b"%d" % i for i in range(3, 10)]
            assert all(message.redelivered for message in again)
            await consumer.ack(again, durable=True)
    assert (await client.admin.describe("t"))["subscriptions"]["s"]["backlog"] == 0


async def test_processing_acknowledges_or_gives_back(client: penstock.Client) -> None:
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest", nack_backoff_s=(0.0, 0.0)) as consumer,
    ):
        await producer.send("once")
        message = (await take(consumer, 1))[0]
        with pytest.raises(KeyError):
            async with message.process():
                raise KeyError("no")
        async for message in consumer:
            assert (message.redelivered, message.given_back) == (True, 1)
            async with message.process():
                break
        await consumer.ack([], durable=True)
    assert (await client.admin.describe("t"))["subscriptions"]["s"]["acknowledged"] == 1


async def test_a_message_that_fails_too_often_goes_to_the_dead_letter_topic(client: penstock.Client) -> None:
    await client.admin.create_topic("dead")
    options: dict[str, Any] = {"max_deliveries": 3, "dead_letter": "dead", "nack_backoff_s": (0.0, 0.0)}
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest", **options) as consumer,
        client.reader("dead", start="earliest") as dead,
    ):
        await producer.send("bad")
        for given_back in range(3):
            (message,) = await take(consumer, 1)
            assert message.given_back == given_back
            await consumer.nack(message)
        (buried,) = await take(dead, 1)
        assert buried.body == b"bad"
        assert buried.headers["x-death"][0]["reason"] == "delivery_limit"


async def test_pulls_and_pushes_share_a_subscription(client: penstock.Client) -> None:
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest", prefetch=0) as consumer,
    ):
        assert await consumer.pull(10, wait_s=0.05) == []
        waiting = asyncio.create_task(consumer.pull(10, least=3, wait_s=WAIT_S))
        await producer.send_many([b"a", b"b", b"c"])
        found = await waiting
        assert bodies(found) == [b"a", b"b", b"c"]
        await consumer.ack(found, durable=True)


async def test_pulls_that_wait_cost_the_gateway_no_task(client: penstock.Client, gateway: Gateway) -> None:
    assert gateway._loop is not None
    await client.admin.create_topic("t")
    async with client.subscribe("t", "s", prefetch=0) as consumer, client.producer("t") as producer:
        before = len(asyncio.all_tasks(gateway._loop))
        pulls = [asyncio.create_task(consumer.pull(1, wait_s=WAIT_S)) for _ in range(500)]
        await asyncio.sleep(0)  # each sends its request
        # This is sent behind them on the same connection, so by its answer all of them wait.
        await client.admin.topics()
        assert not any(pull.done() for pull in pulls)
        assert len(asyncio.all_tasks(gateway._loop)) < before + 50, "others may have begun meanwhile"
        await producer.send_many([b"%d" % i for i in range(500)])
        found = [message for messages in await asyncio.gather(*pulls) for message in messages]
        assert bodies(found) == [b"%d" % i for i in range(500)]
        await consumer.ack(found, durable=True)


async def test_an_exclusive_subscription_takes_one_consumer(client: penstock.Client) -> None:
    await client.admin.create_topic("t")
    async with client.subscribe("t", "s", kind="exclusive") as first:
        with pytest.raises(Busy) as refused:
            await client.subscribe("t", "s", kind="exclusive").open()
        assert refused.value.retryable
        async with client.producer("t") as producer:
            await producer.send_many([b"a", b"b", b"c"])
            found = await take(first, 3)
            await first.ack_cumulative(found[1])
            await first.ack([], durable=True)
            assert (await client.admin.describe("t"))["subscriptions"]["s"]["unacked"] == 1


async def test_a_seek_makes_what_was_given_out_stale(client: penstock.Client) -> None:
    async with client.producer("t") as producer, client.subscribe("t", "s", start="earliest") as consumer:
        await producer.send_many([b"%d" % i for i in range(5)])
        found = await take(consumer, 5)
        await consumer.ack(found[:4])
        await consumer.seek("earliest")
        again = await take(consumer, 5)
        assert bodies(again) == bodies(found)
        assert found[4].stale and not again[4].stale
        with pytest.raises(StaleDelivery):
            await consumer.ack(found[4])


async def test_credit_is_granted_again_as_messages_are_given_out(client: penstock.Client) -> None:
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest", prefetch=10, prefetch_bytes=2000) as consumer,
    ):
        await producer.send_many([bytes(300)] * 500)
        for message in await take(consumer, 500):
            await consumer.ack(message)


# Lost connections


async def test_everything_goes_on_after_the_gateway_came_back(gateway: Gateway) -> None:
    async with penstock.connect(gateway.url) as client:
        async with (
            client.producer("t", name="p") as producer,
            client.subscribe("t", "s", start="earliest") as consumer,
            client.reader("t", start="earliest") as reader,
        ):
            await producer.send_many([b"%d" % i for i in range(10)])
            held = await take(consumer, 10)
            assert bodies(await take(reader, 4)) == [b"0", b"1", b"2", b"3"]
            await consumer.ack(held[:5], durable=True)
            await asyncio.to_thread(gateway.stop)
            waiting = [producer.send_nowait(b"%d" % i) for i in range(10, 20)]
            assert all(message.stale for message in held)
            await asyncio.to_thread(gateway.start, port=gateway.port)
            await asyncio.gather(*waiting)
            again = await take(consumer, 15)
            assert bodies(again) == [b"%d" % i for i in range(5, 20)]
            assert [message.redelivered for message in again[:5]] == [True] * 5
            with pytest.raises(StaleDelivery):
                await consumer.ack(held[9])
            await consumer.ack(again, durable=True)
            assert bodies(await take(reader, 16)) == [b"%d" % i for i in range(4, 20)]
            assert client.reconnects == 1


async def test_a_message_sent_twice_by_a_named_producer_is_there_once(gateway: Gateway) -> None:
    """The connection is cut while confirms are under way, again and again."""
    async with penstock.connect(gateway.url) as client:
        async with client.producer("t", name="p", batch_messages=7) as producer:
            wanted = [b"%d" % i for i in range(700)]
            waiting = []
            for i, body in enumerate(wanted):
                waiting.append(producer.send_nowait(body))
                if i % 100 == 50:
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    (await client.link()).abort()
            await asyncio.gather(*waiting)
        async with client.reader("t", start="earliest") as reader:
            assert bodies(await take(reader, 700)) == wanted
            assert await reader.receive(0.05) is None
        assert client.reconnects > 0


async def test_without_reconnect_a_lost_connection_ends_everything(gateway: Gateway) -> None:
    client = await penstock.connect(gateway.url, reconnect=False)
    producer = await client.producer("t").open()
    consumer = await client.subscribe("t", "s").open()
    (await client.link()).abort()
    with pytest.raises(ConnectionLost):
        await consumer.receive(WAIT_S)
    with pytest.raises(ConnectionLost):
        await producer.send("x")
    with pytest.raises(ConnectionLost):
        await client.call("topics")
    await client.close()


async def test_a_wrong_password_or_place_is_told_at_once(gateway: Gateway) -> None:
    with pytest.raises(LoginRefused, match="login was refused"):
        await penstock.connect(gateway.url, password="wrong")
    with pytest.raises(ConnectionLost, match=r"native\.listen"):
        await penstock.connect("penstock://127.0.0.1:1")
    with pytest.raises(ClientError, match="no address of a gateway"):
        await penstock.connect("http://127.0.0.1")


async def test_closed_objects_raise_an_error_that_says_so(client: penstock.Client) -> None:
    consumer = await client.subscribe("t", "s").open()
    producer = await client.producer("t").open()
    waiting = asyncio.create_task(consumer.receive())
    await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(Closed):
        await waiting
    await producer.close()
    with pytest.raises(Closed):
        await producer.send("x")
    with pytest.raises(Refused) as refused:
        await client.call("describe", topic="nowhere")
    assert refused.value.code == "not_found"


# All or nothing, and later


async def test_a_transaction_happens_whole_or_not(client: penstock.Client) -> None:
    async with (
        client.producer("in") as source,
        client.producer("out") as out,
        client.subscribe("in", "s", start="earliest") as consumer,
    ):
        await source.send_many([b"1", b"2"])
        first, second = await take(consumer, 2)
        with pytest.raises(KeyError):
            async with out.transaction() as tx:
                tx.send("never")
                tx.ack(first)
                raise KeyError
        async with out.transaction() as tx:
            tx.send("a")
            tx.send("b", to=source, key="k")
            tx.ack([first, second])
        with pytest.raises(ClientError) as refused:
            async with out.transaction() as tx:
                tx.send("never")
                tx.ack(first)
        assert refused.value.code == "stale_delivery"
        async with client.reader("out", start="earliest") as reader:
            assert bodies(await take(reader, 1)) == [b"a"]
            assert await reader.receive(0.05) is None
        assert bodies(await take(consumer, 1)) == [b"b"]
        found = (await client.admin.describe("in"))["subscriptions"]["s"]
        assert (found["acknowledged"], found["unacked"]) == (2, 1)


async def test_a_delayed_message_comes_after_its_time_and_a_cancelled_one_never(
    client: penstock.Client,
) -> None:
    async with client.producer("t") as producer, client.subscribe("t", "s", start="earliest") as consumer:
        never = await producer.send("never", deliver_after_s=3600)
        assert await client.cancel("t", never)
        assert not await client.cancel("t", never)
        late = await producer.send("late", deliver_after_s=0.3, headers={"a": 1})
        await producer.send("now")
        found = {message.body: message for message in await take(consumer, 2)}
        assert found[b"late"].headers == {"a": 1}
        assert found[b"late"].timestamp_ms >= late.due_ms
        assert found[b"now"].timestamp_ms < late.due_ms or found[b"now"].id > found[b"late"].id


# Other protocols


async def test_amqp_mqtt_and_the_sdk_use_the_same_messages(client: penstock.Client, gateway: Gateway) -> None:
    import aio_pika
    import aiomqtt

    await client.admin.create_topic("all")
    await client.admin.bind("all", "amq.topic", "sensors.#")
    connection = await aio_pika.connect(gateway.amqp_url)
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue("jobs", durable=True)
        async with client.subscribe("all", "s", start="earliest") as consumer:
            async with aiomqtt.Client("127.0.0.1", gateway.mqtt_port, timeout=WAIT_S) as mqtt:
                await mqtt.publish("sensors/1", b"by mqtt", qos=1)
            message = aio_pika.Message(b"by amqp", headers={"a": 1}, delivery_mode=2)
            await channel.default_exchange.publish(message, "all")
            async with client.producer("all") as producer:
                await producer.send("by sdk", headers={"b": 2})
            first, second, third = await take(consumer, 3)
            assert bodies([first, second, third]) == [b"by mqtt", b"by amqp", b"by sdk"]
            assert (first.exchange, first.routing_key) == ("amq.topic", "sensors.1")
            assert (second.headers, third.headers) == ({"a": 1}, {"b": 2})
        # An AMQP queue: written by the SDK, read by it without taking, consumed by AMQP.
        async with client.producer(queue="jobs") as producer:
            await producer.send("job", headers={"c": 3})
        async with client.reader(queue="jobs", start="earliest") as reader:
            assert bodies(await take(reader, 1)) == [b"job"]
        taken = await queue.get(timeout=WAIT_S)
        assert (taken.body, taken.headers, taken.redelivered) == (b"job", {"c": 3}, False)
        await taken.ack()
        async with client.producer(queue="jobs") as producer, client.subscribe(queue="jobs") as consumer:
            await producer.send("another")
            await consumer.ack(await take(consumer, 1), durable=True)
