"""Length limits through pika: what is refused, what its publisher hears, who gets it all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError

from tests.support.pika_queues import bodies, confirming
from tests.support.pika_queues import own_queue as queue


@pytest.fixture
def channel(amqp_port: int) -> Iterator[BlockingChannel]:
    """A channel with confirms."""
    with confirming(amqp_port) as channel:
        yield channel


def publish(channel: BlockingChannel, key: str, body: bytes, exchange: str = "") -> bool:
    """Whether the broker took it."""
    try:
        channel.basic_publish(exchange, key, body)
    except NackError:
        return False
    return True


def test_reject_publish_keeps_the_oldest(channel: BlockingChannel, unique: str) -> None:
    full, other = queue(channel, max_length=2, overflow="reject-publish"), queue(channel)
    channel.exchange_declare(unique, "fanout", auto_delete=True)
    for name in (full, other):
        channel.queue_bind(name, unique)
    assert [publish(channel, "", b"%d" % i, unique) for i in range(4)] == [True, True, False, False]
    assert bodies(channel, full, 2) == [b"0", b"1"]
    assert bodies(channel, other, 4) == [b"0", b"1", b"2", b"3"]
    assert publish(channel, full, b"4")
    assert bodies(channel, full, 1) == [b"4"]


def test_unacknowledged_messages_are_not_counted(channel: BlockingChannel) -> None:
    name = queue(channel, max_length=1, overflow="reject-publish")
    assert publish(channel, name, b"a")
    assert channel.basic_get(name)[0] is not None
    assert publish(channel, name, b"b")
    assert not publish(channel, name, b"c")


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_bytes_of_bodies_are_limited_exactly(channel: BlockingChannel, overflow: str) -> None:
    name = queue(channel, max_length_bytes=10, overflow=overflow)
    taken = [publish(channel, name, body) for body in (b"aaaa", b"bbbbbb", b"c")]
    assert taken == [True, True, overflow == "drop-head"]
    assert bodies(channel, name, 2) == ([b"aaaa", b"bbbbbb"] if not taken[2] else [b"bbbbbb", b"c"])


def test_a_message_larger_than_the_queue_may_be_leaves_with_all_the_others(
    channel: BlockingChannel,
) -> None:
    dead = queue(channel)
    name = queue(channel, max_length_bytes=10, dead_letter_exchange="", dead_letter_routing_key=dead)
    for body in (b"a", b"b" * 11):
        assert publish(channel, name, body)
    assert bodies(channel, dead, 2) == [b"a", b"b" * 11]
    assert bodies(channel, name, 0) == []


def test_reject_publish_dlx_dead_letters_the_newest(channel: BlockingChannel) -> None:
    dead = queue(channel)
    name = queue(
        channel,
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
    )
    assert [publish(channel, name, body) for body in (b"a", b"b")] == [True, False]
    assert bodies(channel, dead, 1) == [b"b"]
    assert bodies(channel, name, 1) == [b"a"]
