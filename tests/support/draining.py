"""Waiting for queues, and taking all that is in them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pika
import pika.exceptions

from tests.support.brokers import Broker

QUIET_S = 60.0
"""A missing message counts as lost when none came for so long, much longer than the longest delay."""
LIMIT_S = 120.0


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not in {LIMIT_S} s"
        time.sleep(0.005)


def drained(broker: Broker, queue: str, expected: int) -> list[int]:
    """Everything that is in a queue, or comes within the longest delay; `expected` are known to come."""
    found: list[int] = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.amqp_port)) as connection:
        channel = connection.channel()
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < (QUIET_S if len(found) < expected else 0.5):
            _, _, body = channel.basic_get(queue, auto_ack=True)
            if body is not None:
                found.append(int(body))
                quiet_since = time.monotonic()
            else:
                connection.sleep(0.05)
    return found
