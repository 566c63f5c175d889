"""Values and frames of AMQP 1.0, byte for byte where the standard leaves no choice, and beside proton."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from proton import (
    UNDESCRIBED,
    Data,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)
from proton import Array as ProtonArray
from proton import Described as ProtonDescribed

from penstock.protocols.amqp10.codec._decoding import DEPTH_MAX, decode
from penstock.protocols.amqp10.codec.encoding import encode, symbols
from penstock.protocols.amqp10.codec.errors import Amqp10Error, DecodeError, FieldError, FramingError
from penstock.protocols.amqp10.codec.frames import AMQP, HEARTBEAT, SASL, encode_frame, read_frame
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
    composite,
    encode_composite,
)
from penstock.protocols.amqp10.codec.values import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
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

_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

PAIRS: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (False, False),
    (UByte(255), ubyte(255)),
    (UShort(65535), ushort(65535)),
    *((UInt(n), uint(n)) for n in (0, 1, 255, 256, 2**32 - 1)),
    *((ULong(n), ulong(n)) for n in (0, 1, 255, 256, 2**64 - 1)),
    *((Byte(n), byte(n)) for n in (-128, 127)),
    *((Short(n), short(n)) for n in (-(2**15), 2**15 - 1)),
    *((Int(n), int32(n)) for n in (-(2**31), -129, -128, 127, 128, 2**31 - 1)),
    *((n, n) for n in (-(2**63), -129, -128, 0, 127, 128, 2**63 - 1)),
    (Float(1.5), float32(1.5)),
    (-2.25, -2.25),
    (Char("\U0001f4a7"), char("\U0001f4a7")),
    (Timestamp(1_700_000_000_123), timestamp(1_700_000_000_123)),
    (_ID, _ID),
    (Decimal(b"\x01\x02\x03\x04"), decimal32(0x01020304)),
    (Decimal(bytes(range(8))), decimal64(int.from_bytes(bytes(range(8)), "big"))),
    (Decimal(bytes(range(16))), decimal128(bytes(range(16)))),
    *((b"x" * n, b"x" * n) for n in (0, 1, 255, 256)),
    *(("\u00e9" * n, "\u00e9" * n) for n in (0, 1, 127, 128)),
    *((Symbol("s" * n), symbol("s" * n)) for n in (1, 255, 256)),
    ([], []),
    ([1, "a", [True, None]], [1, "a", [True, None]]),
    (list(range(300)), list(range(300))),
    ({}, {}),
    ({Symbol("k"): {"n": UInt(7)}, 5: [b"b"]}, {symbol("k"): {"n": uint(7)}, 5: [b"b"]}),
    (Described(ULong(0x77), "q"), ProtonDescribed(ulong(0x77), "q")),
    (Described(Symbol("x:y"), [UInt(1)]), ProtonDescribed(symbol("x:y"), [uint(1)])),
]


@pytest.mark.parametrize(("ours", "protons"), PAIRS, ids=lambda value: repr(value)[:40])
def test_a_value_means_the_same_to_proton_in_both_directions(ours: Any, protons: Any) -> None:
    theirs = Data()
    theirs.put_object(protons)
    assert _typed(decode(bytes(theirs.encode()))) == _typed(ours)
    read = Data()
    raw = encode(ours)
    assert read.decode(raw) == len(raw)
    read.rewind()
    read.next()
    again = Data()
    again.put_object(read.get_object())
    assert again.encode() == theirs.encode()


@pytest.mark.parametrize(
    ("code", "items", "type_code", "theirs_as"),
    [
        (0x70, [UInt(1), UInt(2)], Data.UINT, uint),
        (0x81, [-1, 2**40], Data.LONG, int),
        (0xB1, ["a", "\u00e9"], Data.STRING, str),
        (0xB3, [Symbol("a"), Symbol("bb")], Data.SYMBOL, symbol),
    ],
)
def test_an_array_means_the_same_to_proton_in_both_directions(
    code: int, items: list[Any], type_code: int, theirs_as: type
) -> None:
    theirs = Data()
    theirs.put_py_array(ProtonArray(UNDESCRIBED, type_code, *map(theirs_as, items)))
    decoded = decode(bytes(theirs.encode()))
    assert decoded.items == items
    assert _typed(decoded.items) == _typed(items)
    read = Data()
    read.decode(encode(Array(code, items)))
    read.rewind()
    read.next()
    assert list(read.get_py_array().elements) == items


def test_an_array_of_described_values_keeps_the_descriptor_in_its_constructor() -> None:
    raw = bytes.fromhex("e00a02") + b"\x00\xa3\x01d\xa1" + b"\x01a\x01b"
    raw = raw[:1] + bytes((len(raw) - 2,)) + raw[2:]
    value = decode(raw)
    assert value == Array(0xA1, [Described(Symbol("d"), "a"), Described(Symbol("d"), "b")])
    assert encode(value) == raw


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("5601", True),
        ("5600", False),
        ("7000000001", UInt(1)),
        ("800000000000000001", ULong(1)),
        ("7100000001", Int(1)),
        ("8100000000000000ff", 255),
        ("b000000001ff", b"\xff"),
        ("d00000000500000001" + "41", [True]),
        ("d1000000060000000241" + "42", {True: False}),
        ("c00100", []),
        ("f000000006000000015001", Array(0x50, [UByte(1)])),
    ],
)
def test_each_encoding_that_we_do_not_write_is_read(raw: str, value: Any) -> None:
    assert _typed(decode(bytes.fromhex(raw))) == _typed(value)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("", "cut short"),
        ("3f", "no constructor"),
        ("52", "cut short"),
        ("4141", "behind the value"),
        ("5602", "boolean of 2"),
        ("a101ff", "no UTF-8"),
        ("a30180", "no ASCII"),
        ("730000d800", "no Unicode"),
        ("73ffffffff", "no Unicode"),
        ("c1050241" + "42", "a map of"),
        ("c1020141", "no value"),
        ("c105" + "04" + "41424142", "stands twice"),
        ("c103024541", "a key that is a list"),
        ("c0ff01", "a list of 255 bytes"),
        ("c0020141" + "41", "behind the value"),
        ("c003014141", "end elsewhere"),
        ("c00205" + "41", "5 items in 1 bytes"),
        ("d00000000300000000", "a list of 3 bytes"),
        ("f000000005ffffffff40", "more values"),
        ("f000000005ffffffff45", "more values"),
    ],
)
def test_bytes_that_are_no_value_are_a_decode_error(raw: str, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        decode(bytes.fromhex(raw))


@pytest.mark.parametrize("nest", ["list", "described", "descriptor", "array", "array descriptor"])
def test_values_that_lie_too_deep_are_refused_without_recursion_error(nest: str) -> None:
    raw = b"\x41"
    for _ in range(5000):
        if nest == "list":
            raw = b"\xd0" + struct.pack(">II", len(raw) + 4, 1) + raw
        elif nest == "described":
            raw = b"\x00\x41" + raw
        elif nest == "descriptor":
            raw = b"\x00" + raw + b"\x41"
        elif nest == "array":
            raw = b"\xf0" + struct.pack(">II", len(raw) + 4, 1) + raw
        else:
            raw = b"\x00" + raw
    if nest == "array descriptor":
        raw = b"\xf0" + struct.pack(">II", len(raw) + 4, 1) + raw
    with pytest.raises(DecodeError):
        decode(raw)


def test_as_many_levels_as_allowed_are_read() -> None:
    value: Any = True
    for _ in range(DEPTH_MAX):
        value = [value]
    assert decode(encode(value)) == value
    with pytest.raises(DecodeError, match="deeper"):
        decode(encode([value]))


def test_a_value_has_as_many_parts_as_allowed_and_no_more() -> None:
    raw = encode([True] * 9)
    assert decode(raw, values=10) == [True] * 9
    with pytest.raises(DecodeError, match="more values"):
        decode(raw, values=9)


COMPOSITES = [
    Open("c", "h", 512, 7, 1000, ("a",), ("b", "c"), ("d",), ("e",), {Symbol("k"): "v"}),
    Open("c"),
    Begin(None, 0, 1, 2),
    Begin(3, 0, 1, 2, 4, ("o",), ("d",), {Symbol("p"): True}),
    Attach("l", 1, True, 1, 1, Source("a"), Target("b"), {b"t": None}, True, 5, 6, ("o",), ("d",), {}),
    Attach("l", 0, False, target=Coordinator(("amqp:local-transactions",)), initial_delivery_count=0),
    Flow(None, 1, 2, 3),
    Flow(0, 1, 2, 3, 4, 5, 6, 7, True, True, {Symbol("txn-id"): b"1"}),
    Transfer(0, 1, b"tag", 0, True, True, 1, Received(1, 2), True, True, True),
    Disposition(True, 1, 9, True, Rejected(Error("amqp:not-found", "why", {Symbol("i"): 1})), True),
    Disposition(False, 1, state=Modified(True, True, {Symbol("x-opt-a"): 1})),
    Disposition(False, 1, state=TransactionalState(b"1", Accepted())),
    Disposition(False, 1, state=Released()),
    Detach(1, True, Error("amqp:link:stolen")),
    End(),
    Close(Error("amqp:connection:forced")),
    Source("q", 2, "never", 9, True, {Symbol("x"): 1}, "copy", {Symbol("f"): 1}, Released(), ("o",), ("c",)),
    Target("q", 1, "link-detach", 9, True, {Symbol("x"): 1}, ("queue",)),
    Declare(),
    Discharge(b"1", True),
    Declared(b"1"),
    SaslMechanisms(("PLAIN", "ANONYMOUS")),
    SaslInit("PLAIN", b"\0u\0p", "h"),
    SaslChallenge(b"c"),
    SaslResponse(b"r"),
    SaslOutcome(0, b"x"),
]


@pytest.mark.parametrize("made", COMPOSITES, ids=lambda made: type(made).__name__)
def test_a_composite_comes_back_as_it_was(made: Any) -> None:
    assert composite(decode(encode_composite(made))) == made


def test_the_symbolic_descriptor_is_as_good_as_the_number() -> None:
    assert composite(Described(Symbol("amqp:close:list"), [])) == Close()


def test_a_described_value_that_is_not_known_stays_as_it_is() -> None:
    unknown = Described(ULong(0x9999), [1])
    assert composite(unknown) is unknown
    assert decode(encode_composite(unknown)) == unknown


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "described list"),
        (Described(ULong(0x10), {}), "open is a list"),
        (Described(ULong(0x10), []), "without container-id"),
        (Described(ULong(0x10), [b"c"]), "container-id of open"),
        (Described(ULong(0x10), [Symbol("c")]), "container-id of open"),
        (Described(ULong(0x18), [None, None]), "at most 1"),
        (Described(ULong(0x18), [Described(ULong(0x24), [])]), "error of close"),
        (Described(ULong(0x15), [True, 1]), "first of disposition"),
        (Described(ULong(0x15), [UInt(1), UInt(1)]), "role of disposition"),
        (Described(ULong(0x40), [Array(0xA1, ["PLAIN"])]), "sasl-server-mechanisms"),
    ],
)
def test_a_composite_with_a_wrong_field_is_a_field_error(value: Any, said: str) -> None:
    with pytest.raises(FieldError, match=said):
        composite(value)


def test_a_frame_is_read_when_it_is_whole() -> None:
    raw = encode_frame(5, Transfer(0, 1, b"t", 0), b"payload")
    for size in range(len(raw)):
        assert read_frame(raw, 0, size, 512) is None
    assert read_frame(b"??" + raw + b"more", 2, 2 + len(raw) + 4, 512) == (
        2 + len(raw),
        AMQP,
        5,
        Transfer(0, 1, b"t", 0),
        b"payload",
    )


def test_an_empty_frame_is_a_heartbeat() -> None:
    assert HEARTBEAT == bytes.fromhex("0000000802000000")
    assert read_frame(HEARTBEAT, 0, 8, 512) == (8, AMQP, 0, None, b"")


def test_the_extended_header_is_skipped() -> None:
    body = encode_composite(Close())
    raw = struct.pack(">IBBH", 12 + len(body), 3, 0, 0) + b"skip" + body
    assert read_frame(raw, 0, len(raw), 512) == (len(raw), AMQP, 0, Close(), b"")


@pytest.mark.parametrize(
    ("raw", "error", "said"),
    [
        ("0000000702000000", FramingError, "7 bytes"),
        ("0000000801000000", FramingError, "begins at 4"),
        ("0000000803000000", FramingError, "begins at 12"),
        ("0000020102000000", FramingError, "at most 512"),
        ("0000000802070000", FramingError, "type 7"),
        ("0000000802010000", FramingError, "without a body"),
        ("000000090200000041", FieldError, "described list"),
        ("0000000d02000000" + "0053774541"[:10], DecodeError, "not known"),
        ("0000000d02000000" + "0053184541", DecodeError, "behind a close"),
    ],
)
def test_a_bad_frame_is_refused_with_its_condition(raw: str, error: type[Amqp10Error], said: str) -> None:
    data = bytes.fromhex(raw)
    with pytest.raises(error, match=said) as refused:
        read_frame(data, 0, len(data), 512)
    assert refused.value.condition.startswith("amqp:")


def test_a_sasl_frame_has_the_type_1() -> None:
    raw = encode_frame(0, SaslOutcome(0), kind=SASL)
    assert raw == bytes.fromhex("0000001002010000005344c003015000")
    assert read_frame(raw, 0, len(raw), 512) == (16, SASL, 0, SaslOutcome(0), b"")


def test_symbols_choose_the_constructor_that_all_of_them_fit() -> None:
    assert encode(symbols("a", "b")) == bytes.fromhex("e00602a3") + b"\x01a\x01b"
    assert encode(symbols("a", "b" * 256))[9] == 0xB3


def test_a_value_without_a_type_raises() -> None:
    with pytest.raises(TypeError, match="set"):
        encode({1, 2}.__class__())
    with pytest.raises(OverflowError):
        encode(UByte(256))


def _typed(value: Any) -> Any:
    """The value with the types of all its parts: 1 and True are equal, and so are UInt(1) and 1."""
    if isinstance(value, list):
        return [_typed(item) for item in value]
    if isinstance(value, dict):
        return {(type(key), key): _typed(item) for key, item in value.items()}
    if isinstance(value, Described):
        return ("described", _typed(value.descriptor), _typed(value.value))
    if isinstance(value, Array):
        return ("array", _typed(value.items))
    return (type(value), value)
