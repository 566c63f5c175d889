"""Priorities of messages and of consumers through pika."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.support.limits import LIMIT_S
from tests.support.pika_queues import confirming
from tests.support.pika_queues import own_queue as queue


@pytest.fixture
def channel(amqp_port: int) -> Iterator[BlockingChannel]:
    """A channel with confirms."""
    with confirming(amqp_port) as channel:
        yield channel


def publish(channel: BlockingChannel, name: str, *messages: tuple[bytes, int | None]) -> None:
    for body, priority in messages:
        channel.basic_publish("", name, body, pika.BasicProperties(priority=priority))


def bodies(channel: BlockingChannel, name: str) -> list[bytes]:
    found = []
    while (got := channel.basic_get(name, auto_ack=True))[0] is not None:
        assert got[2] is not None
        found.append(got[2])
    return found


@pytest.mark.parametrize(
    ("priority_max", "order"), [(0, b"abcdef"), (1, b"bcdeaf"), (5, b"cebdaf"), (255, b"cebdaf")]
)
def test_higher_priorities_come_first(channel: BlockingChannel, priority_max: int, order: bytes) -> None:
    name = queue(channel, max_priority=priority_max)
    publish(channel, name, (b"a", None), (b"b", 3), (b"c", 255), (b"d", 3), (b"e", 9), (b"f", 0))
    assert b"".join(bodies(channel, name)) == order


def test_a_message_that_is_given_back_keeps_its_place_in_its_priority(channel: BlockingChannel) -> None:
    name = queue(channel, max_priority=5)
    publish(channel, name, (b"a", 2), (b"b", 4), (b"c", 4))
    method, _, body = channel.basic_get(name)
    assert method is not None and body == b"b"
    publish(channel, name, (b"d", 3))
    channel.basic_nack(method.delivery_tag, requeue=True)
    assert bodies(channel, name) == [b"b", b"c", b"d", b"a"]


@pytest.mark.parametrize("value", [256, -1, "high"])
def test_an_impossible_priority_is_refused(channel: BlockingChannel, value: object) -> None:
    with pytest.raises(ChannelClosedByBroker) as refused:
        queue(channel, max_priority=value)
    assert refused.value.reply_code == 406


def wait(channel: BlockingChannel, got: list[str], count: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while len(got) < count:
        assert time.monotonic() < deadline, got
        channel.connection.process_data_events(0.05)


def test_the_consumers_of_the_highest_priority_with_room_come_first(channel: BlockingChannel) -> None:
    name = queue(channel)
    channel.basic_qos(prefetch_count=2)
    got: list[str] = []
    for tag, priority in (("low", -1), ("none", None), ("high", 5), ("also high", 5)):
        channel.basic_consume(
            name,
            lambda _c, method, _p, _b: got.append(method.consumer_tag),
            consumer_tag=tag,
            arguments=None if priority is None else {"x-priority": priority},
        )
    publish(channel, name, *((b"x", None) for _ in range(7)))
    wait(channel, got, 7)
    assert sorted(got[:4]) == ["also high", "also high", "high", "high"]
    assert got[4:] == ["none", "none", "low"]


@pytest.mark.parametrize("value", ["1", True])
def test_a_consumer_priority_that_is_no_integer_is_refused(channel: BlockingChannel, value: object) -> None:
    name = queue(channel)
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.basic_consume(name, lambda *_: None, arguments={"x-priority": value})
    assert refused.value.reply_code == 406
