"""The properties block of a message in Python: read whole, or changed in one place and kept otherwise.

The kernel has checked the block (`_properties.pyx` has its layout), so its sizes hold.
"""

from __future__ import annotations

from typing import Final

from penstock.protocols.amqp._tables import decode_fields, encode_fields
from penstock.protocols.amqp.values import Table, Value
from penstock.router.names import wire

__all__ = ["decode_properties", "encode_properties", "with_reply_to", "without_header"]

_FIELDS: Final = (
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

_SIZES: Final = {
    kind: size for kinds, size in (("tbB", 1), ("su", 2), ("Iif", 4), ("D", 5), ("V", 0)) for kind in kinds
}
"""Bytes of a value in a table by its letter; sized ones are not here, all others have 8."""


def decode_properties(block: bytes, *, entries: int = _ENTRIES_MAX) -> Table:
    """The properties that are there, by name; `entries` is the most its headers may have.

    Raises:
        TableError: malformed, or a table beyond the limits.

    """
    flags = int.from_bytes(block[:2], "big")
    present = [field for bit, field in enumerate(_FIELDS) if flags >> (15 - bit) & 1]
    values = decode_fields("".join(letter for _, letter in present), block[2:], entries=entries)
    return {name: value for (name, _), value in zip(present, values, strict=True)}


def encode_properties(properties: Table) -> bytes:
    """The block of these properties: the twin of `decode_properties`, for blocks that are made anew."""
    flags = 0
    letters = ""
    values: list[Value] = []
    for bit, (name, letter) in enumerate(_FIELDS):
        if name in properties:
            flags |= 1 << (15 - bit)
            letters += letter
            values.append(properties[name])
    return flags.to_bytes(2, "big") + encode_fields(letters, tuple(values))


def with_reply_to(block: bytes, name: str) -> bytes:
    """The block, which has a reply-to, with another one of at most 255 bytes."""
    start, end = _span(block, "reply_to")
    value = wire(name)
    return block[:start] + bytes((len(value),)) + value + block[end:]


def without_header(block: bytes, name: str) -> bytes:
    """The block, which has headers, without those called `name`."""
    start, end = _span(block, "headers")
    unwanted = wire(name)
    kept = []
    at = start + 4
    while at < end:
        entry = at
        key = block[at + 1 : at + 1 + block[at]]
        at += 1 + len(key)
        at = _after_value(block, at)
        if key != unwanted:
            kept.append(block[entry:at])
    entries = b"".join(kept)
    return block[:start] + len(entries).to_bytes(4, "big") + entries + block[end:]


def _after_value(block: bytes, at: int) -> int:
    """Where the value of a table entry ends whose letter is at `at`."""
    kind = chr(block[at])
    if kind in "SxFA":
        return at + 5 + int.from_bytes(block[at + 1 : at + 5], "big")
    return at + 1 + _SIZES.get(kind, 8)


def _span(block: bytes, wanted: str) -> tuple[int, int]:
    """Where a property that is there begins and ends."""
    flags = int.from_bytes(block[:2], "big")
    at = 2
    for bit, (name, letter) in enumerate(_FIELDS):
        if not flags >> (15 - bit) & 1:
            continue
        if letter == "s":
            end = at + 1 + block[at]
        elif letter == "t":
            end = at + 4 + int.from_bytes(block[at : at + 4], "big")
        else:
            end = at + (1 if letter == "o" else 8)
        if name == wanted:
            return at, end
        at = end
    raise KeyError(wanted)
