"""Exchanges of type `x-recent-history` through pika: what a queue gets that is bound later."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.support.limits import LIMIT_S
from tests.support.pika_queues import bodies, confirming
from tests.support.pika_queues import own_queue as queue

TYPE = "x-recent-history"


@pytest.fixture
def channel(amqp_port: int) -> Iterator[BlockingChannel]:
    """A channel with confirms: what was published has been routed."""
    with confirming(amqp_port) as channel:
        yield channel


@pytest.fixture
def exchange(channel: BlockingChannel, unique: str) -> Iterator[str]:
    """One that keeps three messages."""
    channel.exchange_declare(unique, TYPE, arguments={"x-recent-history-length": 3})
    yield unique
    if channel.is_open:
        channel.exchange_delete(unique)


def publish(channel: BlockingChannel, exchange: str, *numbers: int, **headers: object) -> None:
    for number in numbers:
        channel.basic_publish(exchange, f"key{number}", b"%d" % number, BasicProperties(headers=headers))


def test_a_queue_bound_later_gets_the_last_messages_first_and_then_all(
    channel: BlockingChannel, exchange: str
) -> None:
    first = queue(channel)
    channel.queue_bind(first, exchange)
    publish(channel, exchange, 1, 2, 3, 4, 5)
    late = queue(channel)
    channel.queue_bind(late, exchange)
    publish(channel, exchange, 6)
    assert bodies(channel, first, 6) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert bodies(channel, late, 4) == [b"3", b"4", b"5", b"6"]


def test_it_is_as_it_was_published(channel: BlockingChannel, exchange: str) -> None:
    properties = BasicProperties(headers={"a": 1}, message_id="m", delivery_mode=2)
    channel.basic_publish(exchange, "the.key", b"body", properties)
    late = queue(channel)
    channel.queue_bind(late, exchange, routing_key="another")
    deadline = time.monotonic() + LIMIT_S
    method = None
    while method is None:
        assert time.monotonic() < deadline
        method, found, body = channel.basic_get(late, auto_ack=True)
    assert (method.exchange, method.routing_key, method.redelivered) == (exchange, "the.key", False)
    assert (found.headers, found.message_id, found.delivery_mode, body) == ({"a": 1}, "m", 2, b"body")


def test_the_same_binding_again_brings_nothing_another_one_does(
    channel: BlockingChannel, exchange: str
) -> None:
    publish(channel, exchange, 1)
    name = queue(channel)
    channel.queue_bind(name, exchange, routing_key="a")
    channel.queue_bind(name, exchange, routing_key="a")
    assert bodies(channel, name, 1) == [b"1"]
    channel.queue_bind(name, exchange, routing_key="b")
    assert bodies(channel, name, 1) == [b"1"]


def test_a_message_that_is_not_to_be_stored_is_for_who_is_bound(
    channel: BlockingChannel, exchange: str
) -> None:
    first = queue(channel)
    channel.queue_bind(first, exchange)
    publish(channel, exchange, 1)
    publish(channel, exchange, 2, **{"x-recent-history-no-store": True})
    publish(channel, exchange, 3, **{"x-recent-history-no-store": False})
    late = queue(channel)
    channel.queue_bind(late, exchange)
    assert bodies(channel, first, 3) == [b"1", b"2", b"3"]
    assert bodies(channel, late, 2) == [b"1", b"3"]


@pytest.mark.not_on("rabbitmq", "3.10 ends the connection with 541 INTERNAL_ERROR here")
def test_an_exchange_bound_later_routes_it_by_its_keys(
    channel: BlockingChannel, exchange: str, unique: str
) -> None:
    publish(channel, exchange, 1, 2)
    wanted, behind = queue(channel), f"{unique}.direct"
    channel.exchange_declare(behind, "direct", auto_delete=True)
    channel.queue_bind(wanted, behind, routing_key="key2")
    channel.exchange_bind(behind, exchange)
    assert bodies(channel, wanted, 1) == [b"2"]


def test_messages_from_another_exchange_are_remembered(
    channel: BlockingChannel, exchange: str, unique: str
) -> None:
    before = f"{unique}.fanout"
    channel.exchange_declare(before, "fanout", auto_delete=True)
    channel.exchange_bind(exchange, before)
    publish(channel, before, 1)
    late = queue(channel)
    channel.queue_bind(late, exchange)
    assert bodies(channel, late, 1) == [b"1"]


def test_it_keeps_twenty_where_it_does_not_say(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, TYPE, auto_delete=True)
    publish(channel, unique, *range(25))
    late = queue(channel)
    channel.queue_bind(late, unique)
    assert bodies(channel, late, 20) == [b"%d" % number for number in range(5, 25)]


@pytest.mark.parametrize(("length", "shown"), [(0, "0"), (-1, "-1"), ("many", '<<"many">>')])
def test_an_impossible_length_is_refused(
    channel: BlockingChannel, unique: str, length: object, shown: str
) -> None:
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.exchange_declare(unique, TYPE, arguments={"x-recent-history-length": length})
    assert refused.value.reply_code == 406
    assert refused.value.reply_text == (
        f"PRECONDITION_FAILED - Invalid argument {shown}, 'x-recent-history-length' "
        "must be a positive integer"
    )


def test_a_deleted_exchange_forgets(channel: BlockingChannel, exchange: str) -> None:
    publish(channel, exchange, 1)
    channel.exchange_delete(exchange)
    channel.exchange_declare(exchange, TYPE)
    publish(channel, exchange, 2)
    late = queue(channel)
    channel.queue_bind(late, exchange)
    assert bodies(channel, late, 1) == [b"2"]
