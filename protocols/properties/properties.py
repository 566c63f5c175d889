"""The properties block of a message, AMQP's content header from its flags on, read and made in Python.

Records keep their properties in it, whichever of AMQP and the native protocol they came by. `_properties.pyx`
has its layout and walks it in C.
"""

from __future__ import annotations

from typing import Final

from penstock.protocols.properties._tables import decode_fields, encode_fields
from penstock.protocols.properties.values import Table, Value

__all__ = ["FIELDS", "SECTIONS_HEADER", "decode_properties", "encode_properties"]

SECTIONS_HEADER: Final = "x-amqp10-sections"
"""The header that a record with the flag SECTIONS has for consumers of AMQP 1.0 alone."""

FIELDS: Final = (
    ("content_type", "s"),
    ("content_encoding", "s"),
    ("headers", "t"),
    ("delivery_mode", "o"),
    ("priority", "o"),
    ("correlation_id", "s"),
    ("reply_to", "s"),
    ("expiration", "s"),
    ("message_id", "s"),
    ("timestamp", "L"),
    ("type", "s"),
    ("user_id", "s"),
    ("app_id", "s"),
    ("cluster_id", "s"),
)
"""From flag bit 15 down."""

_ENTRIES_MAX: Final = 8192
"""Of a message's headers, when Python must read them."""


def decode_properties(block: bytes, *, entries: int = _ENTRIES_MAX) -> Table:
    """The properties that are there, by name; `entries` is the most its headers may have.

    Raises:
        TableError: malformed, or a table beyond the limits.

    """
    flags = int.from_bytes(block[:2], "big")
    present = [field for bit, field in enumerate(FIELDS) if flags >> (15 - bit) & 1]
    values = decode_fields("".join(letter for _, letter in present), block[2:], entries=entries)
    return {name: value for (name, _), value in zip(present, values, strict=True)}


def encode_properties(properties: Table) -> bytes:
    """The block of these properties: the twin of `decode_properties`, for blocks that are made anew."""
    flags = 0
    letters = ""
    values: list[Value] = []
    for bit, (name, letter) in enumerate(FIELDS):
        if name in properties:
            flags |= 1 << (15 - bit)
            letters += letter
            values.append(properties[name])
    return flags.to_bytes(2, "big") + encode_fields(letters, tuple(values))
