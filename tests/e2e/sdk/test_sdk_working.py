"""Handlers: several at once with the order of each key, more time, stopping, closing."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import defaultdict
from typing import Any

import pytest

import penstock
import penstock.sync
from penstock.testing import Gateway
from tests.reference.native_frames import frame

WAIT_S = 60.0


async def lag(client: penstock.Client) -> int:
    return await client.admin.lag("t", "s")


@pytest.mark.parametrize("by", ["key", "message"])
async def test_keys_are_handled_side_by_side_and_each_in_order(client: penstock.Client, by: Any) -> None:
    seen: dict[str, list[int]] = defaultdict(list)
    running: set[str] = set()
    most, twice = 0, 0
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest") as consumer,
    ):
        for i in range(200):
            producer.send_nowait(b"%d" % i, key=f"key{i % 5}")
        await producer.flush()
        ready = asyncio.Event()

        async def handle(message: penstock.Message) -> None:
            nonlocal most, twice
            key = str(message.key)
            twice += key in running
            running.add(key)
            most = max(most, len(running))
            # Nobody is done before as many run as may.
            if most == 4:
                ready.set()
            await ready.wait()
            await asyncio.sleep(0)
            running.discard(key)
            seen[key].append(int(message.body))
            if sum(map(len, seen.values())) == 200:
                consumer.stop()

        await asyncio.wait_for(consumer.workers(4, handle, by=by), WAIT_S)
        await consumer.ack([], durable=True)
        assert await lag(client) == 0
    if by == "key":
        assert (most, twice) == (4, 0)
        assert all(found == sorted(found) for found in seen.values())


async def test_a_failed_message_is_given_back_and_the_others_continue(
    client: penstock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    tries: dict[bytes, int] = defaultdict(int)
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest", nack_backoff_s=(0.0, 0.0)) as consumer,
    ):
        await producer.send_many([b"good", b"bad"])

        async def handle(message: penstock.Message) -> None:
            tries[message.body] += 1
            if message.body == b"bad":
                if tries[b"bad"] == 3:
                    consumer.stop()
                    return
                raise KeyError("no")

        await asyncio.wait_for(consumer.workers(2, handle), WAIT_S)
        await consumer.ack([], durable=True)
        assert (await lag(client), tries) == (0, {b"good": 1, b"bad": 3})
    assert [record.exc_info is not None for record in caplog.records if record.levelno == logging.ERROR] == [
        True
    ] * 2


async def test_stopped_workers_finish_what_they_have_begun_and_no_more(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        for _ in range(3):
            await producer.send("x", key="k")
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handle(message: penstock.Message) -> None:
        begun.set()
        await go_on.wait()

    async with client.subscribe("t", "s", start="earliest") as consumer:
        working = asyncio.create_task(consumer.workers(2, handle))
        await asyncio.wait_for(begun.wait(), WAIT_S)
        consumer.stop()
        consumer.stop()
        assert not working.done()
        go_on.set()
        await asyncio.wait_for(working, WAIT_S)
        with pytest.raises(penstock.Closed, match="stopped"):
            await consumer.receive()
        await consumer.ack([], durable=True)
        assert await lag(client) == 2
    async with client.subscribe("t", "s") as consumer:
        assert len(await consumer.receive_many(2, WAIT_S)) >= 1


async def test_cancelled_workers_give_back_at_once(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        await producer.send("x")
    begun = asyncio.Event()

    async def handle(message: penstock.Message) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with client.subscribe("t", "s", start="earliest") as consumer:
        working = asyncio.create_task(consumer.workers(2, handle))
        await asyncio.wait_for(begun.wait(), WAIT_S)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        again = await consumer.receive(WAIT_S)
        assert again is not None and again.redelivered, "although the backoff is a second"


def test_workers_are_threads_in_the_sync_face(gateway: Gateway) -> None:
    names = set()
    both = threading.Barrier(2, timeout=WAIT_S)
    with penstock.sync.connect(gateway.url) as client:
        with client.producer("t") as producer:
            producer.send_many([b"1", b"2"])
        with client.subscribe("t", "s", start="earliest") as consumer:

            def handle(message: penstock.Message) -> None:
                names.add(threading.current_thread().name)
                if both.wait() == 0:
                    consumer.stop()

            consumer.workers(2, handle)
        assert client.admin.lag("t", "s") == 0
    assert len(names) == 2


async def test_more_time_for_what_takes_long(client: penstock.Client) -> None:
    async with (
        client.producer("t") as producer,
        client.subscribe("t", "s", start="earliest", ack_timeout_s=0.2, prefetch=2) as consumer,
    ):
        await producer.send("x")
        message = await consumer.receive(WAIT_S)
        assert message is not None
        await consumer.extend([])
        # It comes again when it is not extended; then the first delivery cannot be extended any more.
        again = await consumer.receive(WAIT_S)
        assert again is not None and again.redelivered
        with pytest.raises(penstock.StaleDelivery, match=r"are not out any more.*took too long come"):
            await message.extend()


async def test_an_acknowledgement_to_a_closed_consumer_raises(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        await producer.send("x")
    async with client.subscribe("t", "s", start="earliest") as consumer:
        message = await consumer.receive(WAIT_S)
        assert message is not None
    assert message.stale
    with pytest.raises(penstock.StaleDelivery, match="subscription 's' of topic 't'"):
        await consumer.ack(message)


# Closing and losing


async def test_leaving_without_a_gateway_says_what_is_not_confirmed(gateway: Gateway) -> None:
    async with penstock.connect(gateway.url, close_timeout_s=0.05) as client:
        with pytest.raises(penstock.ConnectionLost, match="1 messages are not confirmed"):
            async with client.producer("t") as producer:
                gateway.stop()
                waiting = producer.send_nowait("x")
        with pytest.raises(penstock.ConnectionLost):
            await waiting


async def test_leaving_by_an_error_does_not_wait(gateway: Gateway) -> None:
    async with penstock.connect(gateway.url, close_timeout_s=3600) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.producer("t") as producer:
                gateway.stop()
                while client.connected:
                    await asyncio.sleep(0.001)
                producer.send_nowait("x")
                1 / 0  # noqa: B018


async def test_after_so_long_it_gives_up(gateway: Gateway) -> None:
    async with penstock.connect(gateway.url, reconnect_timeout_s=0.01, close_timeout_s=WAIT_S) as client:
        async with client.producer("t") as producer:
            gateway.stop()
            with pytest.raises(penstock.ConnectionLost, match="no gateway answers") as raised:
                await producer.send("x")
            assert (raised.value.code, raised.value.retryable) == ("connection_lost", True)


async def test_a_gateway_that_says_nothing_is_left() -> None:
    """As behind a network that drops everything: it logs in whoever comes, and is silent from then on."""
    pinged = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        welcome = {"version": 1, "capabilities": [], "max_frame_bytes": 1 << 20, "heartbeat_s": 0.1}
        for kind, said in ((0x02, welcome), (0x04, {"user": "guest", "vhost": "/"})):
            writer.write(frame(kind, 0, json.dumps(said).encode()))
        heard = b""
        while data := await reader.read(1000):
            heard += data
            if frame(0x07, 0, b"") in heard:
                pinged.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"penstock://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, penstock.connect(url, reconnect=False) as client:
        with pytest.raises(penstock.ConnectionLost, match="said nothing for 0 s, not even to a PING"):
            await client.admin.topics()
        await asyncio.wait_for(pinged.wait(), WAIT_S)


async def test_a_closed_client_says_so(gateway: Gateway) -> None:
    client = await penstock.connect(gateway.url)
    await client.close()
    address = gateway.url.split("@")[1].rstrip("/")
    for use in (client.admin.topics, client.connect, client.producer("t").open):
        with pytest.raises(penstock.Closed, match=f"{address} is closed; connect again"):
            await use()
    with pytest.raises(penstock.ConnectionLost, match="not connected"):
        await penstock.Client(gateway.url).admin.topics()
