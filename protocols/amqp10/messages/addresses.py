"""Addresses of links and of messages: RabbitMQ's scheme, version 2, the prefixes of JMS, and plain names.

    /queues/:queue                      a queue
    /exchanges/:exchange/:routing-key   an exchange with a routing key
    /exchanges/:exchange                an exchange, with the routing key ""
    /subscriptions/:stream/:name        a named subscription to a stream, for receivers
    queue://NAME, NAME                  a queue
    topic://NAME                        amq.topic, with NAME as its routing key; so is NAME where a terminus
                                        has the capability `topic`, as those of JMS do

With `amqp.address_v1`, also RabbitMQ 3's:

    /exchange/:exchange/:routing-key    an exchange with a routing key
    /exchange/:exchange                 an exchange; the subject of a message is its routing key
    /topic/:routing-key                 amq.topic with a routing key
    /amq/queue/:queue                   a queue
    /queue/:queue                       a queue, which is declared if need be
    /queue                              the queue that the subject of a message names

Names in RabbitMQ's scheme are percent-encoded, so that they may have a slash; the other forms have their
names as they are. A null address is not one of these: its messages name theirs in their field `to`.

Source: RabbitMQ 4's AMQP addresses v2 and v1; RFC 3986 section 2.1.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from penstock.lazy_dataclass import dataclass
from penstock.protocols.amqp10.codec.errors import Amqp10Error

__all__ = ["TOPICS", "AddressError", "Place", "exchange_address", "parse_address", "queue_address"]

TOPICS: Final = "amq.topic"
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


class AddressError(Amqp10Error):
    """An address that names nothing here."""

    condition = "amqp:invalid-field"


@dataclass(frozen=True, slots=True)
class Place:
    """An exchange and a routing key; the queue `routing_key` when the exchange is ""."""

    exchange: str
    routing_key: str
    declares: bool = False
    """The queue is declared if need be."""
    by_subject: bool = False
    """The subject of a message stands for the routing key."""
    subscription: str = ""
    """The name of a subscription to the stream `routing_key`: nothing can be sent there."""

    @property
    def is_queue(self) -> bool:
        """Whether it is a queue, which can be read from, too."""
        return not self.exchange


def parse_address(address: str, capabilities: Collection[str] = (), *, v1: bool = False) -> Place:
    """The place that an address names. Raises AddressError.

    `capabilities` of the terminus with that address: with `topic`, a plain name is a topic.
    `v1`: RabbitMQ 3's addresses are some, too.
    """
    if "topic" in capabilities and not address.startswith(("/", "queue://", "topic://")):
        address = f"topic://{address}"
    if address.startswith("/"):
        found = _parse_v1(address) if v1 else None
        return _parse_scheme(address) if found is None else found
    if address.startswith("topic://"):
        return Place(TOPICS, _checked(address, address.removeprefix("topic://"), "topic"))
    return Place("", _checked(address, address.removeprefix("queue://"), "queue"))


def queue_address(name: str) -> str:
    """The address of a queue."""
    return "/queues/" + quote(name, safe="", errors="surrogateescape")


def exchange_address(exchange: str, routing_key: str) -> str:
    """The address of an exchange with a routing key."""
    names = (quote(name, safe="", errors="surrogateescape") for name in (exchange, routing_key))
    return "/exchanges/" + "/".join(names)


def _parse_scheme(address: str) -> Place:
    kind, *names = address[1:].split("/")
    if kind == "queues" and len(names) == 1:
        return Place("", _checked(address, _decoded(address, names[0]), "queue"))
    if kind == "exchanges" and len(names) in (1, 2):
        exchange = _checked(address, _decoded(address, names[0]), "exchange")
        return Place(exchange, _decoded(address, names[1]) if len(names) == 2 else "")
    if kind == "subscriptions" and len(names) == 2:
        stream = _checked(address, _decoded(address, names[0]), "stream")
        name = _checked(address, _decoded(address, names[1]), "subscription")
        return Place("", stream, subscription=name)
    raise AddressError(
        f"the address '{address}' names nothing",
        remedy="use /queues/QUEUE, /exchanges/EXCHANGE/KEY, or /subscriptions/STREAM/NAME for a receiver, "
        "with names percent-encoded",
    )


def _parse_v1(address: str) -> Place | None:
    """The place of an address of version 1; None: it is none."""
    match address[1:].split("/"):
        case ["exchange", exchange, *keys] if len(keys) < 2:
            name = _checked(address, _decoded(address, exchange), "exchange")
            return Place(name, _decoded(address, keys[0]) if keys else "", by_subject=not keys)
        case ["topic", key]:
            return Place(TOPICS, _decoded(address, key))
        case ["amq", "queue", queue]:
            return Place("", _checked(address, _decoded(address, queue), "queue"))
        case ["queue", queue]:
            return Place("", _checked(address, _decoded(address, queue), "queue"), declares=True)
        case ["queue"]:
            return Place("", "", by_subject=True)
    return None


def _decoded(address: str, name: str) -> str:
    if _BAD_ESCAPE.search(name):
        raise AddressError(f"the address '{address}' has a % that begins no escape", remedy="write %25 for %")
    try:
        decoded = unquote_to_bytes(name).decode()
    except UnicodeDecodeError:
        raise AddressError(f"the address '{address}' has a name that is no UTF-8") from None
    return _short(address, decoded)


def _checked(address: str, name: str, kind: str) -> str:
    if not name:
        raise AddressError(f"the address '{address}' has an empty {kind} name")
    return _short(address, name)


def _short(address: str, name: str) -> str:
    if len(name.encode("utf-8", "surrogatepass")) > 255:
        raise AddressError(f"the address '{address[:64]}...' has a name of more than 255 bytes")
    return name
