"""The rows of sessions that outlive the process: keys and values of the tables `mqtt.*`.

    mqtt.session   key  size u16 | vhost | client id
                   value  JSON: user, expiry_s, ends_at, will (payload and properties in base64)
    mqtt.filter    key  size u32 | key of the session | filter
                   value  tag u32 | options u8 | identifier u32
    mqtt.qos2in    key as mqtt.session; value `_ids.Received`
    mqtt.out       key as mqtt.session; value `_ids.Inflight`

Sizes and numbers are little-endian. `options` are the byte of SUBSCRIBE (mqtt5:3.8.3.1).
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from typing import Any, Final

import orjson

from penstock.protocols.mqtt.packets import Filter, Will

__all__ = [
    "FILTER",
    "OUT",
    "QOS2_IN",
    "SESSION",
    "SessionRow",
    "Subscription",
    "decode_subscription",
    "encode_subscription",
    "filter_key",
    "session_key",
    "split_filter_key",
    "split_session_key",
]

SESSION: Final = "mqtt.session"
FILTER: Final = "mqtt.filter"
QOS2_IN: Final = "mqtt.qos2in"
OUT: Final = "mqtt.out"

_SUBSCRIPTION: Final = struct.Struct("<IBI")


@dataclass(slots=True)
class Subscription:
    """One filter of a session."""

    topic: str
    tag: int
    """Names it to the queue's cursor; not used again in its session."""
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int = 0
    """Subscription identifier, 0 = none."""

    def update(self, line: Filter, identifier: int) -> None:
        """A SUBSCRIBE of the same filter replaces the options (mqtt5:3.8.4-3)."""
        self.qos = line.qos
        self.no_local = line.no_local
        self.retain_as_published = line.retain_as_published
        self.retain_handling = line.retain_handling
        self.identifier = identifier


@dataclass(slots=True)
class SessionRow:
    """What is kept of a session besides its filters and packet ids."""

    user: str
    expiry_s: int
    ends_at: float | None = None
    """Seconds since the epoch; None: it was connected."""
    will: Will | None = None
    will_at: float | None = None
    """When the will is due; None: it waits for the connection's end."""

    def encode(self) -> bytes:
        """The value."""
        row: dict[str, Any] = {"user": self.user, "expiry_s": self.expiry_s, "ends_at": self.ends_at}
        will = self.will
        if will is not None:
            row["will"] = {
                "at": self.will_at,
                "topic": will.topic,
                "payload": base64.b64encode(will.payload).decode(),
                "block": base64.b64encode(will.block).decode(),
                "qos": will.qos,
                "retain": will.retain,
                "delay_s": will.delay_s,
                "expiry_s": will.expiry_s,
            }
        return orjson.dumps(row)

    @classmethod
    def decode(cls, value: bytes) -> SessionRow:
        """The row of a value that `encode` made."""
        row = orjson.loads(value)
        found = cls(row["user"], row["expiry_s"], row["ends_at"])
        will = row.get("will")
        if will is not None:
            found.will_at = will["at"]
            found.will = Will(
                will["topic"],
                base64.b64decode(will["payload"]),
                will["qos"],
                will["retain"],
                will["delay_s"],
                base64.b64decode(will["block"]),
                will["expiry_s"],
            )
        return found


# Keys


def _join(first: bytes, second: bytes) -> bytes:
    return len(first).to_bytes(2, "little") + first + second


def _split(key: bytes) -> tuple[bytes, bytes]:
    end = 2 + int.from_bytes(key[:2], "little")
    return key[2:end], key[end:]


def session_key(vhost: str, client_id: str) -> bytes:
    """The key of a session's rows."""
    # Vhosts have short names, client ids at most 65,535 bytes: the size of the first is enough.
    return _join(vhost.encode(), client_id.encode())


def split_session_key(key: bytes) -> tuple[str, str]:
    """(vhost, client id) of such a key."""
    vhost, client_id = _split(key)
    return vhost.decode(), client_id.decode()


def filter_key(session: bytes, topic: str) -> bytes:
    """The key of a subscription's row; `session` is its session's key."""
    # Four bytes, since a session's key may be longer than two can say.
    return len(session).to_bytes(4, "little") + session + topic.encode()


def split_filter_key(key: bytes) -> tuple[bytes, str]:
    """(session's key, filter) of such a key."""
    end = 4 + int.from_bytes(key[:4], "little")
    return key[4:end], key[end:].decode()


# Subscriptions


def encode_subscription(subscription: Subscription) -> bytes:
    """The value of a subscription's row."""
    options = (
        subscription.qos
        | subscription.no_local << 2
        | subscription.retain_as_published << 3
        | subscription.retain_handling << 4
    )
    return _SUBSCRIPTION.pack(subscription.tag, options, subscription.identifier)


def decode_subscription(topic: str, value: bytes) -> Subscription:
    """The subscription of a row."""
    tag, options, identifier = _SUBSCRIPTION.unpack(value)
    return Subscription(
        topic, tag, options & 3, bool(options & 4), bool(options & 8), options >> 4 & 3, identifier
    )
