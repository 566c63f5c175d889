"""Messages of AMQP 1.0 for property tests: ordinary ones, odd ones, damaged ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from penstock.protocols.amqp10.codec.values import (
    Array,
    Byte,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from penstock.protocols.amqp10.messages import sections as s

__all__ = ["GOOD_HEADER", "ID", "SCALAR", "TEXT", "damaged", "messages"]

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.sampled_from(
    ("a" * 255, "b" * 256)
)
_SYMBOL = st.sampled_from(
    ("x-opt-jms-dest", "x-a", "y", "x-exchange", "x-death", "CC", "x-basic-type", "x-opt-delivery-time", "x")
)
SCALAR: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 255).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.sampled_from((0, 1, 255, 256, 2**32 - 1)).map(UInt),
    st.sampled_from((0, 1, 255, 256, 2**63 - 1, 2**63, 2**64 - 1)).map(ULong),
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.sampled_from((-(2**31), -129, -128, -1, 0, 127, 128, 2**31 - 1)).map(Int),
    st.sampled_from((-(2**63), -129, -128, -1, 0, 127, 128, 2**63 - 1)),
    st.sampled_from((-1, 0, 1, 1000, 1_700_000_000_000, 2**53 * 1000, 2**53 * 1000 + 1000, 2**63 - 1)).map(
        Timestamp
    ),
    st.floats(allow_nan=False),
    st.sampled_from((0.0, 1.5, -2.0)).map(Float),
    TEXT,
    _SYMBOL.map(Symbol),
    st.binary(max_size=8) | st.just(bytes(256)),
    st.uuids(),
)
_ODD: st.SearchStrategy[Any] = st.one_of(
    st.just([]), st.just({}), st.just({"a": {"b": [1]}}), st.just(Array(0x71, [Int(1)])), st.just([1, "b"])
)
_VALUE = st.one_of(SCALAR, SCALAR, SCALAR, _ODD)
ID = st.one_of(st.none(), TEXT, st.uuids(), st.binary(max_size=8), st.integers(0, 2**64 - 1).map(ULong))
_REPLY = st.one_of(
    st.none(),
    st.sampled_from(("/queues/q", "/queues/a%20b", "/queues/a b", "q", "/exchanges/amq.topic/k", "/queues/")),
)
_PROPERTIES = st.tuples(
    ID,
    st.none() | st.just(b"guest") | st.just(b"\xff") | st.just("guest"),
    st.none() | st.just("/queues/q"),
    st.none() | st.just("subject"),
    _REPLY,
    ID,
    st.none() | st.sampled_from(("text/plain", "x" * 256)).map(Symbol) | st.just("text/plain"),
    st.none() | st.just(Symbol("gzip")),
    st.none() | st.just(Timestamp(1)),
    st.none() | st.sampled_from((0, 1, 1000, 1_700_000_000_000, -5)).map(Timestamp),
    st.none() | TEXT,
    st.none() | st.just(UInt(7)),
    st.none() | st.just("group"),
).flatmap(lambda fields: st.integers(0, 13).map(lambda n: list(fields[:n])))
_HEADER = st.lists(
    st.one_of(
        st.none(), st.booleans(), st.just(UByte(3)), st.sampled_from((0, 5, 2**32 - 1, 2**32 - 2)).map(UInt)
    ),
    max_size=6,
)
GOOD_HEADER = st.tuples(
    st.none() | st.booleans(),
    st.none() | st.integers(0, 255).map(UByte),
    st.none() | st.sampled_from((0, 5, 2**32 - 1)).map(UInt),
).map(list)
NESTED: st.SearchStrategy[Any] = st.recursive(
    SCALAR,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT | _SYMBOL.map(Symbol), inner, max_size=3)
    ),
    max_leaves=8,
)
_ANNOTATIONS = st.dictionaries(_SYMBOL.map(Symbol) | TEXT, _VALUE, max_size=4)
_APPLICATION = st.dictionaries(TEXT | _SYMBOL, _VALUE, max_size=4)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Well-formed sections in their order, in the shortest encoding."""
    parts = []
    for code, values in (
        (s.HEADER, GOOD_HEADER | _HEADER),
        (s.DELIVERY_ANNOTATIONS, _ANNOTATIONS),
        (s.ANNOTATIONS, _ANNOTATIONS),
        (s.PROPERTIES, _PROPERTIES),
        (s.APPLICATION_PROPERTIES, _APPLICATION),
    ):
        if draw(st.booleans()):
            parts.append(s.encode_section(code, draw(values)))
    body = draw(st.sampled_from((s.DATA, s.DATA, s.VALUE, s.SEQUENCE, 0)))
    if body == s.VALUE:
        parts.append(s.encode_section(s.VALUE, draw(_VALUE | NESTED)))
    elif body:
        content = st.binary(max_size=300) if body == s.DATA else st.lists(NESTED, max_size=3)
        parts.extend(s.encode_section(body, draw(content)) for _ in range(draw(st.sampled_from((1, 1, 2)))))
    if draw(st.sampled_from((False, False, True))):
        parts.append(s.encode_section(s.FOOTER, draw(_ANNOTATIONS)))
    return b"".join(parts)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A message with some bytes changed, cut off, or encoded longer than they need be."""
    message = bytearray(draw(messages()))
    for _ in range(draw(st.integers(0, 3))):
        if not message:
            break
        at = draw(st.integers(0, len(message) - 1))
        how = draw(st.integers(0, 2))
        if how == 0:
            message[at] = draw(st.integers(0, 255))
        elif how == 1:
            del message[at:]
        else:
            message[at:at] = draw(st.binary(max_size=3))
    return bytes(message)
