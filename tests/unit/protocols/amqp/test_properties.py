"""A properties block that is changed in one place keeps every other byte."""

from __future__ import annotations

import pytest

from penstock.protocols.properties.editing import with_reply_to, without_header
from penstock.protocols.properties.properties import decode_properties

VALUES = b"".join(
    bytes((1,)) + name + value
    for name, value in (
        (b"a", b"t\1"),
        (b"b", b"b\xff"),
        (b"c", b"B\xff"),
        (b"d", b"s\xff\xfe"),
        (b"e", b"u\xff\xfe"),
        (b"f", b"I\0\0\0\1"),
        (b"g", b"i\0\0\0\1"),
        (b"h", b"l\0\0\0\0\0\0\0\1"),
        (b"i", b"L\0\0\0\0\0\0\0\1"),
        (b"j", b"f\0\0\0\0"),
        (b"k", b"d\0\0\0\0\0\0\0\0"),
        (b"l", b"D\1\0\0\0\5"),
        (b"m", b"S\0\0\0\2xy"),
        (b"n", b"x\0\0\0\2xy"),
        (b"o", b"A\0\0\0\2t\0"),
        (b"p", b"F\0\0\0\4\1qt\0"),
        (b"q", b"T\0\0\0\0\0\0\0\1"),
        (b"r", b"V"),
    )
)
"""An entry of every type, integers of every width."""

BCC = b"\3BCCA\0\0\0\6S\0\0\0\1z"


def block(entries: bytes) -> bytes:
    """content-type, headers, delivery-mode, priority, reply-to, timestamp."""
    table = len(entries).to_bytes(4, "big") + entries
    return b"\xba\x40" + b"\4text" + table + b"\2\7" + b"\1r" + bytes(8)


@pytest.mark.parametrize("entries", [BCC + VALUES, VALUES + BCC, BCC + VALUES + BCC])
def test_a_header_is_taken_out(entries: bytes) -> None:
    assert without_header(block(entries), "BCC") == block(VALUES)


def test_the_last_header_leaves_an_empty_table() -> None:
    assert without_header(block(BCC), "BCC") == block(b"")


@pytest.mark.parametrize("name", ["", "amq.rabbitmq.reply-to.x", "n" * 255])
def test_the_reply_to_is_replaced(name: str) -> None:
    changed = with_reply_to(block(VALUES), name)
    assert changed == block(VALUES).replace(b"\1r\0", bytes((len(name),)) + name.encode() + b"\0")
    assert decode_properties(changed)["reply_to"] == name
