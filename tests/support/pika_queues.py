"""Queues and waiting through pika's blocking face, for tests of what queues do with messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

WAIT_S = 120.0
"""Of every wait for a broker; it says nothing of how fast one is."""


@contextmanager
def confirming(amqp_port: int) -> Iterator[BlockingChannel]:
    """A channel with confirms on a connection of its own."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def own_queue(channel: BlockingChannel, **arguments: object) -> str:
    """The name of a new queue of this connection; `max_length=2` is its argument `x-max-length`."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    name: str = channel.queue_declare("", exclusive=True, arguments=named).method.queue
    return name


def declare_durable(amqp_port: int, name: str) -> str:
    """Make a durable queue, for clients that cannot; its name."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        connection.channel().queue_declare(name, durable=True)
    return name


def declare_stream(amqp_port: int, name: str) -> str:
    """Make a stream; its name."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        arguments = {"x-queue-type": "stream"}
        connection.channel().queue_declare(name, durable=True, arguments=arguments)
    return name


def until(ask: Callable[[], Any], enough: Callable[[Any], bool]) -> Any:
    """The first answer that is enough."""
    deadline = time.monotonic() + WAIT_S
    while not enough(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)
    return answer


def bodies(channel: BlockingChannel, name: str, count: int) -> list[bytes]:
    """The bodies of what is in the queue, `count` at least; waits for these."""
    found: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while True:
        method, _, body = channel.basic_get(name, auto_ack=True)
        if method is not None:
            assert body is not None
            found.append(body)
        elif len(found) >= count:
            return found
        else:
            assert time.monotonic() < deadline, found
            time.sleep(0.01)


def consume_in_transactions(amqp_port: int, count: int) -> None:
    """Publish `count` messages to the durable queue "q" in one transaction, acknowledge them in another."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        for _ in range(count):
            channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
        channel.tx_commit()
        for done, (method, _, _) in enumerate(channel.consume("q"), 1):
            if done == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
                channel.tx_commit()
                break
