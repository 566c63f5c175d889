"""Messages through the data plane and through AMQP, for tests of either."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pika

from tests.support.brokers import Gateway

__all__ = ["consume", "pull", "until"]


def consume(gateway: Gateway, queue: str, count: int) -> list[tuple[Any, bytes]]:
    """The next messages of a queue, as an AMQP client gets them."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        got = [channel.basic_get(queue, auto_ack=True) for _ in range(count)]
    return [(properties, body) for _, properties, body in got]


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait until it is true."""
    ends = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ends, f"not in {timeout_s} s"
        time.sleep(0.02)


def pull(http: httpx.Client, queue: str, **body: Any) -> list[dict[str, Any]]:
    answer = http.post(f"queues/{queue}/pull", json=body)
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages
