"""Where Spark publishes to, and what came there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pika

from tests.support.brokers import Gateway

if TYPE_CHECKING:
    pass


def url(gateway: Gateway) -> str:
    return f"amqp://guest:guest@127.0.0.1:{gateway.amqp_port}/%2F"


def bound(gateway: Gateway, exchange: str, key: str) -> str:
    connection = pika.BlockingConnection(pika.URLParameters(url(gateway)))
    channel = connection.channel()
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_declare("taken", durable=True)
    channel.queue_bind("taken", exchange, key)
    connection.close()
    return "taken"


def taken(gateway: Gateway) -> list[tuple[str, bytes, pika.BasicProperties]]:
    connection = pika.BlockingConnection(pika.URLParameters(url(gateway)))
    channel = connection.channel()
    found = []
    while True:
        method, properties, body = channel.basic_get("taken", auto_ack=True)
        if method is None:
            break
        assert properties is not None
        assert body is not None
        found.append((method.routing_key, body, properties))
    connection.close()
    return found
