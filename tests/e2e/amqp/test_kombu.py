"""kombu on its own: the producer and consumer classes, a simple queue, and mailboxes' exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kombu
import pytest
from amqp.exceptions import AccessRefused
from kombu.simple import SimpleQueue

from tests.support.limits import LIMIT_S


@pytest.fixture
def connection(amqp_port: int) -> Iterator[kombu.Connection]:
    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{amqp_port}//") as opened:
        yield opened


def test_producer_and_consumer(connection: kombu.Connection, unique: str) -> None:
    exchange = kombu.Exchange(unique, type="topic", auto_delete=True, durable=False)
    queue = kombu.Queue(unique, exchange, routing_key="a.*", auto_delete=True, durable=False)
    got: list[Any] = []

    def take(body: Any, message: kombu.Message) -> None:
        got.append((body, message.content_type, message.headers["n"]))
        message.ack()

    with connection.Consumer(queue, callbacks=[take]) as consumer:
        consumer.qos(prefetch_count=2)
        producer = connection.Producer(serializer="json")
        for i in range(10):
            producer.publish({"i": i}, exchange=exchange, routing_key="a.b", headers={"n": i})
        while len(got) < 10:
            connection.drain_events(timeout=LIMIT_S)
    assert got == [({"i": i}, "application/json", i) for i in range(10)]


@pytest.mark.parametrize("method", ["PLAIN", "AMQPLAIN"])
def test_logins(amqp_port: int, method: str) -> None:
    url = f"amqp://guest:{{}}@127.0.0.1:{amqp_port}//"
    with kombu.Connection(url.format("guest"), login_method=method) as opened:
        assert opened.default_channel.is_open
    with (
        pytest.raises(AccessRefused, match=f"using authentication mechanism {method}"),
        kombu.Connection(url.format("wrong"), login_method=method) as opened,
    ):
        opened.connect()


def test_simple_queue(connection: kombu.Connection, unique: str) -> None:
    queue: SimpleQueue = connection.SimpleQueue(unique)
    queue.put({"hello": "world"})
    message = queue.get(timeout=LIMIT_S)
    assert message.payload == {"hello": "world"}
    message.reject(requeue=True)
    message = queue.get(timeout=LIMIT_S)
    assert message.delivery_info["redelivered"]
    message.ack()
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.3)
    queue.close()
    connection.default_channel.queue_delete(unique)
