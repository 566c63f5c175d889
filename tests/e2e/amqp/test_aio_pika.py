"""aio-pika: robust connections, confirms, queues, exchanges, transactions of acknowledgement, RPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import aio_pika.abc
import aio_pika.exceptions
import pytest
from aio_pika.patterns import RPC

from tests.support.brokers import Broker
from tests.support.limits import LIMIT_S


@pytest.fixture
def url(amqp_port: int) -> str:
    return f"amqp://guest:guest@127.0.0.1:{amqp_port}/"


@pytest.fixture
async def channel(url: str) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    async with await aio_pika.connect_robust(url) as connection:
        yield await connection.channel()


async def test_publish_and_iterate(channel: aio_pika.abc.AbstractChannel, unique: str) -> None:
    queue = await channel.declare_queue(unique, exclusive=True)
    exchange = await channel.declare_exchange(unique, aio_pika.ExchangeType.TOPIC, auto_delete=True)
    await queue.bind(exchange, "a.#")
    for i in range(20):
        message = aio_pika.Message(
            str(i).encode(), headers={"n": i}, delivery_mode=aio_pika.DeliveryMode.PERSISTENT
        )
        await exchange.publish(message, f"a.{i}")
    got = []
    async with queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                got.append((int(message.body), message.headers["n"], message.routing_key))
            if len(got) == 20:
                break
    assert got == [(i, i, f"a.{i}") for i in range(20)]


async def test_a_mandatory_message_without_a_queue_is_returned(url: str, unique: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(aio_pika.exceptions.PublishError):
            await channel.default_exchange.publish(aio_pika.Message(b"x"), unique)


async def test_a_channel_error_leaves_the_connection(url: str, unique: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
            await channel.declare_queue(unique, passive=True)
        again = await connection.channel()
        await again.declare_queue(unique, exclusive=True)


async def test_requeue_and_prefetch(channel: aio_pika.abc.AbstractChannel, unique: str) -> None:
    await channel.set_qos(prefetch_count=1)
    queue = await channel.declare_queue(unique, exclusive=True)
    await channel.default_exchange.publish(aio_pika.Message(b"again"), unique)
    first = await queue.get(timeout=LIMIT_S)
    assert first is not None and not first.redelivered
    await first.reject(requeue=True)
    second = await queue.get(timeout=LIMIT_S)
    assert second is not None and second.redelivered and second.body == b"again"
    await second.ack()
    assert await queue.get(fail=False, timeout=LIMIT_S) is None


async def test_many_publishes_in_flight_are_all_confirmed(
    channel: aio_pika.abc.AbstractChannel, unique: str
) -> None:
    queue = await channel.declare_queue(unique, exclusive=True)
    await asyncio.gather(
        *(channel.default_exchange.publish(aio_pika.Message(b"x" * 100), unique) for _ in range(500))
    )
    assert (await queue.purge()).message_count == 500


async def test_rpc_pattern(channel: aio_pika.abc.AbstractChannel, unique: str) -> None:
    async def square(*, n: int) -> int:
        return n * n

    rpc = await RPC.create(channel)
    await rpc.register(unique, square, auto_delete=True)
    assert await asyncio.gather(*(rpc.call(unique, kwargs={"n": n}) for n in range(5))) == [0, 1, 4, 9, 16]
    await rpc.close()


async def test_a_robust_connection_comes_back_after_kill_9(own_broker: Broker, unique: str) -> None:
    """It declares everything again and consumption goes on; the durable message that waited is there."""
    if not own_broker.amqp_port:
        pytest.skip(f"{own_broker.name} does not speak amqp here")
    url = f"amqp://guest:guest@127.0.0.1:{own_broker.amqp_port}/?reconnect_interval=0.2"
    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(unique, durable=True)
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with message.process():
                await got.put(message.body)

        await channel.default_exchange.publish(
            aio_pika.Message(b"before", delivery_mode=aio_pika.DeliveryMode.PERSISTENT), unique
        )
        reconnected = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: reconnected.set())
        await asyncio.to_thread(own_broker.kill9)
        await asyncio.to_thread(own_broker.restart)
        await asyncio.wait_for(reconnected.wait(), 60)
        await channel.ready()
        await queue.consume(take)
        await channel.default_exchange.publish(aio_pika.Message(b"after"), unique)
        assert [await asyncio.wait_for(got.get(), LIMIT_S) for _ in range(2)] == [b"before", b"after"]
