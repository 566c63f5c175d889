"""Streams through pika: many consumers, each from its own offset; what is acknowledged stays."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.brokers import Broker

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def connection(amqp_port: int) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port))
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def stream(channel: BlockingChannel, unique: str) -> str:
    channel.queue_declare(unique, durable=True, arguments=STREAM)
    return unique


def publish(channel: BlockingChannel, stream: str, first: int, last: int, **properties: Any) -> None:
    for i in range(first, last):
        channel.basic_publish("", stream, str(i).encode(), pika.BasicProperties(**properties))


def read(
    connection: pika.BlockingConnection,
    stream: str,
    count: int,
    offset: Any = "first",
    settle: Callable[[BlockingChannel, int], None] = lambda channel, tag: channel.basic_ack(tag),
    **arguments: Any,
) -> list[tuple[int, bytes]]:
    """(offset, body) of the first `count` messages that a consumer beginning at `offset` gets."""
    got: list[tuple[int, bytes]] = []
    channel = connection.channel()
    channel.basic_qos(prefetch_count=10)

    def take(_: object, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        if len(got) < count:
            got.append((properties.headers["x-stream-offset"], body))
        settle(channel, method.delivery_tag)

    if offset is not None:
        arguments["x-stream-offset"] = offset
    channel.basic_consume(stream, take, arguments=arguments)
    while len(got) < count:
        connection.process_data_events(time_limit=5)
    channel.close()
    return got


def expected(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(i, str(i).encode()) for i in range(first, last)]


def test_each_consumer_reads_everything_and_acknowledging_takes_nothing(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 100)
    assert read(connection, stream, 100) == expected(0, 100)
    assert read(connection, stream, 100) == expected(0, 100)


@pytest.mark.parametrize("offset", [0, 7, 49])
def test_a_consumer_begins_at_its_offset(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str, offset: int
) -> None:
    publish(channel, stream, 0, 50)
    assert read(connection, stream, 50 - offset, offset)[:5] == expected(offset, 50)[:5]


@pytest.mark.penstock_only("RabbitMQ counts a stream's messages every few seconds")
def test_a_declaration_tells_how_many_messages_are_kept(channel: BlockingChannel, stream: str) -> None:
    publish(channel, stream, 0, 100)
    assert channel.queue_declare(stream, passive=True).method.message_count == 100


def test_next_is_what_comes_after_the_consumer(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 5)
    got: list[bytes] = []
    reader = connection.channel()
    reader.basic_qos(prefetch_count=10)
    reader.basic_consume(stream, lambda c, m, p, body: got.append(body))  # "next" is the default
    publish(channel, stream, 5, 8)
    while len(got) < 3:
        connection.process_data_events(time_limit=5)
    assert got == [b"5", b"6", b"7"]


@pytest.mark.penstock_only("RabbitMQ has it in another form or not at all")
def test_last_is_the_last_message(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 30)
    assert read(connection, stream, 1, "last") == expected(29, 30)


@pytest.mark.penstock_only("RabbitMQ has it in another form or not at all")
def test_an_offset_that_is_not_there_is_the_nearest_one(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 3)
    assert read(connection, stream, 1, -5) == expected(0, 1)
    got: list[bytes] = []
    reader = connection.channel()
    reader.basic_qos(prefetch_count=10)
    beyond = {"x-stream-offset": 1000}
    reader.basic_consume(stream, lambda c, m, p, body: got.append(body), arguments=beyond)
    publish(channel, stream, 3, 4)
    while not got:
        connection.process_data_events(time_limit=5)
    assert got == [b"3"]


@pytest.mark.parametrize("ago", ["1h", "7D"])
def test_an_interval_is_that_long_ago(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str, ago: str
) -> None:
    publish(channel, stream, 0, 20)
    assert read(connection, stream, 20, ago) == expected(0, 20)


def test_a_timestamp_is_the_first_message_not_older(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 20)
    past = dt.datetime.now(dt.UTC).replace(tzinfo=None) - dt.timedelta(days=1)
    assert read(connection, stream, 20, past) == expected(0, 20)


@pytest.mark.penstock_only("RabbitMQ 3.10 refuses it with 540; 4 takes it as credit")
def test_requeued_messages_return_credit_too(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 30)
    assert read(connection, stream, 30, settle=lambda c, tag: c.basic_nack(tag, requeue=True)) == expected(
        0, 30
    )


def test_a_message_bound_by_two_patterns_comes_once_and_offsets_have_no_gaps(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    for pattern in (f"{stream}.#", f"{stream}.*.b"):
        channel.queue_bind(stream, "amq.topic", pattern)
    for i in range(20):
        channel.basic_publish("amq.topic", f"{stream}.a.{'b' if i % 2 else 'c'}", str(i).encode())
        channel.basic_publish("amq.topic", "elsewhere", b"not for the stream")
    assert read(connection, stream, 20) == expected(0, 20)
    channel.queue_unbind(stream, "amq.topic", f"{stream}.#")
    channel.basic_publish("amq.topic", f"{stream}.a.c", b"no more")
    channel.basic_publish("amq.topic", f"{stream}.a.b", b"20")
    assert read(connection, stream, 1, 20) == expected(20, 21)


@pytest.mark.penstock_only("RabbitMQ 3.10 drops tables in arrays")
def test_the_headers_of_a_message_stay_beside_its_offset(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"a": 1, "b": ["x", {"c": 2}]},
        message_id="m",
    )
    channel.basic_publish("", stream, b"body", sent)
    channel.basic_publish("", stream, b"bare", pika.BasicProperties())
    reader = connection.channel()
    reader.basic_qos(prefetch_count=10)
    got: list[pika.BasicProperties] = []
    arguments = {"x-stream-offset": "first"}
    reader.basic_consume(stream, lambda c, m, properties, b: got.append(properties), arguments=arguments)
    while len(got) < 2:
        connection.process_data_events(time_limit=5)
    assert got[0].headers == {"a": 1, "b": ["x", {"c": 2}], "x-stream-offset": 0}
    assert (got[0].content_type, got[0].content_encoding, got[0].message_id) == ("text/plain", "utf-8", "m")
    assert got[1].headers == {"x-stream-offset": 1}


@pytest.mark.penstock_only("RabbitMQ has it in another form or not at all")
@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({"x-stream-filter": "red"}, [0, 3]),
        ({"x-stream-filter": ["red", "green"]}, [0, 1, 3, 4]),
        ({"x-stream-filter": "green", "x-stream-match-unfiltered": True}, [1, 2, 4, 5]),
    ],
)
def test_a_filter_lets_only_its_values_through(
    connection: pika.BlockingConnection,
    channel: BlockingChannel,
    stream: str,
    arguments: dict[str, Any],
    kept: list[int],
) -> None:
    for i in range(6):
        value = ("red", "green", None)[i % 3]
        headers = {} if value is None else {"x-stream-filter-value": value}
        publish(channel, stream, i, i + 1, headers=headers)
    got = read(connection, stream, len(kept), **arguments)
    assert got == [(i, str(i).encode()) for i in kept]


@pytest.mark.penstock_only("RabbitMQ has it in another form or not at all")
def test_a_named_cursor_goes_on_where_it_acknowledged(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 20)
    acked = 0

    def first_five(channel: BlockingChannel, tag: int) -> None:
        nonlocal acked
        if acked < 5:
            acked += 1
            channel.basic_ack(tag)

    cursor = {"x-penstock-cursor": "mine"}
    assert read(connection, stream, 10, settle=first_five, **cursor) == expected(0, 10)
    assert read(connection, stream, 15, offset=None, **cursor) == expected(5, 20)


@pytest.mark.penstock_only("RabbitMQ has it in another form or not at all")
def test_two_consumers_cannot_have_the_same_cursor(connection: pika.BlockingConnection, stream: str) -> None:
    for turn in range(2):
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        arguments = {"x-penstock-cursor": "mine"}
        if turn == 0:
            channel.basic_consume(stream, lambda *_: None, arguments=arguments)
        else:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
                channel.basic_consume(stream, lambda *_: None, arguments=arguments)
            assert refused.value.reply_code == 403


@pytest.mark.penstock_only("RabbitMQ's nodes of these tests lose their names")
def test_offsets_and_transient_messages_survive_a_restart(own_broker: Broker, unique: str) -> None:
    def connect() -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", own_broker.amqp_port))

    with connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(unique, durable=True, arguments=STREAM)
        publish(channel, unique, 0, 10)
        publish(channel, unique, 10, 20, delivery_mode=2)
    own_broker.restart()
    with connect() as connection:
        assert read(connection, unique, 20) == expected(0, 20)
        channel = connection.channel()
        channel.confirm_delivery()
        publish(channel, unique, 20, 30)
    own_broker.kill9()
    own_broker.start()
    with connect() as connection:
        assert read(connection, unique, 15, 15) == expected(15, 30)


def test_a_message_stays_whatever_its_expiration(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 3, expiration="1")
    ends = time.monotonic() + 0.05
    while time.monotonic() < ends:
        connection.process_data_events(time_limit=0.01)
    assert read(connection, stream, 3) == expected(0, 3)


def test_a_deleted_stream_cancels_its_consumers(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    cancelled: list[object] = []
    reader = connection.channel()
    reader.basic_qos(prefetch_count=1)
    reader.add_on_cancel_callback(cancelled.append)
    reader.basic_consume(stream, lambda *_: None)
    channel.queue_delete(stream)
    while not cancelled:
        connection.process_data_events(time_limit=5)


MISTAKES: list[tuple[str, Callable[[BlockingChannel, str], object], int, str]] = [
    (
        "no prefetch",
        lambda channel, stream: channel.basic_consume(stream, lambda *_: None),
        406,
        "consumer prefetch count is not set for",
    ),
    (
        "no acknowledgements",
        lambda channel, stream: (
            channel.basic_qos(prefetch_count=1),
            channel.basic_consume(stream, lambda *_: None, auto_ack=True),
        ),
        540,
        "automatic acknowledgement not supported by",
    ),
    (
        "shared prefetch",
        lambda channel, stream: (
            channel.basic_qos(prefetch_count=1),
            channel.basic_qos(prefetch_count=1, global_qos=True),
            channel.basic_consume(stream, lambda *_: None),
        ),
        540,
        "global qos",
    ),
    (
        "get",
        lambda channel, stream: channel.basic_get(stream),
        540,
        "basic.get not supported by stream queues queue '",
    ),
    ("purge", lambda channel, stream: channel.queue_purge(stream), 540, "not supported"),
    (
        "exclusive",
        lambda channel, stream: channel.queue_declare(
            stream + "x", durable=True, exclusive=True, arguments=STREAM
        ),
        406,
        "invalid property 'exclusive-owner' for queue",
    ),
    (
        "not durable",
        lambda channel, stream: channel.queue_declare(stream + "x", arguments=STREAM),
        406,
        "invalid property 'non-durable' for queue",
    ),
]


@pytest.mark.parametrize(("mistake", "code", "text"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_refused_in_the_protocols_terms(
    connection: pika.BlockingConnection,
    stream: str,
    mistake: Callable[[BlockingChannel, str], object],
    code: int,
    text: str,
) -> None:
    channel = connection.channel()
    refusal = (
        pika.exceptions.ConnectionClosedByBroker if code == 540 else pika.exceptions.ChannelClosedByBroker
    )
    with pytest.raises(refusal) as refused:
        mistake(channel, stream)
    assert refused.value.reply_code == code
    assert text in refused.value.reply_text


@pytest.mark.penstock_only("RabbitMQ has it in another form or not at all")
@pytest.mark.parametrize("offset", ["yesterday", "5x", True, ["first"]])
def test_an_offset_that_means_nothing_is_refused(
    connection: pika.BlockingConnection, stream: str, offset: Any
) -> None:
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.basic_consume(stream, lambda *_: None, arguments={"x-stream-offset": offset})
    assert refused.value.reply_code == 406
    assert "x-stream-offset" in refused.value.reply_text


def test_a_super_stream_is_an_exchange_over_partitions(
    connection: pika.BlockingConnection, channel: BlockingChannel, unique: str
) -> None:
    channel.exchange_declare(unique, "direct", durable=True, arguments={"x-super-stream": True})
    for order in range(2):
        name = f"{unique}-{order}"
        channel.queue_declare(name, durable=True, arguments={**STREAM, "x-stream-filter-size-bytes": 32})
        channel.queue_bind(name, unique, str(order), arguments={"x-stream-partition-order": order})
    for i in range(6):
        channel.basic_publish(unique, str(i % 2), str(i).encode())
    assert read(connection, f"{unique}-0", 3) == [(0, b"0"), (1, b"2"), (2, b"4")]
    assert read(connection, f"{unique}-1", 3) == [(0, b"1"), (1, b"3"), (2, b"5")]
    channel.exchange_delete(unique)
