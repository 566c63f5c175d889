"""Firehose copies of AMQP messages, with RabbitMQ's headers.

    publish.EXCHANGE   exchange_name, routing_keys, properties, node, vhost, connection, channel, user,
                       routed_queues
    deliver.QUEUE      exchange_name, routing_keys, properties, node, redelivered, vhost, connection, channel,
                       user

These are headers; the body is the message's. Source: RabbitMQ's rabbit_trace.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

from penstock.protocols.amqp.codec.properties import decode_properties, encode_properties, message_headers
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from penstock.protocols.properties.values import Table, Value
from penstock.router.names import ENC_AMQP091, ENC_MQTT5, join_key_block, split_key_block, text, wire
from penstock.router.publishing.firehose import TRACE_EXCHANGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log_core.batch._batch import Batch
    from penstock.protocols.amqp.channel.channel import Channel
    from penstock.router.routes._routes import Route
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["published", "turn"]

_NODE: Final = f"penstock@{platform.node()}"


def turn(channel: Channel) -> None:
    """Have the channel tell of its deliveries, or not, as its vhost's firehose is on or off."""
    is_on = channel.vhost.firehose.is_on
    channel.core.tap = (lambda *what: _delivered(channel, *what)) if is_on else None


def published(channel: Channel, keys: Sequence[bytes], block: bytes, body: bytes, route: Route) -> None:
    """The channel published this."""
    exchange = _split(keys[0])[0]
    queues: list[Value] = [*channel.vhost.firehose.queues_of(route)]
    extra = {**_where(channel), "routed_queues": queues}
    names = [_split(key)[1] for key in keys]
    _tell(channel, f"publish.{exchange}", exchange, names, _properties(block), body, extra)


def _delivered(channel: Channel, queue: Queue, batch: Batch, index: int, redelivered: bool) -> None:
    """A consumer or basic.get of the channel got this."""
    record = batch.record(index)
    key, block = record.key, record.props
    if record.enc == ENC_MQTT5:
        key, block = amqp091_from_mqtt5(key, block, record.flags)
    elif record.enc != ENC_AMQP091:
        key, block = join_key_block("", text(key[:255])), b"\0\0"
    exchange, routing_key = _split(key)
    properties = _properties(block)
    copies = message_headers(properties).get("CC")
    keys = [routing_key]
    if isinstance(copies, list):
        keys += [one for one in copies if isinstance(one, str)]
    extra = {"redelivered": int(redelivered), **_where(channel)}
    _tell(channel, f"deliver.{queue.name}", exchange, keys, properties, record.body, extra)


def _split(key: bytes) -> tuple[str, str]:
    parts = split_key_block(key)
    assert parts is not None  # it was made of two short strings
    return parts[0], text(parts[1])


def _properties(block: bytes) -> Table:
    return decode_properties(block, entries=len(block))


def _where(channel: Channel) -> Table:
    return {
        "vhost": channel.vhost.name,
        "connection": channel.session.name(),
        "channel": channel.number,
        "user": channel.actor.identity.username,
    }


def _tell(
    channel: Channel,
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
        "node": _NODE,
        **extra,
    }
    key = wire(name)[:255].decode("utf-8", "surrogateescape")
    channel.vhost.firehose.put(key, encode_properties({"headers": headers}), body)
