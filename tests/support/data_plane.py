"""Messages through the data plane and through AMQP, for tests of either."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.management import SETTINGS, Api

__all__ = ["SERVED", "consume", "http", "make_queue", "open_client", "pull", "queue", "until"]

SERVED = {**SETTINGS, "http.listen": "127.0.0.1:0"}
"""Settings of a gateway that serves the data plane and the management API."""


def open_client(gateway: Gateway, user: str = "guest", *, http2: bool = False) -> httpx.Client:
    """A client of the default vhost."""
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/"
    return httpx.Client(base_url=base, auth=(user, user), http1=not http2, http2=http2, timeout=90)


@pytest.fixture(params=[False, True], ids=["http1", "http2"])
def http(gateway: Gateway, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A client of the default vhost, in both versions of HTTP."""
    with open_client(gateway, http2=request.param) as client:
        yield client


@pytest.fixture
def queue(gateway: Gateway, unique: str) -> str:
    """A durable queue."""
    make_queue(gateway, unique)
    return unique


def make_queue(gateway: Gateway, queue: str, **arguments: Any) -> None:
    """Declare a durable queue."""
    api = Api(gateway)
    assert api.status("PUT", f"queues/%2F/{queue}", {"durable": True, "arguments": arguments}) == 201
    api.close()


def consume(gateway: Gateway, queue: str, count: int) -> list[tuple[Any, bytes]]:
    """The next messages of a queue, as an AMQP client gets them."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        got = [channel.basic_get(queue, auto_ack=True) for _ in range(count)]
    return [(properties, body) for _, properties, body in got]


def until(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Ask again until the answer is true; the last answer."""
    ends = time.monotonic() + timeout_s
    while not (answer := condition()):
        assert time.monotonic() < ends, f"not in {timeout_s} s"
        time.sleep(0.02)
    return answer


def pull(http: httpx.Client, queue: str, **body: Any) -> list[dict[str, Any]]:
    answer = http.post(f"queues/{queue}/pull", json=body)
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages
