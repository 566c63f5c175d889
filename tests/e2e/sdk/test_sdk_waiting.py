"""Several that wait on one consumer or producer, and those that give up."""

from __future__ import annotations

import asyncio

import pytest

import penstock
from penstock.protocols.native.codec import kinds
from penstock.sdk.errors import BufferFull, StaleDelivery

WAIT_S = 60.0


async def waiting(tasks: list[asyncio.Task[penstock.Message | None]]) -> None:
    """Let them come to where they wait."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


async def test_a_receiver_that_gives_up_leaves_the_message_to_the_next(client: penstock.Client) -> None:
    async with client.producer("t") as producer, client.subscribe("t", "s", prefetch=1) as consumer:
        given_out: list[bytes] = []
        frame = consumer.frame

        def arrives(kind: int, payload: bytes) -> None:
            frame(kind, payload)
            if kind in (kinds.DELIVER, kinds.DELIVER_STORED):
                first.cancel()  # it was woken in this turn

        consumer.frame = arrives  # type: ignore[method-assign]
        first = asyncio.create_task(consumer.receive())
        second = asyncio.create_task(consumer.receive())
        await waiting([first, second])
        await producer.send(b"one")
        message = await asyncio.wait_for(second, WAIT_S)
        assert message is not None
        given_out.append(message.body)
        assert given_out == [b"one"] and first.cancelled()


async def test_an_acknowledgement_after_the_end_is_refused(client: penstock.Client) -> None:
    async with client.producer("t") as producer:
        async with client.subscribe("t", "s") as consumer:
            await producer.send(b"one")
            message = await consumer.receive(WAIT_S)
            assert message is not None
        assert message.stale
        with pytest.raises(StaleDelivery):
            await consumer.ack(message)
        async with client.subscribe("t", "s") as again:
            found = await again.receive(WAIT_S)
            assert found is not None and (found.body, found.redelivered) == (b"one", True)


async def test_batches_have_columns_and_are_settled_whole(client: penstock.Client) -> None:
    wanted = [b"%d" % number for number in range(500)]
    async with client.producer("t") as producer, client.subscribe("t", "s", start="earliest") as consumer:
        ids = await producer.send_many(wanted)
        bodies: list[bytes] = []
        positions: list[int] = []
        async for batch in consumer.batches(200):
            assert 1 <= len(batch) <= 200
            bodies += batch.bodies
            positions += batch.positions
            assert [message.timestamp_ms for message in batch] == batch.timestamps_ms
            await consumer.ack(batch, durable=True)
            if len(bodies) == len(wanted):
                break
        assert bodies == wanted and positions == [one.position for one in ids]
        described = (await client.admin.describe("t"))["subscriptions"]["s"]
        assert (described["backlog"], described["unacked"]) == (0, 0)
        await client.admin.seek("t", "s", "earliest")
        async with asyncio.timeout(WAIT_S):
            while not batch.stale:
                await asyncio.sleep(0)
        with pytest.raises(StaleDelivery):
            await consumer.nack(batch)


async def test_the_short_way_of_sending_keeps_the_same_bounds(client: penstock.Client) -> None:
    """Messages with nothing to encode, between others: the same order, batches and limits."""
    async with client.producer("t", batch_messages=4, batch_bytes=1000, buffer_bytes=5000) as producer:
        sent: list[asyncio.Future[penstock.MessageId]] = []
        wanted: list[tuple[bytes, str | bytes | None]] = []
        for number in range(40):
            body = b"%d " % number + b"x" * (number % 3 * 300)
            key = "k" if number % 5 == 0 else None
            while True:
                try:
                    sent.append(producer.send_nowait(body, key=key))
                    break
                except BufferFull:
                    assert producer.under_way + len(body) + 100 > 5000
                    await producer.flush()
            wanted.append((body, key))
            assert producer.under_way <= 5000
        await producer.flush()
        ids = await asyncio.gather(*sent)
        assert ids == sorted(ids) and producer.under_way == 0
        with pytest.raises(BufferFull):
            for _ in range(100):
                producer.send_nowait(b"x")
    async with client.reader("t", start="earliest") as reader:
        found = []
        while len(found) < 40:
            message = await reader.receive(WAIT_S)
            assert message is not None
            found.append((message.body, message.key))
    assert found == wanted
