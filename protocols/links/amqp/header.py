"""Parts of a content header, encoded for `_header_edit`: properties, and tables as elements of an array.

Source: AMQP 0-9-1, 4.2.5 and 4.2.6.1; RabbitMQ's types.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from pamqp import encode

__all__ = ["element", "encoded", "short_string"]

_PROPERTIES: Final[Mapping[str, tuple[int, int]]] = {
    "content_type": (1 << 15, 0),
    "content_encoding": (1 << 14, 0),
    "headers": (1 << 13, -4),
    "delivery_mode": (1 << 12, 1),
    "priority": (1 << 11, 1),
    "correlation_id": (1 << 10, 0),
    "reply_to": (1 << 9, 0),
    "expiration": (1 << 8, 0),
    "message_id": (1 << 7, 0),
    "timestamp": (1 << 6, 8),
    "type": (1 << 5, 0),
    "user_id": (1 << 4, 0),
    "app_id": (1 << 3, 0),
    "cluster_id": (1 << 2, 0),
}
"""Flag and size in bytes of each, in their order on the wire; 0 = a short string, -4 = its size is a u32."""
_INTEGERS: Final = {1: ">B", 8: ">Q"}
"""By size in bytes."""


def short_string(text: str) -> bytes:
    """Size u8 and bytes. Raises ValueError: it has more than 255."""
    data = text.encode()
    return bytes([len(data)]) + data


def element(table: Mapping[str, Any], more: bytes = b"") -> bytes:
    """A table as an element of an array; `more`: entries behind its own, as AMQP has them."""
    entries = bytes(encode.field_table(dict(table)))[4:] + more
    return b"F" + struct.pack(">I", len(entries)) + entries


def encoded(properties: Mapping[str, Any]) -> dict[int, bytes]:
    """Properties by their flags, from their names with `_`; a timestamp is in seconds since the epoch.

    Raises:
        ValueError: one has a value that AMQP cannot carry.

    """
    return {_PROPERTIES[name][0]: _encoded(name, value) for name, value in properties.items()}


def _encoded(name: str, value: Any) -> bytes:
    size = _PROPERTIES[name][1]
    try:
        if size < 0:
            return bytes(encode.field_table(value))
        return struct.pack(_INTEGERS[size], value) if size else short_string(value)
    except (struct.error, TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be sent by AMQP: {error}") from error
