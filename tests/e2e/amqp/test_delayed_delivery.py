"""Celery's native delayed delivery, which kombu builds of topic exchanges, TTL queues and dead letters.

28 exchanges, each bound to the next and to a queue whose messages expire into the next: the bits of the delay
choose the way. No part of it is a feature for delays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import kombu
import pytest
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    calculate_routing_key,
    declare_native_delayed_delivery_exchanges_and_queues,
    level_name,
)

from tests.support.limits import LIMIT_S


@pytest.fixture
def connection(amqp_port: int, unique: str) -> Iterator[kombu.Connection]:
    """A connection; what the test declared is deleted after it."""
    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{amqp_port}//") as opened:
        yield opened
    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{amqp_port}//") as again:
        channel = again.default_channel
        for level in range(28):
            channel.exchange_delete(level_name(level, unique))
            channel.queue_delete(level_name(level, unique))
        for name in (unique, f"{unique}_celery_delayed_delivery"):
            channel.exchange_delete(name)
        channel.queue_delete(unique)


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_each_message_comes_after_its_delay(
    connection: kombu.Connection, unique: str, queue_type: str
) -> None:
    declare_native_delayed_delivery_exchanges_and_queues(connection, queue_type, unique)
    exchange = kombu.Exchange(unique, type="topic")
    queue = kombu.Queue(unique, exchange, routing_key="work", durable=True)
    queue.bind(connection.default_channel).declare()
    bind_queue_to_native_delayed_delivery_exchange(connection, queue, unique)
    # Again, as every worker that starts does.
    declare_native_delayed_delivery_exchanges_and_queues(connection, queue_type, unique)
    came: list[tuple[int, float]] = []

    def take(body: int, message: kombu.Message) -> None:
        came.append((body, time.monotonic()))
        assert message.delivery_info["routing_key"].endswith(".work")
        message.ack()

    sent = {}
    with connection.Consumer(queue, callbacks=[take]), connection.Producer() as producer:
        for delay_s in (3, 1, 2):
            key = calculate_routing_key(delay_s, "work")
            producer.publish(delay_s, exchange=level_name(27, unique), routing_key=key)
            sent[delay_s] = time.monotonic()
        # Nor is one without a delay held back by those.
        producer.publish(0, exchange=unique, routing_key="x.work")
        sent[0] = time.monotonic()
        while len(came) < 4:
            connection.drain_events(timeout=LIMIT_S)
    assert [delay_s for delay_s, _ in came] == [0, 1, 2, 3]
    for delay_s, at in came:
        assert delay_s - 0.01 <= at - sent[delay_s] < delay_s + LIMIT_S
