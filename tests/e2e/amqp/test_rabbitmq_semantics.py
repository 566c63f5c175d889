"""Details of AMQP that RabbitMQ decides and the specification does not: checked beside RabbitMQ 3.10."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.support.pika_queues import confirming, until
from tests.support.pika_queues import own_queue as queue

COUNT = 50


@pytest.fixture
def channel(amqp_port: int) -> Iterator[BlockingChannel]:
    """A channel with confirms."""
    with confirming(amqp_port) as channel:
        yield channel


def count(channel: BlockingChannel, name: str) -> int:
    found: int = channel.queue_declare(name, passive=True).method.message_count
    return found


def get(channel: BlockingChannel, name: str) -> Any:
    return until(lambda: channel.basic_get(name, auto_ack=True), lambda got: got[0] is not None)


@pytest.fixture(params=["queue", "message"])
def zero(request: pytest.FixtureRequest) -> tuple[dict[str, Any], pika.BasicProperties]:
    """A time to live of 0, by the queue's arguments or the message's properties."""
    if request.param == "queue":
        return {"message_ttl": 0}, pika.BasicProperties()
    return {}, pika.BasicProperties(expiration="0")


@pytest.mark.parametrize("dead_letters", [True, False])
def test_a_time_to_live_of_zero_leaves_nothing_to_get(
    channel: BlockingChannel, zero: tuple[dict[str, Any], pika.BasicProperties], dead_letters: bool
) -> None:
    arguments, properties = zero
    dead = queue(channel)
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": dead} if dead_letters else {}
    name = queue(channel, **arguments, **letters)
    for _ in range(COUNT):
        channel.basic_publish("", name, b"x", properties)
        assert channel.basic_get(name, auto_ack=True) == (None, None, None)
    if dead_letters:
        assert until(lambda: count(channel, dead), lambda n: n >= COUNT) == COUNT


def test_a_time_to_live_of_zero_is_enough_for_a_consumer_that_waits_and_ends_at_a_requeue(
    channel: BlockingChannel, zero: tuple[dict[str, Any], pika.BasicProperties]
) -> None:
    arguments, properties = zero
    dead = queue(channel)
    name = queue(channel, dead_letter_exchange="", dead_letter_routing_key=dead, **arguments)
    seen: list[bool] = []

    def give_back(on: BlockingChannel, method: Any, _properties: object, _body: bytes) -> None:
        seen.append(method.redelivered)
        on.basic_nack(method.delivery_tag, requeue=True)

    channel.basic_consume(name, give_back)
    channel.connection.process_data_events(0)
    for _ in range(COUNT):
        channel.basic_publish("", name, b"x", properties)

    def dead_count() -> int:
        channel.connection.process_data_events(0)
        return count(channel, dead)

    assert until(dead_count, lambda n: n >= COUNT) == COUNT
    assert seen == [False] * COUNT


def test_only_as_many_as_a_waiting_consumer_has_credit_for_outlive_a_time_to_live_of_zero(
    channel: BlockingChannel,
) -> None:
    name = queue(channel, message_ttl=0)
    got: list[bytes] = []

    def keep(_on: BlockingChannel, _method: Any, _properties: object, body: bytes) -> None:
        got.append(body)

    channel.basic_qos(prefetch_count=2)
    tag = channel.basic_consume(name, keep)
    for i in range(5):
        channel.basic_publish("", name, b"%d" % i)
    channel.connection.process_data_events(0)
    channel.basic_cancel(tag)
    assert got == [b"0", b"1"]
    assert count(channel, name) == 0


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_consumer_with_room_comes_before_a_get(
    channel: BlockingChannel, amqp_port: int, unique: str, elsewhere: bool
) -> None:
    name = unique
    channel.queue_declare(name, auto_delete=True)
    got: list[bytes] = []
    with confirming(amqp_port) as other:
        consuming = other if elsewhere else channel.connection.channel()
        consuming.basic_consume(name, lambda *delivery: got.append(delivery[3]), auto_ack=True)
        for i in range(COUNT):
            channel.basic_publish("", name, b"%d" % i)
            assert channel.basic_get(name, auto_ack=True)[0] is None

        def arrived() -> int:
            consuming.connection.process_data_events(0)
            return len(got)

        assert until(arrived, lambda n: n >= COUNT) == COUNT


def test_a_get_takes_what_a_full_consumer_leaves(channel: BlockingChannel) -> None:
    name = queue(channel)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(name, lambda *_: None)
    for i in range(3):
        channel.basic_publish("", name, b"%d" % i)
    assert [get(channel, name)[2] for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_copies_go_on_together_through_bindings_between_exchanges(
    channel: BlockingChannel, unique: str, header: str
) -> None:
    first, second = f"{unique}.1", f"{unique}.2"
    for name in (first, second):
        channel.exchange_declare(name, "direct", auto_delete=True)
    channel.exchange_bind(second, first, "a")
    name = queue(channel)
    channel.queue_bind(name, second, "b")
    channel.basic_publish(first, "a", b"x", pika.BasicProperties(headers={header: ["b"]}), mandatory=True)
    assert get(channel, name)[2] == b"x"


def test_delayed_copies_and_those_of_dead_letters_go_on_together(
    channel: BlockingChannel, unique: str
) -> None:
    first, second = f"{unique}.1", f"{unique}.2"
    for name in (first, second):
        channel.exchange_declare(name, "direct", auto_delete=True)
    channel.exchange_bind(second, first, "a")
    name = queue(channel)
    channel.queue_bind(name, second, "b")
    channel.basic_publish(
        first, "a", b"x", pika.BasicProperties(headers={"CC": ["b"], "x-penstock-delay": 1})
    )
    assert get(channel, name)[2] == b"x"
    alive = queue(channel, dead_letter_exchange=first)
    channel.queue_bind(alive, "amq.direct", unique)
    channel.exchange_bind(second, first, unique)
    channel.basic_publish("amq.direct", unique, b"y", pika.BasicProperties(headers={"CC": ["b"]}))
    method, _, _ = until(lambda: channel.basic_get(alive), lambda got: got[0] is not None)
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert get(channel, name)[2] == b"y"


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_an_offset_is_for_streams_only(channel: BlockingChannel, unique: str, kind: str) -> None:
    channel.queue_declare(unique, durable=True, arguments={"x-queue-type": kind})
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.basic_consume(unique, lambda *_: None, arguments={"x-stream-offset": "first"})
    assert caught.value.reply_code == 406
    assert f"invalid arg 'x-stream-offset' for queue '{unique}'" in caught.value.reply_text
    assert f"of queue type rabbit_{kind}_queue" in caught.value.reply_text
    with confirming(channel.connection._impl.params.port) as other:
        other.queue_delete(unique)


@pytest.mark.parametrize(
    ("bound", "sent", "matches"),
    [
        (1, Decimal(1), False),
        (1, 1 << 40, False),
        (1 << 40, 1 << 40, True),
        (1, True, False),
        ([1], [True], False),
    ],
)
def test_headers_of_different_types_differ(
    channel: BlockingChannel, unique: str, bound: object, sent: object, matches: bool
) -> None:
    name = queue(channel)
    channel.queue_bind(name, "amq.headers", "", arguments={"x-match": "all", unique: bound})
    channel.basic_publish("amq.headers", "", b"x", pika.BasicProperties(headers={unique: sent}))
    assert count(channel, name) == matches


@pytest.mark.parametrize(
    ("known", "counts"),
    [
        ([{}], [1]),
        ([{"count": 5}], [6]),
        ([{"count": 1}, {"count": 4}], [2]),
        ([{"count": "5"}], [1]),  # RabbitMQ loses it
    ],
)
def test_deaths_that_a_client_wrote_are_counted_on(
    channel: BlockingChannel, known: list[dict[str, Any]], counts: list[int]
) -> None:
    dead = queue(channel)
    alive = queue(channel, dead_letter_exchange="", dead_letter_routing_key=dead)
    deaths = [{"queue": alive, "reason": "rejected", **one} for one in known]
    channel.basic_publish("", alive, b"x", pika.BasicProperties(headers={"x-death": deaths}))
    method, _, _ = until(lambda: channel.basic_get(alive), lambda got: got[0] is not None)
    channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, _ = get(channel, dead)
    assert [death["count"] for death in properties.headers["x-death"]] == counts


def test_an_expired_message_does_not_count_for_the_length_limit(channel: BlockingChannel) -> None:
    name = queue(channel, max_length=1, overflow="reject-publish")
    channel.basic_publish("", name, b"old", pika.BasicProperties(expiration="0"))
    channel.basic_publish("", name, b"new")
    assert get(channel, name)[2] == b"new"


def test_a_message_that_comes_back_counts_before_the_next_consumer_gets_it(channel: BlockingChannel) -> None:
    name = queue(channel, max_length_bytes=2)
    seen: list[bool] = []

    def give_back(on: BlockingChannel, method: Any, _properties: object, _body: bytes) -> None:
        seen.append(method.redelivered)
        on.basic_nack(method.delivery_tag, requeue=True)

    channel.basic_consume(name, give_back)
    channel.basic_publish("", name, b"long")
    until(lambda: channel.connection.process_data_events(0) or seen, bool)
    until(lambda: count(channel, name), lambda ready: ready == 0)
    channel.connection.process_data_events(0)
    assert seen == [False]
