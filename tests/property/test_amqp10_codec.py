"""AMQP 1.0's codec: what is written is read again; for any bytes there is a value or a typed error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocols.amqp10.codec._decoding import decode
from penstock.protocols.amqp10.codec.encoding import encode
from penstock.protocols.amqp10.codec.errors import Amqp10Error
from penstock.protocols.amqp10.codec.frames import encode_frame, encode_transfer, read_frame
from penstock.protocols.amqp10.codec.performatives import Attach, Open, Source, Target, Transfer
from penstock.protocols.amqp10.codec.values import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.reference import amqp10_values

_UNICODE = st.characters(exclude_categories=("Cs",))
_SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2**8 - 1).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.floats(allow_nan=False),
    _UNICODE.map(Char),
    st.text(_UNICODE, max_size=300),
    st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol),
    st.binary(max_size=300),
    st.sampled_from((4, 8, 16)).flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(Decimal),
    st.uuids(),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.text(_UNICODE, max_size=5), inner, max_size=5),
        st.builds(Described, st.integers(0, 2**64 - 1).map(ULong), inner),
        st.lists(st.integers(0, 2**32 - 1).map(UInt), max_size=5).map(lambda items: Array(0x70, items)),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(lambda items: Array(0xD0, items)),
    ),
    max_leaves=12,
)
_FRAMES = [
    encode_frame(0, Open("c", "h", 512, 7, 1000, ("a",), (), (), ("e",), {Symbol("k"): ["v", {1: 2}]})),
    encode_frame(1, Attach("l", 1, True, source=Source("a", filter={}), target=Target("b"))),
    encode_frame(2, Transfer(0, 1, b"tag", 0), b"payload"),
]


@given(_VALUES)
def test_encoded_values_decode_to_themselves(value: Any) -> None:
    assert repr(decode(encode(value))) == repr(value)


@given(_VALUES, st.data())
def test_every_prefix_is_refused_and_nothing_else_is_raised(value: Any, data: st.DataObject) -> None:
    raw = encode(value)
    cut = data.draw(st.integers(0, len(raw) - 1))
    try:
        decode(raw[:cut])
    except Amqp10Error:
        return
    raise AssertionError("a prefix of a value is no value")


def _outcome(read: Callable[..., Any], raw: bytes, values: int) -> str:
    """The result of a reader for these bytes; all errors are one."""
    try:
        return repr(read(raw, values=values))
    except Amqp10Error:
        return "an error"


@settings(max_examples=400)
@given(_VALUES, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3), st.integers(1, 40))
def test_the_kernel_reads_what_plain_python_reads(
    value: Any, damage: list[tuple[int, int]], values: int
) -> None:
    raw = bytearray(encode(value))
    for at, byte in damage:
        raw[at % len(raw)] = byte
    assert _outcome(decode, bytes(raw), values) == _outcome(amqp10_values.decode, bytes(raw), values)


@given(
    st.integers(0, 65535),
    st.integers(0, 255),
    st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    st.booleans(),
    st.booleans(),
    st.binary(max_size=20),
)
def test_the_short_way_to_write_a_transfer_writes_the_same(
    channel: int, handle: int, number: int | None, settled: bool, more: bool, payload: bytes
) -> None:
    first = {} if number is None else {"delivery_id": number, "delivery_tag": number.to_bytes(4, "big")}
    raw = encode_transfer(channel, handle, number, settled, more, payload)
    found = read_frame(raw, 0, len(raw), 4096)
    assert found is not None
    wanted = Transfer(handle, more=more, **first)  # type: ignore[arg-type]
    if number is not None:
        wanted.message_format, wanted.settled = 0, settled
    assert found[2:] == (channel, wanted, payload)


@settings(max_examples=400)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_value_or_a_typed_error(raw: bytes) -> None:
    try:
        decode(raw)
    except Amqp10Error:
        pass


@settings(max_examples=400)
@given(st.sampled_from(_FRAMES), st.lists(st.tuples(st.integers(8), st.integers(0, 255)), max_size=4))
def test_a_damaged_frame_is_a_frame_or_a_typed_error(frame: bytes, damage: list[tuple[int, int]]) -> None:
    raw = bytearray(frame)
    for at, byte in damage:
        raw[8 + at % (len(raw) - 8)] = byte
    try:
        assert read_frame(raw, 0, len(raw), 4096) is not None
    except Amqp10Error:
        pass
