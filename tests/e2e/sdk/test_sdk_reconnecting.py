"""The client without a connection: opening, closing, sending, giving up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import penstock
from penstock.sdk.errors import Closed, ConnectionLost, Refused
from penstock.testing import Gateway

WAIT_S = 60.0


@asynccontextmanager
async def away(gateway: Gateway) -> AsyncIterator[None]:
    """The gateway is not there meanwhile."""
    port = gateway.port
    await asyncio.to_thread(gateway.stop)
    yield
    await asyncio.to_thread(gateway.start, port=port)


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[penstock.Client]:
    """Of a gateway whose topic t lasts."""
    async with penstock.connect(gateway.url) as client:
        await client.admin.create_topic("t")
        yield client


async def received(consumer: penstock.Consumer) -> bytes:
    message = await consumer.receive(WAIT_S)
    assert message is not None
    return message.body


async def test_an_open_without_a_connection_happens_once(client: penstock.Client, gateway: Gateway) -> None:
    consumer = client.subscribe("t", "s", kind="exclusive")
    producer = client.producer("t", name="p")
    async with away(gateway):
        opening = [asyncio.create_task(consumer.open()), asyncio.create_task(producer.open())]
        for _ in range(3):
            await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*opening), WAIT_S)
    await producer.send(b"one")
    assert await received(consumer) == b"one"


async def test_an_object_closed_without_a_connection_stays_closed(
    client: penstock.Client, gateway: Gateway
) -> None:
    consumer = await client.subscribe("t", "s", kind="exclusive").open()
    async with client.subscribe("t", "other"):
        async with away(gateway):
            opening = asyncio.create_task(client.producer("t").open())
            for _ in range(3):
                await asyncio.sleep(0)
            await consumer.close()
            opening.cancel()
        async with client.subscribe("t", "s", kind="exclusive"):  # else it is busy
            assert len(client._members) == 2


async def test_an_object_closed_during_its_resume_is_closed_at_the_gateway(
    client: penstock.Client, gateway: Gateway
) -> None:
    consumer = await client.subscribe("t", "s", kind="exclusive").open()
    resume = consumer.resume

    async def closed_meanwhile(link: Any) -> None:
        resuming = asyncio.create_task(resume(link))
        await asyncio.sleep(0)
        await consumer.close()
        await resuming

    consumer.resume = closed_meanwhile  # type: ignore[method-assign]
    (await client.link()).abort()
    async with asyncio.timeout(WAIT_S):
        while not client.reconnects:
            await asyncio.sleep(0.01)
    async with client.subscribe("t", "s", kind="exclusive"), client.producer("t") as producer:
        await producer.send(b"x")


async def test_a_connection_that_is_lost_while_it_is_resumed_voids_what_came_by_it(
    client: penstock.Client,
) -> None:
    """The first consumer gets messages, then the link dies before the last one is resumed."""
    async with client.producer("t") as producer, client.subscribe("t", "s", start="earliest") as first:
        second = await client.subscribe("t", "s2").open()
        resume = second.resume
        held: list[penstock.Message] = []

        async def dies(link: Any) -> None:
            await resume(link)
            if not held:
                message = await first.receive(WAIT_S)
                assert message is not None
                held.append(message)
                # As when the gateway says that it ends, and has not closed the socket yet.
                link._error = ConnectionLost("the gateway stops")

        second.resume = dies  # type: ignore[method-assign]
        await producer.send(b"one")
        assert await received(first) == b"one"
        (await client.link()).abort()
        again = await asyncio.wait_for(client.link(), WAIT_S)
        assert again.alive and held[0].stale
        assert await received(first) == b"one"
        await second.close()


async def test_a_gateway_that_stops_while_it_is_resumed_ends_no_producer(client: penstock.Client) -> None:
    """Its goodbye is the answer to what was asked."""
    async with client.producer("t") as producer:
        resume = producer.resume
        goodbye = Refused("the gateway stops")
        goodbye.code = "stopping"
        resumed = 0

        async def refused(link: Any) -> None:
            nonlocal resumed
            resumed += 1
            if resumed == 1:
                link._error = goodbye
                link.abort()
                raise goodbye
            await resume(link)

        producer.resume = refused  # type: ignore[method-assign]
        (await client.link()).abort()
        sent = await asyncio.wait_for(producer.send(b"one"), WAIT_S)
        assert sent.position and resumed == 2


async def test_unconfirmed_messages_are_sent_when_there_is_a_connection_again(
    client: penstock.Client, gateway: Gateway
) -> None:
    async with client.producer("t", acks="none") as producer:
        async with away(gateway):
            waiting = [producer.send_nowait(b"%d" % i) for i in range(3)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert producer.under_way > 0 and not any(one.done() for one in waiting)
        await asyncio.wait_for(asyncio.gather(*waiting), WAIT_S)
        await producer.flush()
        assert producer.under_way == 0
    async with client.reader("t", start="earliest") as reader:
        assert [await received(reader) for _ in range(3)] == [b"0", b"1", b"2"]


async def test_a_reader_of_what_is_latest_misses_nothing(client: penstock.Client, gateway: Gateway) -> None:
    async with client.reader("t") as reader:
        held = asyncio.Event()
        resume = reader.resume

        async def late(link: Any) -> None:
            await held.wait()
            await resume(link)

        reader.resume = late  # type: ignore[method-assign]
        (await client.link()).abort()
        async with penstock.connect(gateway.url) as other, other.producer("t") as producer:
            await producer.send(b"meanwhile")
        held.set()
        assert await received(reader) == b"meanwhile"


async def test_a_flush_says_that_it_failed(gateway: Gateway) -> None:
    client = await penstock.connect(gateway.url, reconnect=False)
    producer = await client.producer("t", buffer_bytes=1000).open()
    first = producer.send_nowait(bytes(900))
    waiting = [asyncio.create_task(producer.send(bytes(900))) for _ in range(3)]
    flushing = asyncio.create_task(producer.flush())
    await asyncio.sleep(0)
    (await client.link()).abort()
    found = await asyncio.wait_for(asyncio.gather(first, *waiting, flushing, return_exceptions=True), WAIT_S)
    assert [type(one) for one in found] == [ConnectionLost] * 5
    await client.close()


async def test_senders_waiting_for_buffer_space_go_in_order_and_may_give_up(client: penstock.Client) -> None:
    async with client.producer("t", buffer_bytes=1000) as producer:
        producer.send_nowait(bytes(900))
        tasks = [asyncio.create_task(producer.send(b"%d" % i + bytes(899))) for i in range(5)]
        await asyncio.sleep(0)
        tasks[0].cancel()  # it waits
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_S)
        assert producer.under_way == 0 and tasks[0].cancelled()
    async with client.reader("t", start="earliest") as reader:
        assert [(await received(reader))[:1] for _ in range(5)] == [b"\0", b"1", b"2", b"3", b"4"]


async def test_an_admitted_sender_that_gives_up_admits_the_next_one(client: penstock.Client) -> None:
    async with client.producer("t", buffer_bytes=1000) as producer:
        make_room = producer._send_window.make
        producer.send_nowait(bytes(900))
        first, second = (asyncio.create_task(producer.send(bytes(900))) for _ in range(2))

        def let_in() -> None:
            make_room()
            if not first.done() and producer._send_window.waiting == 1:
                first.cancel()  # in the very turn in which it was let in

        await asyncio.sleep(0)
        producer._send_window.make = let_in  # type: ignore[method-assign]
        await asyncio.wait_for(second, WAIT_S)
        assert first.cancelled() and producer.under_way == 0


async def test_senders_waiting_in_a_closed_producer_get_an_error(client: penstock.Client) -> None:
    producer = await client.producer("t", buffer_bytes=1000).open()
    producer.send_nowait(bytes(900))
    waiting = [asyncio.create_task(producer.send(bytes(900))) for _ in range(3)]
    await asyncio.sleep(0)
    await producer.close()
    found = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), WAIT_S)
    assert {type(one) for one in found} <= {Closed, penstock.MessageId}
