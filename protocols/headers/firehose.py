"""Firehose copies of messages, with RabbitMQ's headers.

    publish.EXCHANGE   exchange_name, routing_keys, properties, node, vhost, connection, channel, user,
                       routed_queues
    deliver.QUEUE      exchange_name, routing_keys, properties, node, redelivered, vhost, connection, channel,
                       user

These are headers; the body is the message's. A message of AMQP 1.0 looks as a consumer of 0-9-1 would get it.
Source: RabbitMQ's rabbit_trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import SECTIONS
from penstock.protocols.properties.properties import SECTIONS_HEADER, decode_properties, encode_properties
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from penstock.protocols.properties.values import Table, Value
from penstock.router.names import ENC_AMQP091, ENC_MQTT5, join_key_block, split_key_block, text, wire
from penstock.router.publishing.firehose import TRACE_EXCHANGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log_core.batch._batch import Batch
    from penstock.router.routes._routes import Route
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Place", "delivered", "published"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where it was seen."""

    vhost: Vhost
    connection: str
    channel: int
    user: str


def published(
    place: Place, keys: Sequence[bytes], block: bytes, body: bytes, route: Route, *, sections: bool = False
) -> None:
    """A client published this; `sections`: the record has the flag SECTIONS."""
    exchange = _split(keys[0])[0]
    queues: list[Value] = [*place.vhost.firehose.queues_of(route)]
    extra = {**_where(place), "routed_queues": queues}
    names = [_split(key)[1] for key in keys]
    _tell(place, f"publish.{exchange}", exchange, names, _properties(block, sections), body, extra)


def delivered(place: Place, queue: Queue, batch: Batch, index: int, redelivered: bool) -> None:
    """A client got this."""
    record = batch.record(index)
    key, block = record.key, record.props
    if record.enc == ENC_MQTT5:
        key, block = amqp091_from_mqtt5(key, block, record.flags)
    elif record.enc != ENC_AMQP091:
        key, block = join_key_block("", text(key[:255])), b"\0\0"
    exchange, routing_key = _split(key)
    properties = _properties(block, bool(record.flags & SECTIONS))
    headers = properties.get("headers")
    copies = headers.get("CC") if isinstance(headers, dict) else None
    keys = [routing_key]
    if isinstance(copies, list):
        keys += [one for one in copies if isinstance(one, str)]
    extra = {"redelivered": int(redelivered), **_where(place)}
    _tell(place, f"deliver.{queue.name}", exchange, keys, properties, record.body, extra)


def _split(key: bytes) -> tuple[str, str]:
    parts = split_key_block(key)
    assert parts is not None  # it was made of two short strings
    return parts[0], text(parts[1])


def _properties(block: bytes, sections: bool) -> Table:
    properties = decode_properties(block, entries=len(block))
    headers = properties.get("headers")
    if sections and isinstance(headers, dict):
        headers.pop(SECTIONS_HEADER, None)
    return properties


def _where(place: Place) -> Table:
    return {
        "vhost": place.vhost.name,
        "connection": place.connection,
        "channel": place.channel,
        "user": place.user,
    }


def _tell(
    place: Place,
    name: str,
    exchange: str,
    keys: Sequence[str],
    properties: Table,
    body: bytes,
    extra: Table,
) -> None:
    if exchange == TRACE_EXCHANGE:
        return
    headers: Table = {
        "exchange_name": exchange,
        "routing_keys": [*keys],
        "properties": properties,
        "node": place.vhost.broker.node,
        **extra,
    }
    key = wire(name)[:255].decode("utf-8", "surrogateescape")
    place.vhost.firehose.put(key, encode_properties({"headers": headers}), body)
