"""Transactions through pika and aio-pika."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import aio_pika
import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.brokers import Broker


@pytest.fixture
def connection(amqp_port: int) -> Iterator[pika.BlockingConnection]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        yield connection


@pytest.fixture
def tx(connection: pika.BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.tx_select()
    return channel


@pytest.fixture
def other(connection: pika.BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def queue(other: BlockingChannel) -> str:
    name: str = other.queue_declare("", exclusive=True).method.queue
    return name


def count(channel: BlockingChannel, queue: str) -> int:
    ready: int = channel.queue_declare(queue, passive=True).method.message_count
    return ready


def test_commit_publishes(tx: BlockingChannel, other: BlockingChannel, queue: str) -> None:
    for i in range(100):
        tx.basic_publish("", queue, str(i).encode())
    assert count(tx, queue) == 0
    tx.tx_commit()
    bodies = [other.basic_get(queue, auto_ack=True)[2] for _ in range(100)]
    assert bodies == [str(i).encode() for i in range(100)]


def test_rollback_publishes_nothing(tx: BlockingChannel, queue: str) -> None:
    tx.basic_publish("", queue, b"never")
    tx.tx_rollback()
    tx.tx_commit()
    assert count(tx, queue) == 0


def test_acknowledgements_are_part_of_it(tx: BlockingChannel, other: BlockingChannel, queue: str) -> None:
    other.basic_publish("", queue, b"once")
    method, _, _ = tx.basic_get(queue)
    tx.basic_ack(method.delivery_tag)
    tx.tx_rollback()
    tx.basic_ack(method.delivery_tag)  # it is still out
    tx.tx_commit()
    tx.close()
    assert count(other, queue) == 0


def test_uncommitted_acknowledgements_are_undone(
    tx: BlockingChannel, other: BlockingChannel, queue: str
) -> None:
    other.basic_publish("", queue, b"again")
    method, _, _ = tx.basic_get(queue)
    tx.basic_ack(method.delivery_tag)
    tx.close()
    method, _, body = other.basic_get(queue, auto_ack=True)
    assert (body, method.redelivered) == (b"again", True)


def test_the_same_delivery_twice(tx: BlockingChannel, other: BlockingChannel, queue: str) -> None:
    other.basic_publish("", queue, b"x")
    method, _, _ = tx.basic_get(queue)
    tx.basic_ack(method.delivery_tag)
    tx.basic_ack(method.delivery_tag)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        tx.tx_commit()
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        f"PRECONDITION_FAILED - unknown delivery tag {method.delivery_tag}",
    )


def test_returns_come_before_commit_ok(tx: BlockingChannel, unique: str) -> None:
    returned: list[bytes] = []
    tx.add_on_return_callback(lambda _c, _m, _p, body: returned.append(body))
    tx.basic_publish("", unique, b"back", mandatory=True)
    tx.tx_commit()
    tx.connection.process_data_events(time_limit=0)
    assert returned == [b"back"]


@pytest.mark.parametrize("method", ["tx_commit", "tx_rollback"])
def test_without_select(other: BlockingChannel, method: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        getattr(other, method)()
    assert closed.value.reply_text == "PRECONDITION_FAILED - channel is not transactional"


def test_not_with_confirms(tx: BlockingChannel, other: BlockingChannel) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        other.tx_select()
    assert closed.value.reply_text == "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        tx.confirm_delivery()
    assert closed.value.reply_text == "PRECONDITION_FAILED - cannot switch from tx to confirm mode"


async def test_aio_pika(amqp_port: int) -> None:
    async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{amqp_port}/") as connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue("", exclusive=True)
        with pytest.raises(RuntimeError, match="no"):
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"no"), queue.name)
                raise RuntimeError("no")
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"yes"), queue.name)
        message = await queue.get(no_ack=True)
        assert message.body == b"yes"
        assert await queue.get(no_ack=True, fail=False) is None


def test_a_commit_survives_kill_9(own_broker: Broker, unique: str) -> None:
    def connect() -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", own_broker.amqp_port))

    connection = connect()
    channel = connection.channel()
    channel.queue_declare(unique, durable=True)
    channel.tx_select()
    persistent = pika.BasicProperties(delivery_mode=2)
    channel.basic_publish("", unique, b"old", persistent)
    channel.tx_commit()
    method, _, body = channel.basic_get(unique)
    assert body == b"old"
    channel.basic_publish("", unique, b"new", persistent)
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    own_broker.kill9()
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()
    own_broker.restart()
    with connect() as connection:
        channel = connection.channel()
        assert channel.basic_get(unique, auto_ack=True)[2] == b"new"
        assert channel.basic_get(unique) == (None, None, None)


def test_a_commit_settles_what_is_left_when_a_queue_was_deleted_meanwhile(
    tx: BlockingChannel, other: BlockingChannel, queue: str
) -> None:
    gone = other.queue_declare("", exclusive=True).method.queue
    for name in (gone, queue):
        other.basic_publish("", name, b"in")
        method, _, body = tx.basic_get(name)
        assert method is not None and body == b"in"
        tx.basic_ack(method.delivery_tag)
    tx.basic_publish("", queue, b"out")
    other.queue_delete(gone)
    tx.tx_commit()
    method, _, body = other.basic_get(queue, auto_ack=True)
    assert (body, method is not None and method.redelivered) == (b"out", False)
    assert count(tx, queue) == 0
