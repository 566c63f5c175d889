"""The kernels of AMQP 1.0 against the Python functions whose work they do: the same result, or none."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.log_core.batch._batch import Record
from penstock.protocols.amqp.messages.dead_letters import rewrite
from penstock.protocols.amqp10.codec.encoding import encode
from penstock.protocols.amqp10.codec.errors import Amqp10Error
from penstock.protocols.amqp10.codec.values import Byte, Symbol, Timestamp, UInt, ULong
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.amqp10.messages._delivering import delivered
from penstock.protocols.amqp10.messages._storing import stored
from penstock.protocols.amqp10.messages.translate import amqp10_from_stored, stored_from_amqp10
from penstock.protocols.properties import _tables as t
from penstock.protocols.properties.properties import encode_properties
from penstock.router.names import ENC_AMQP091, join_key_block, split_key_block
from penstock.router.queues.dead_letters import Death
from tests.support.amqp10_messages import GOOD_HEADER, ID, NESTED, SCALAR, TEXT, damaged, messages


def _same_as_python(payload: bytes) -> None:
    found = stored(payload)
    try:
        wanted = stored_from_amqp10(payload)
    except Amqp10Error:
        assert found is None
        return
    if found is None:
        return
    ttl = wanted.ttl_ms
    assert found[:6] == (
        wanted.block,
        wanted.body,
        wanted.durable,
        wanted.has_sections,
        wanted.priority if wanted.has_priority else 0,
        max(ttl, 1) if ttl is not None and ttl <= 2**32 - 2 else 0,
    )
    assert found[7:] == (wanted.delivery_time_ms, wanted.delivery_delay_ms)
    assert not wanted.has_own
    assert (found[6] is not None) == wanted.has_user_id


_MS = st.sampled_from((-(2**63), -129, -1, 0, 1, 127, 128, 255, 256, 2**31, 2**32, 2**63 - 1))


@given(
    st.sampled_from(("x-opt-delivery-time", "x-opt-delivery-delay", "x-opt-delivery-other")),
    st.one_of(
        _MS,
        _MS.map(Timestamp),
        _MS.filter(lambda ms: ms >= 0).map(ULong),
        st.just(ULong(2**64 - 1)),
        st.sampled_from((0, 1, 255, 256, 2**32 - 1)).map(UInt),
        st.sampled_from((-128, -1, 0, 127)).map(Byte),
        st.booleans(),
    ),
)
def test_a_delay_is_read_as_python_reads_it(name: str, value: Any) -> None:
    annotations = s.encode_section(s.ANNOTATIONS, {Symbol(name): value})
    _same_as_python(annotations + s.encode_section(s.DATA, b"m"))


@given(messages())
def test_a_message_is_stored_as_python_stores_it(payload: bytes) -> None:
    _same_as_python(payload)


@given(messages(), st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_messages_that_begin_as_the_last_one_are_stored_as_python_stores_them(
    payload: bytes, bodies: list[bytes]
) -> None:
    head = payload[: payload.rfind(b"\x00\x53\x75")]
    for body in bodies:
        message = head + s.encode_section(s.DATA, body)
        _same_as_python(message)
        again = stored(message)
        assert stored(b"") is not None  # another head
        assert stored(message) == again
    _same_as_python(head)
    _same_as_python(payload)


@given(damaged())
@example(b"\x00\x53\x75\xb0\xff\xff\xff\xff")
@example(b"\x00\x53\x73\xd0\x00\x00\x00\x04\xff\xff\xff\xff")
def test_damaged_messages_are_stored_as_python_stores_them(payload: bytes) -> None:
    _same_as_python(payload)


@given(st.binary(max_size=64))
def test_any_bytes_are_stored_as_python_stores_them(payload: bytes) -> None:
    _same_as_python(payload)


_FIELD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from((-(2**31), -129, -128, 0, 127, 128, 2**31 - 1, 2**40)),
    st.sampled_from((-(2**63), -129, 0, 127, 128)).map(t.Long),
    st.integers(0, 2**16 - 1).map(t.UnsignedShort),
    st.integers(-(2**15), 2**15 - 1).map(t.Short),
    st.sampled_from((0, 255, 256, 2**32 - 1)).map(t.UnsignedInt),
    st.integers(-128, 127).map(t.Byte),
    st.integers(0, 255).map(t.UnsignedByte),
    st.sampled_from((0, 1_700_000_000, 2**53, 2**64 - 1)).map(t.Timestamp),
    st.floats(allow_nan=False),
    TEXT,
    st.just("\udcff"),
    st.binary(max_size=4).map(t.ByteArray),
    st.sampled_from(([1, 2], [], [[1], "a"], [[[[[1]]]]], list(range(70)))),
    st.sampled_from(({"a": 1}, {}, {"a": {"b": [None]}}, {"\udcff": 1})),
    st.just(
        [
            {
                "reason": "expired",
                "queue": "q",
                "count": t.Long(3),
                "time": t.Timestamp(5),
                "routing-keys": ["a"],
            }
        ]
    ),
)
_NAMES = TEXT | st.sampled_from(
    ("x-a", "x-death", "CC", "x-exchange", "x-stream-offset", "x-é", "x-basic-type")
)
_SHORT = st.sampled_from(
    ("", "text", "é", "\udcff", "/topic/a/b", "/queues/q", "a b", "amqp-1.0", "7", "x" * 255)
)
_BLOCKS = st.fixed_dictionaries(
    {},
    optional={
        "content_type": _SHORT,
        "content_encoding": _SHORT,
        "headers": st.dictionaries(
            _NAMES.filter(lambda name: len(name.encode("utf-8", "replace")) < 256), _FIELD, max_size=4
        ),
        "delivery_mode": st.integers(0, 255),
        "priority": st.integers(0, 255),
        "correlation_id": _SHORT,
        "reply_to": _SHORT,
        "expiration": _SHORT,
        "message_id": _SHORT,
        "timestamp": st.sampled_from((0, 1_700_000_000, 2**64 - 1)),
        "type": _SHORT,
        "user_id": _SHORT,
        "app_id": _SHORT,
        "cluster_id": _SHORT,
    },
).map(encode_properties)
_TELLS = st.fixed_dictionaries(
    {
        "delivery_count": st.sampled_from((0, 1, 300)),
        "acquired": st.sampled_from((None, 0, 1, 400)),
        "counts": st.booleans(),
        "ttl_ms": st.sampled_from((None, None, 0, 5, 2**40)),
        "offset": st.sampled_from((None, None, 0, 200, 2**40)),
    }
)
_KEYS = st.sampled_from(
    (join_key_block("", "q"), join_key_block("amq.topic", "a.b"), b"\x01\xff\x01a", b"\x05a", b"")
)


def _the_same_payload(one: bytes | None, other: bytes) -> None:
    """Section by section. Annotations that were kept keep their encoding, which is Python's only in value."""
    if one is None:
        return
    mine, its = list(s.read_sections(one)), list(s.read_sections(other))
    assert [(code, repr(value)) for code, value, _ in mine] == [(code, repr(value)) for code, value, _ in its]
    assert [raw for code, _, raw in mine if code != s.ANNOTATIONS] == [
        raw for code, _, raw in its if code != s.ANNOTATIONS
    ]


@given(NESTED, st.booleans())
@example([[[[]]]], False)
@example({"a": {"b": [1]}}, True)
def test_bodies_of_a_few_levels_are_not_left_to_python(value: Any, sequence: bool) -> None:
    if _levels(value) > 3:
        return
    payload = s.encode_section(*((s.SEQUENCE, [value]) if sequence else (s.VALUE, value)))
    found = stored(payload)
    assert found is not None
    assert delivered(join_key_block("", "q"), found[0], found[1]) is not None


def _levels(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_levels, inner), default=0)


@given(_KEYS, _BLOCKS, st.binary(max_size=300), _TELLS)
@example(join_key_block("", "q"), encode_properties({"cluster_id": "amqp-1.0"}), b"", {})
def test_a_record_is_delivered_as_python_delivers_it(
    key: bytes, block: bytes, body: bytes, told: dict[str, Any]
) -> None:
    _the_same_payload(delivered(key, block, body, **told), amqp10_from_stored(key, block, body, **told))


@given(_KEYS, st.binary(max_size=60), st.binary(max_size=20), _TELLS, st.booleans())
def test_a_block_that_is_none_is_left_to_python(
    key: bytes, block: bytes, body: bytes, told: dict[str, Any], sections: bool
) -> None:
    found = delivered(key, block, body, sections=sections, **told)
    if found is not None:
        _the_same_payload(found, amqp10_from_stored(key, block, body, sections=sections, **told))


_DEATH = Death("q", "rejected", 1_700_000_000, None)


@given(_KEYS.filter(lambda key: split_key_block(key) is not None), messages(), st.integers(1, 3))
def test_a_dead_letter_is_delivered_as_python_delivers_it(key: bytes, payload: bytes, deaths: int) -> None:
    try:
        kept = stored_from_amqp10(payload)
    except Amqp10Error:
        return
    props = kept.block
    for _ in range(deaths):
        record = Record(1, key, props, kept.body, (), 0, 0, ENC_AMQP091, 0, 0, 0)
        props = rewrite(record, _DEATH).props
    told: dict[str, Any] = {"sections": kept.has_sections}
    found = delivered(key, props, kept.body, **told)
    before = delivered(key, kept.block, kept.body, ttl_ms=kept.ttl_ms, **told)
    assert (found is None) == (before is None)
    _the_same_payload(found, amqp10_from_stored(key, props, kept.body, **told))


@given(_KEYS, messages(), _TELLS)
def test_a_message_comes_back_as_python_brings_it(key: bytes, payload: bytes, told: dict[str, Any]) -> None:
    try:
        kept = stored_from_amqp10(payload)
    except Amqp10Error:
        return
    told["sections"] = kept.has_sections
    _the_same_payload(
        delivered(key, kept.block, kept.body, **told), amqp10_from_stored(key, kept.block, kept.body, **told)
    )


@given(
    GOOD_HEADER,
    st.lists(ID, min_size=1, max_size=1),
    st.dictionaries(st.sampled_from("abc"), SCALAR),
    st.binary(),
)
def test_ordinary_messages_are_not_left_to_python(
    header: list[Any], ids: list[Any], application: dict[str, Any], body: bytes
) -> None:
    payload = (
        s.encode_section(s.HEADER, header)
        + s.encode_section(s.ANNOTATIONS, {Symbol("x-opt-jms-dest"): Byte(0)})
        + s.encode_section(s.PROPERTIES, [None if isinstance(ids[0], bytes) else ids[0], None, "/queues/q"])
        + s.encode_section(s.APPLICATION_PROPERTIES, application)
        + b"\x00\x53\x75"
        + encode(body)
    )
    found = stored(payload)
    assert found is not None
    told: dict[str, Any] = {"sections": found[3], "ttl_ms": found[5] or None}
    if not header[2] or found[5]:
        assert delivered(join_key_block("", "q"), found[0], found[1], **told) is not None
