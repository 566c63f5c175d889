"""Tables: what is encoded is decoded, pamqp agrees, and no bytes make the decoder crash, hang or overrun."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.properties._tables import (
    Byte,
    ByteArray,
    Long,
    Short,
    TableError,
    Timestamp,
    UnsignedByte,
    UnsignedInt,
    UnsignedShort,
    check_table,
    decode_fields,
    decode_table,
    encode_fields,
    encode_table,
    read_text_header,
)
from penstock.protocols.properties.properties import decode_properties, encode_properties
from penstock.protocols.properties.values import Value

keys = st.text(max_size=20).filter(lambda text: len(text.encode()) <= 60)
scalars = (
    st.none()
    | st.integers(-(2**7), 2**7 - 1).map(Byte)
    | st.integers(0, 2**8 - 1).map(UnsignedByte)
    | st.integers(-(2**15), 2**15 - 1).map(Short)
    | st.integers(0, 2**16 - 1).map(UnsignedShort)
    | st.integers(0, 2**32 - 1).map(UnsignedInt)
    | st.integers(-(2**63), 2**63 - 1).map(Long)
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, width=32)  # pamqp writes the short kind
    | st.text(max_size=30)
    | st.binary(max_size=30).map(ByteArray)
    | st.integers(0, 2**32 - 1).map(Timestamp)
    | st.decimals(-1000, 1000, places=2)
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
tables = st.dictionaries(keys, values, max_size=8)


@given(tables)
def test_a_table_survives_the_round_trip(table: dict[str, Value]) -> None:
    encoded = encode_table(table)
    assert check_table(encoded)
    assert decode_table(encoded) == table
    assert encode_table(decode_table(encoded)) == encoded


def as_pamqp(value: Any) -> Any:
    match value:
        case Timestamp():
            return datetime.fromtimestamp(int(value), UTC)
        case ByteArray():
            return bytearray(value)
        case list():
            return [as_pamqp(item) for item in value]
        case dict():
            return {key: as_pamqp(item) for key, item in value.items()}
    return value


@given(tables)
def test_pamqp_reads_the_same_table(table: dict[str, Value]) -> None:
    used, read = pamqp.decode.field_table(encode_table(table))
    assert used == len(encode_table(table))
    assert read == as_pamqp(table)


@given(tables)
def test_the_table_pamqp_writes_is_read(table: dict[str, Value]) -> None:
    assert as_pamqp(decode_table(pamqp.encode.field_table(as_pamqp(table)))) == as_pamqp(table)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_an_error(data: bytes) -> None:
    try:
        decode_table(data, entries=10_000)
    except TableError:
        assert not check_table(data)
        return
    assert check_table(data)


@given(tables, st.data())
def test_every_prefix_and_every_damaged_byte_is_survived(
    table: dict[str, Value], data: st.DataObject
) -> None:
    encoded = bytearray(encode_table(table))
    for cut in range(len(encoded)):
        assert not check_table(bytes(encoded[:cut]))
        with pytest.raises(TableError):
            decode_table(bytes(encoded[:cut]))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    try:
        decode_table(bytes(encoded))
    except TableError:
        return


def nested(depth: int, letter: bytes = b"F") -> bytes:
    inner = b"\x00\x00\x00\x00"
    for _ in range(depth - 1):
        body = (b"\x01a" if letter == b"F" else b"") + letter + inner
        inner = len(body).to_bytes(4, "big") + body
    if letter == b"A":
        body = b"\x01a" + letter + inner
        return len(body).to_bytes(4, "big") + body
    return inner


@pytest.mark.parametrize("letter", [b"F", b"A"])
def test_nesting_ends_at_sixteen(letter: bytes) -> None:
    limit = 16 if letter == b"F" else 15
    assert check_table(nested(limit, letter))
    decode_table(nested(limit, letter))
    assert not check_table(nested(limit + 1, letter))
    with pytest.raises(TableError, match="deep"):
        decode_table(nested(limit + 1, letter))
    with pytest.raises(TableError):
        decode_table(nested(30_000, letter))


def test_void_elements_count_as_entries() -> None:
    body = b"\x01a" + b"A" + (2000).to_bytes(4, "big") + b"V" * 2000
    table = len(body).to_bytes(4, "big") + body
    assert check_table(table)
    with pytest.raises(TableError, match="too many entries"):
        decode_table(table)
    assert decode_table(table, entries=2001) == {"a": [None] * 2000}


def test_every_field_type_of_the_dialect() -> None:
    fields = {
        "t": b"\x01",
        "b": b"\xff",
        "B": b"\xff",
        "s": b"\xff\xfe",
        "u": b"\xff\xfe",
        "I": b"\xff\xff\xff\xfe",
        "i": b"\xff\xff\xff\xfe",
        "l": b"\xff" * 8,
        "L": b"\xff" * 8,
        "f": b"\x3f\x80\x00\x00",
        "d": b"\x3f\xf0" + bytes(6),
        "D": b"\x02\x00\x00\x01\x3a",
        "S": b"\x00\x00\x00\x01\xff",
        "x": b"\x00\x00\x00\x01a",
        "T": bytes(7) + b"\x05",
        "V": b"",
        "A": b"\x00\x00\x00\x03t\x01V",
        "F": b"\x00\x00\x00\x00",
    }
    body = b"".join(bytes([1]) + name.encode() + name.encode() + value for name, value in fields.items())
    assert decode_table(len(body).to_bytes(4, "big") + body) == {
        "t": True,
        "b": -1,
        "B": 255,
        "s": -2,
        "u": 65534,
        "I": -2,
        "i": 4294967294,
        "l": -1,
        "L": -1,
        "f": 1.0,
        "d": 1.0,
        "D": Decimal("3.14"),
        "S": b"\xff",
        "x": ByteArray(b"a"),
        "T": Timestamp(5),
        "V": None,
        "A": [True, None],
        "F": {},
    }


SPEC = "ohlLbbbbbbbbbsbStb"


@given(
    st.tuples(
        st.integers(0, 255),
        st.integers(0, 65535),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**64 - 1),
        *[st.booleans()] * 9,
        st.text(max_size=60),
        st.booleans(),
        st.binary(max_size=60),
        tables,
        st.booleans(),
    )
)
def test_arguments_survive_the_round_trip_and_no_prefix_is_accepted(values: tuple[Value, ...]) -> None:
    encoded = encode_fields(SPEC, values)
    assert decode_fields(SPEC, encoded) == values
    for cut in (0, 1, len(encoded) // 2, len(encoded) - 1):
        with pytest.raises(TableError):
            decode_fields(SPEC, encoded[:cut])
    with pytest.raises(TableError, match="behind"):
        decode_fields(SPEC, encoded + b"\x00")


named = st.sampled_from(["x-key", "x-kez", "x", ""])


@given(
    headers=st.dictionaries(named | keys, values, max_size=6),
    others=st.sets(st.sampled_from(["content_type", "content_encoding", "reply_to"])),
    name=named,
)
def test_one_header_is_read_as_all_are(headers: dict[str, Any], others: set[str], name: str) -> None:
    block = encode_properties({**dict.fromkeys(others, "text"), **({"headers": headers} if headers else {})})
    found = decode_properties(block).get("headers", {})
    assert isinstance(found, dict)
    wanted = found.get(name)
    assert read_text_header(block, name.encode()) == (wanted if isinstance(wanted, str | bytes) else None)
    for end in range(len(block)):
        read_text_header(block[:end], name.encode())


@given(block=st.binary(max_size=40), size=st.integers(0, 40))
def test_no_bytes_mislead_a_search_for_a_header(block: bytes, size: int) -> None:
    block = b"\xe0\0\1a\0" + struct.pack(">I", size) + b"\5x-keyS" + block
    found = read_text_header(block, b"x-key")
    if isinstance(found, bytes):
        assert found in block
    assert found is None or len(found) <= size
    assert read_text_header(block, bytes(300)) is None


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, Decimal(2**31), Decimal(1).scaleb(-256)])
def test_a_number_that_no_field_holds_is_refused_at_any_depth(value: object) -> None:
    for table in ({"n": value}, {"n": [{"n": value}]}):
        with pytest.raises(ValueError, match="has at most"):
            encode_table(table)
