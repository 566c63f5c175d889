"""Mistakes of the first hour with the SDK, and their messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import penstock
import penstock.sync
from penstock.testing import Gateway

WAIT_S = 60.0


@pytest.mark.parametrize("front_end", ["amqp", "mqtt"])
async def test_the_port_of_another_protocol_is_named_as_such(gateway: Gateway, front_end: str) -> None:
    port = gateway.listener(front_end)
    with pytest.raises(
        penstock.ConnectionLost,
        match=rf"127\.0\.0\.1:{port} (closed|begins with b'AMQP).*native\.listen\? TLS, AMQP",
    ):
        await penstock.connect(f"penstock://127.0.0.1:{port}", connect_timeout_s=WAIT_S)


async def test_unopened_objects_raise_an_error_that_says_so(client: penstock.Client) -> None:
    await client.admin.create_topic("t")
    for consumer, noun in ((client.subscribe("t", "s"), "consumer"), (client.reader("t"), "reader")):
        wanted = f"the {noun} of .* is not open; open it first: use it in a with block"
        with pytest.raises(penstock.ClientError, match=wanted):
            await consumer.receive(WAIT_S)
        with pytest.raises(penstock.ClientError, match="is not open"):
            async for _ in consumer:
                pass
        with pytest.raises(penstock.ClientError, match="is not open"):
            await consumer.pull()
    with pytest.raises(penstock.ClientError, match="is not open"):
        await client.retrying("t", "s").receive(WAIT_S)


def test_without_asyncio_it_says_so_as_well(gateway: Gateway) -> None:
    with penstock.sync.connect(gateway.url, connect_timeout_s=WAIT_S) as client:
        with pytest.raises(penstock.ClientError, match="is not open"):
            client.subscribe("t", "s").receive(WAIT_S)


async def test_nothing_comes_by_itself_without_a_prefetch(client: penstock.Client) -> None:
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest", prefetch=0) as consumer,
    ):
        await producer.send("x")
        with pytest.raises(penstock.ClientError, match=r"prefetch=0.*; await its pull"):
            await consumer.receive()
        with pytest.raises(penstock.ClientError, match=r"prefetch=0"):
            async for _ in consumer:
                pass
        assert [one.body for one in await consumer.pull(wait_s=WAIT_S)] == [b"x"]


async def test_a_queue_that_is_not_there_is_no_deleted_one(client: penstock.Client) -> None:
    async with client.producer(queue="none") as producer:
        with pytest.raises(penstock.NotFound, match=r"there is no topic or queue.*; create it"):
            await producer.send("x")


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        (
            lambda c: c.producer("t", key="user"),
            TypeError,
            "a producer's key is a function.*send\\(body, key=",
        ),
        (lambda c: c.subscribe("t", "s", nack_backoff_s=5), TypeError, r"is a pair.*, not 5"),
    ],
)
async def test_options_of_another_kind_are_named(
    client: penstock.Client, wrong: Callable[[Any], object], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        wrong(client)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"deliver_after_s": "5"}, "deliver_after_s is a number, not str"),
        ({"deliver_at": "tomorrow"}, "deliver_at is a datetime or a number of seconds, not str"),
        ({"ttl_s": "5"}, "ttl_s is a number, not str"),
    ],
)
async def test_times_are_numbers(client: penstock.Client, said: dict[str, Any], says: str) -> None:
    async with client.producer("t") as producer:
        with pytest.raises(TypeError, match=says):
            await producer.send("x", **said)
        assert producer.under_way == 0


async def test_only_messages_are_settled_and_where_they_came_from(client: penstock.Client) -> None:
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "one", start="earliest") as one,
        client.subscribe("t", "other", start="earliest") as other,
    ):
        await producer.send("x")
        message, its_copy = await one.receive(), await other.receive()
        wrong: list[Any] = [message.id, None, [message, "x"]]
        settle: list[Callable[[Any], Awaitable[None]]] = [one.ack, one.nack, one.reject, one.extend]
        for what in settle:
            for not_one in wrong:
                with pytest.raises(TypeError, match="messages are settled as they were received, not"):
                    await what(not_one)
            with pytest.raises(ValueError, match=r"came from subscription 'other'.*not by .*'one'"):
                await what(its_copy)
        await one.ack(message, durable=True)
        await other.ack(its_copy, durable=True)


async def test_handlers_may_be_functions_which_run_in_threads(client: penstock.Client) -> None:
    """A plain function, and a callable that returns a coroutine without being a coroutine function."""
    async with client.producer("t") as producer, client.subscribe("t", "s", start="earliest") as consumer:
        await producer.send_many([b"%d" % i for i in range(20)])
        seen: set[bytes] = set()
        together = threading.Barrier(4, timeout=WAIT_S)

        def handle(message: penstock.Message) -> None:
            together.wait()  # all four at the same time, or nobody goes on
            seen.add(message.body)
            if len(seen) == 20:
                asyncio.run_coroutine_threadsafe(stop(), loop)

        async def stop() -> None:
            consumer.stop()

        loop = asyncio.get_running_loop()
        await asyncio.wait_for(consumer.workers(4, handle), WAIT_S)
        await consumer.ack([], durable=True)
        assert (len(seen), await client.admin.lag("t", "s")) == (20, 0)
    async with client.subscribe("t", "again", start="earliest") as consumer:

        async def last() -> None:
            consumer.stop()

        await asyncio.wait_for(consumer.workers(1, lambda message: last()), WAIT_S)
        await consumer.ack([], durable=True)
        assert await client.admin.lag("t", "again") < 20


def test_a_handler_may_end_the_program(gateway: Gateway) -> None:
    """sys.exit in a thread of workers ended the client's thread, and `workers` never returned."""
    with (
        penstock.sync.connect(gateway.url, connect_timeout_s=WAIT_S) as client,
        client.producer("t") as producer,
    ):
        producer.send_many(["go on", "end"])

        def handle(message: penstock.Message) -> None:
            if message.body == b"end":
                raise SystemExit("that is all")

        with client.subscribe("t", "s", start="earliest") as consumer:
            with pytest.raises(SystemExit, match="that is all"):
                consumer.workers(1, handle)
        with client.subscribe("t", "s") as consumer:
            message = consumer.receive(WAIT_S)
            assert message is not None and (message.body, message.redelivered) == (b"end", True)
            assert client.connected
