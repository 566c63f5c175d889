"""A gateway of several workers: who they are, and AMQP connections to any vhost."""

from __future__ import annotations

import time
from collections.abc import Callable

import pika

from tests.support.brokers import Gateway

WAIT_S = 60.0


def pids(gateway: Gateway) -> dict[int, int]:
    """Of the workers, by number: the last of each that served."""
    found = {}
    for line in gateway.log_text().splitlines():
        words = dict(word.partition("=")[::2] for word in line.split())
        if "worker serves" in line:
            found[int(words["worker"])] = int(words["pid"])
    return found


def until(done: Callable[[], object], gateway: Gateway) -> None:
    """Wait until `done`."""
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, gateway.log_tail()
        time.sleep(0.02)


def amqp(gateway: Gateway, vhost: str, **more: object) -> pika.BlockingConnection:
    """A connection as guest; `more` is pika's."""
    credentials = pika.PlainCredentials("guest", "guest")
    port = more.pop("port", gateway.amqp_port)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, vhost, credentials, **more)  # type: ignore[arg-type]
    )
