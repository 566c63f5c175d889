"""`peek` shows what is ready in a queue, and nothing else notices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pika
import pytest

from tests.support.brokers import Gateway
from tests.support.data_plane import SERVED, make_queue, open_client, until
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ takes messages out to show them")

COUNT = 120
BODY = b"x" * (48 << 10)
"""Of these there are more than all caches together have room for."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    caches = ("tail_cache_bytes", "read_cache_bytes", "feed_cache_bytes", "segment_bytes")
    settings = {**SERVED, **{f"log.{name}": "2MiB" for name in caches}}
    with Gateway(tmp_path_factory.mktemp("peek"), settings=settings) as running:
        yield running


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with open_client(gateway) as client:
        yield client


@pytest.fixture
def channel(gateway: Gateway) -> Iterator[Any]:
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def send(channel: Any, queue: str, *bodies: bytes, priority: int | None = None) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, priority=priority))


def peek(http: httpx.Client, queue: str, **body: Any) -> list[dict[str, Any]]:
    answer = http.post(f"queues/{queue}/peek", json=body)
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


def test_nobody_notices(gateway: Gateway, http: httpx.Client, unique: str) -> None:
    make_queue(gateway, unique, **{"x-queue-type": "quorum", "x-delivery-limit": 1})
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        send(connection.channel(), unique, b"a", b"b", b"c")
    with closing(Api(gateway)) as api:
        before = api.get(f"queues/%2F/{unique}")
        for _ in range(3):
            shown = peek(http, unique, max=2)
            assert [(one["value"], one["deliveries"], one["redelivered"]) for one in shown] == [
                ("a", 0, False), ("b", 0, False),
            ]  # fmt: skip
            assert "handle" not in shown[0] and shown[0]["routing_key"] == unique
        after = api.get(f"queues/%2F/{unique}")
        for name in ("messages_ready", "messages_unacknowledged"):
            assert after[name] == before[name]
        for name in ("publish", "deliver_get", "redeliver", "ack"):
            assert after["message_stats"][name] == before["message_stats"][name], name
    gateway.restart()
    with open_client(gateway) as http:
        assert [one["deliveries"] for one in peek(http, unique)] == [0, 0, 0]
    with closing(pika.BlockingConnection(parameters)) as again:
        mine = again.channel()
        got = [mine.basic_get(unique) for _ in range(3)]
        assert [(body, method.redelivered) for method, _, body in got] == [
            (b"a", False), (b"b", False), (b"c", False),
        ]  # fmt: skip


def test_delivered_messages_are_hidden_and_returned_ones_shown(
    gateway: Gateway, http: httpx.Client, channel: Any, unique: str
) -> None:
    make_queue(gateway, unique, **{"x-max-priority": 5})
    send(channel, unique, b"low", b"low too", priority=1)
    send(channel, unique, b"high", priority=4)
    method, _, body = channel.basic_get(unique)
    assert body == b"high"
    assert [one["value"] for one in peek(http, unique)] == ["low", "low too"]
    channel.basic_nack(method.delivery_tag, requeue=True)
    until(lambda: len(peek(http, unique)) == 3)
    assert [(one["value"], one["deliveries"]) for one in peek(http, unique)] == [
        ("high", 1), ("low", 0), ("low too", 0),
    ]  # fmt: skip


def test_a_consumer_gets_what_was_looked_at(
    gateway: Gateway, http: httpx.Client, channel: Any, unique: str
) -> None:
    make_queue(gateway, unique)
    send(channel, unique, b"1", b"2")
    assert len(peek(http, unique)) == 2
    taken: list[bytes] = []
    channel.basic_consume(unique, lambda *got: taken.append(got[3]), auto_ack=True)
    send(channel, unique, b"3")
    until(lambda: channel.connection.process_data_events(0.05) or len(taken) == 3)
    assert taken == [b"1", b"2", b"3"]
    assert peek(http, unique) == []


def test_messages_that_have_left_memory_are_read(
    gateway: Gateway, http: httpx.Client, channel: Any, unique: str
) -> None:
    make_queue(gateway, unique)
    send(channel, unique, *(BODY + b"%d" % number for number in range(COUNT)))
    shown = peek(http, unique, max=15)
    assert [one["value"][len(BODY) :] for one in shown] == [str(number) for number in range(15)]
    # One answer has some 1 MiB of bodies at most.
    assert len(peek(http, unique, max=100)) == -(-(1 << 20) // len(BODY + b"00"))


def test_a_peek_needs_the_permission_to_read(gateway: Gateway, http: httpx.Client, unique: str) -> None:
    make_queue(gateway, unique)
    assert http.put(f"streams/{unique}s", json={}).status_code == 201
    assert http.post(f"queues/{unique}s/peek", json={}).status_code == 409
    assert http.post(f"queues/{unique}none/peek", json={}).status_code == 404
    for body in ({"max": 0}, {"max": 101}, {"most": 1}):
        assert http.post(f"queues/{unique}/peek", json=body).status_code == 400
    with closing(Api(gateway)) as api:
        assert api.status("PUT", f"users/{unique}", {"password": unique, "tags": ""}) == 201
        rights = {"configure": ".*", "write": ".*", "read": "^other$"}
        assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    with open_client(gateway, unique) as other:
        assert other.post(f"queues/{unique}/peek", json={}).status_code == 403
