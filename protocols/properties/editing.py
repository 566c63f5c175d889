"""The properties block of a message: its headers for routing; changed in one place and kept otherwise.

The kernel has checked the block (`_properties.pyx` has its layout), so its sizes hold.
"""

from __future__ import annotations

from typing import Final

from penstock.protocols.properties.properties import FIELDS
from penstock.protocols.properties.values import Table
from penstock.router.arguments import MessageHeaders
from penstock.router.names import wire

__all__ = ["message_headers", "with_header", "with_reply_to", "without_header"]

_SIZES: Final = {
    kind: size for kinds, size in (("tbB", 1), ("su", 2), ("Iif", 4), ("D", 5), ("V", 0)) for kind in kinds
}
"""Bytes of a value in a table by its letter; sized ones are not here, all others have 8."""


def message_headers(properties: Table) -> MessageHeaders:
    """The headers among decoded properties, for routing."""
    headers = properties.get("headers")
    return MessageHeaders(headers if isinstance(headers, dict) else {}, properties)


def with_reply_to(block: bytes, name: str) -> bytes:
    """The block, which has a reply-to, with another one of at most 255 bytes."""
    start, end = _span(block, "reply_to")
    value = wire(name)
    return block[:start] + bytes((len(value),)) + value + block[end:]


def without_header(block: bytes, name: str) -> bytes:
    """The block, which has headers, without those called `name`."""
    return with_header(block, name, b"")


def with_header(block: bytes, name: str, value: bytes) -> bytes:
    """The block, which has headers, with an encoded value for those called `name`; empty: without them."""
    start, end = _span(block, "headers")
    wanted = wire(name)
    kept = []
    at = start + 4
    while at < end:
        entry = at
        key = block[at + 1 : at + 1 + block[at]]
        at += 1 + len(key)
        value_at, at = at, _after_value(block, at)
        if key != wanted:
            kept.append(block[entry:at])
        elif value:
            kept.append(block[entry:value_at] + value)
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
    for bit, (name, letter) in enumerate(FIELDS):
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
