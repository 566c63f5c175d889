"""Single active consumer through pika."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel


@pytest.fixture
def connection(amqp_port: int) -> Iterator[pika.BlockingConnection]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        yield connection


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture(params=["classic", "quorum"])
def queue(request: pytest.FixtureRequest, channel: BlockingChannel, unique: str) -> Iterator[str]:
    arguments = {"x-single-active-consumer": True, "x-queue-type": request.param}
    channel.queue_declare(unique, durable=True, arguments=arguments)
    yield unique
    channel.queue_delete(unique)


def test_the_next_takes_over(
    connection: pika.BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    got: list[tuple[str, bytes]] = []
    tags = []
    for name in ("first", "second", "third"):
        consumer = connection.channel()

        def take(channel: BlockingChannel, method: object, _: object, body: bytes, name: str = name) -> None:
            got.append((name, body))
            channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

        tags.append((consumer, consumer.basic_consume(queue, take)))

    def after(count: int) -> list[tuple[str, bytes]]:
        while len(got) < count:
            connection.process_data_events(time_limit=5)
        return got[:]

    for i in range(10):
        channel.basic_publish("", queue, str(i).encode())
    assert after(10) == [("first", str(i).encode()) for i in range(10)]
    consumer, tag = tags[0]
    consumer.basic_cancel(tag)
    channel.basic_publish("", queue, b"cancelled")
    assert after(11)[-1] == ("second", b"cancelled")
    tags[1][0].close()
    channel.basic_publish("", queue, b"closed")
    assert after(12)[-1] == ("third", b"closed")


@pytest.mark.parametrize("queue", ["classic"], indirect=True)
def test_no_exclusive_consumers(connection: pika.BlockingConnection, queue: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        connection.channel().basic_consume(queue, lambda *_: None, exclusive=True)
    assert closed.value.reply_code == 403
    assert "in exclusive use" in closed.value.reply_text


@pytest.mark.parametrize("queue", ["quorum"], indirect=True)
def test_no_get_from_a_quorum_queue(connection: pika.BlockingConnection, queue: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        connection.channel().basic_get(queue)
    assert closed.value.reply_code == 405
    assert closed.value.reply_text.endswith("not supported by quorum queues with single active consumer")
