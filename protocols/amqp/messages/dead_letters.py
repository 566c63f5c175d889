"""Dead-letter headers: RabbitMQ's account of a message's deaths, in its property block.

    x-death                array of tables, the last death first; one per (queue, reason), with
                           count, reason, queue, time of the first such death, exchange, routing-keys,
                           and original-expiration when the message had an expiration
    x-first-death-*        queue, reason, exchange of the first death; never changed
    x-last-death-*         the same of this one

`expiration` goes, or the message would expire again. With a routing key of the queue's CC goes too; without,
the message is published with its own key and those in CC.

Source: RabbitMQ's rabbit_dead_letter (x-death, cycles) and mc_amqpl (x-last-death-*).
"""

from __future__ import annotations

from penstock.log_core.batch._batch import Record
from penstock.protocols.amqp.codec.properties import decode_properties, encode_properties
from penstock.protocols.properties._tables import Long, Timestamp
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from penstock.protocols.properties.values import Table, Value
from penstock.router.arguments import MessageHeaders
from penstock.router.names import ENC_AMQP091, ENC_MQTT5, split_key_block, text, wire
from penstock.router.queues.dead_letters import Death, Letter

__all__ = ["rewrite"]


def rewrite(record: Record, death: Death) -> Letter:
    """The letter that `record` becomes."""
    key, props = record.key, record.props
    if record.enc == ENC_MQTT5:
        key, props = amqp091_from_mqtt5(key, props, record.flags)
    elif record.enc != ENC_AMQP091:
        key, props = b"\0\0", b"\0\0"
    parts = split_key_block(key)
    assert parts is not None  # it was made of two short strings
    exchange, own_key = parts[0], text(parts[1])
    # Every published message can die: one entry has two bytes at least.
    properties = decode_properties(props, entries=len(props))
    headers = properties.setdefault("headers", {})
    assert isinstance(headers, dict)
    copies = _texts(headers.get("CC"))
    entry: Table = {
        "reason": death.reason,
        "queue": death.queue,
        "time": Timestamp(death.time_s),
        "exchange": exchange,
        "routing-keys": [own_key, *copies],
    }
    expiration = properties.pop("expiration", None)
    if expiration is not None:
        entry["original-expiration"] = expiration
    deaths = _with(headers.get("x-death"), entry)
    headers["x-death"] = deaths
    for name, value in (("queue", death.queue), ("reason", death.reason), ("exchange", exchange)):
        headers.setdefault(f"x-first-death-{name}", value)
        headers[f"x-last-death-{name}"] = value
    keys = [own_key, *copies]
    if death.routing_key is not None:
        headers.pop("CC", None)
        keys = [death.routing_key]
    circling = frozenset() if death.reason == "rejected" else _circling(deaths)
    return Letter(
        tuple(_short(one) for one in keys),
        encode_properties(properties),
        MessageHeaders(headers, properties),
        circling,
    )


def _with(known: Value, entry: Table) -> list[Value]:
    """The deaths with one more: counted where there was one like it, and moved to the front.

    The first one like it counts; a client may have written several, or one without a count. As in RabbitMQ.
    """
    alike: list[Table] = []
    others: list[Value] = []
    for other in known if isinstance(known, list) else []:
        if isinstance(other, dict) and all(other.get(name) == entry[name] for name in ("queue", "reason")):
            alike.append(other)
        else:
            others.append(other)
    first = alike[0] if alike else entry
    before = first.get("count")
    return [{**first, "count": Long(before + 1 if isinstance(before, int) else 1)}, *others]


def _circling(deaths: list[Value]) -> frozenset[str]:
    """The queues it has left before with nobody rejecting it since: up to the first rejection, or anything
    that was not written here."""
    found = set()
    for death in deaths:
        if not isinstance(death, dict) or death.get("reason") == "rejected":
            break
        queue = death.get("queue")
        if isinstance(queue, str):
            found.add(queue)
    return frozenset(found)


def _texts(value: Value) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _short(key: str) -> str:
    """As much of a routing key as a method can carry."""
    return wire(key)[:255].decode("utf-8", "surrogateescape")
