"""Direct reply-to through pika and aio-pika."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aio_pika
import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.limits import LIMIT_S

NAME = "amq.rabbitmq.reply-to"


@pytest.fixture
def connection(amqp_port: int) -> Iterator[pika.BlockingConnection]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        yield connection


@pytest.fixture
def server(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def queue(server: BlockingChannel) -> str:
    name: str = server.queue_declare("", exclusive=True).method.queue
    return name


@pytest.fixture
def replies() -> list[Any]:
    return []


@pytest.fixture
def asker(connection: pika.BlockingConnection, replies: list[Any]) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_consume(NAME, lambda _, m, p, b: replies.append((m, p, b)), auto_ack=True)
    return channel


def request(asker: BlockingChannel, server: BlockingChannel, queue: str) -> str:
    """The address that the server gets with a request."""
    asker.basic_publish("", queue, b"?", pika.BasicProperties(reply_to=NAME, correlation_id="7"))
    _, properties, _ = server.basic_get(queue, auto_ack=True)
    assert properties.correlation_id == "7"
    address: str = properties.reply_to
    assert address.startswith(NAME + ".")
    return address


def test_request_and_reply(
    asker: BlockingChannel, server: BlockingChannel, queue: str, replies: list[Any]
) -> None:
    address = request(asker, server, queue)
    declared = server.queue_declare(address, passive=True).method
    assert (declared.message_count, declared.consumer_count) == (0, 1)
    server.basic_publish("", address, b"!", pika.BasicProperties(correlation_id="7"))
    while not replies:
        asker.connection.process_data_events(time_limit=5)
    method, properties, body = replies[0]
    assert (method.exchange, method.routing_key, method.delivery_tag) == ("", address, 1)
    assert (properties.correlation_id, body) == ("7", b"!")


def test_a_mandatory_reply_is_returned_and_delivered(
    asker: BlockingChannel, server: BlockingChannel, queue: str, replies: list[Any]
) -> None:
    address = request(asker, server, queue)
    server.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        server.basic_publish("", address, b"!", mandatory=True)
    while not replies:
        asker.connection.process_data_events(time_limit=5)
    assert replies[0][2] == b"!"


def test_the_pseudo_queue_is_always_there(server: BlockingChannel) -> None:
    assert server.queue_declare(NAME, passive=True).method.queue == NAME


def test_an_address_that_is_gone(asker: BlockingChannel, server: BlockingChannel, queue: str) -> None:
    address = request(asker, server, queue)
    asker.close()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        server.queue_declare(address, passive=True)
    assert closed.value.reply_code == 404


@pytest.mark.parametrize(
    ("auto_ack", "text"),
    [(False, "reply consumer cannot acknowledge"), (True, "reply consumer already set")],
)
def test_refused_consumers(asker: BlockingChannel, auto_ack: bool, text: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        asker.basic_consume(NAME, lambda *_: None, auto_ack=auto_ack)
    assert closed.value.reply_text == f"PRECONDITION_FAILED - {text}"


def test_a_request_without_a_consumer(connection: pika.BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.basic_publish("", queue, b"?", pika.BasicProperties(reply_to=NAME))
    assert closed.value.reply_text == "PRECONDITION_FAILED - fast reply consumer does not exist"


async def test_aio_pika(amqp_port: int) -> None:
    async with await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{amqp_port}/") as connection:
        asker, server = await connection.channel(), await connection.channel()
        queue = await server.declare_queue("", exclusive=True)

        async def serve(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            assert message.reply_to is not None
            reply = aio_pika.Message(message.body * 2, correlation_id=message.correlation_id)
            await server.default_exchange.publish(reply, message.reply_to, mandatory=False)

        await queue.consume(serve, no_ack=True)
        got: asyncio.Queue[aio_pika.abc.AbstractIncomingMessage] = asyncio.Queue()
        pseudo = await asker.get_queue(NAME, ensure=False)
        await pseudo.consume(got.put, no_ack=True)
        for i in range(100):
            message = aio_pika.Message(str(i).encode(), reply_to=NAME, correlation_id=str(i))
            await asker.default_exchange.publish(message, queue.name)
        answers = [await asyncio.wait_for(got.get(), LIMIT_S) for _ in range(100)]
        assert [message.body for message in answers] == [str(i).encode() * 2 for i in range(100)]
