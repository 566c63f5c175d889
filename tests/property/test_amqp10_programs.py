"""The program of a filter against its functions: the same answer, or none, whatever the message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.codec.errors import Amqp10Error
from penstock.protocols.amqp10.filters.filters import Filters
from penstock.protocols.amqp10.messages import sections as s
from tests.support.amqp10_messages import damaged

_WORDS = ("", "a", "ab", "aab", "é", "aé", "b%a", "ß€", "a\U0001f600b")
_NUMBERS = (0, 1, -1, 4, 127, -128, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(_WORDS),
    st.sampled_from(_NUMBERS),
    st.sampled_from((0.5, 4.0, -1.0, 2.0**53, 1e300, float("inf"), float("nan"))),
    st.sampled_from((True, False, None, b"", b"ab", b"\xff", v.Symbol("ab"), v.Char("a"), v.UByte(4))),
    st.sampled_from((v.ULong(2**64 - 1), v.ULong(4), v.Int(-5), v.Short(-300), v.Byte(-1), v.Float(0.5))),
    st.sampled_from((v.Timestamp(4), v.Timestamp(-4), v.UShort(65535), v.Decimal(b"abcd"), [1], {"a": 1})),
    st.uuids(),
)
_NAMES = ("x", "y", "z")
_MESSAGES = st.builds(
    lambda header, annotations, properties, application: b"".join(
        s.encode_section(code, value)
        for code, value in (
            (s.HEADER, header),
            (s.ANNOTATIONS, annotations),
            (s.PROPERTIES, properties),
            (s.APPLICATION_PROPERTIES, application),
            (s.DATA, b"body"),
        )
        if value is not None
    ),
    st.none() | st.lists(st.booleans(), max_size=1) | st.tuples(st.booleans(), st.just(v.UByte(9))).map(list),
    st.none() | st.dictionaries(st.sampled_from(("x-stream-filter-value", "m")).map(v.Symbol), _VALUES),
    st.none() | st.lists(_VALUES, max_size=8),
    st.none() | st.dictionaries(st.sampled_from(_NAMES), _VALUES),
)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


_CONSTANTS = st.one_of(
    st.sampled_from(_WORDS).map(_quoted),
    st.sampled_from(("5", "4", "-1", "0.5", "1E300", "9007199254740992", "9007199254740993", "0xFF", "TRUE")),
)
_TERMS = st.one_of(
    st.sampled_from(
        (*_NAMES, "m.m", "p.subject", "p.message_id", "h.durable", "h.priority", "JMSDeliveryMode")
    ),
    _CONSTANTS,
)
_PATTERNS = st.text(alphabet="a%_é€b", max_size=5)
_PREDICATES = st.one_of(
    st.tuples(_TERMS, st.sampled_from(("=", "<>", "!=", "<", "<=", ">", ">=")), _TERMS).map(" ".join),
    st.builds("{} {} {}".format, _TERMS, st.sampled_from(("IS NULL", "IS NOT NULL")), st.just("")),
    st.builds("{} {}BETWEEN {} AND {}".format, _TERMS, st.sampled_from(("", "NOT ")), _TERMS, _TERMS),
    st.builds("{} {}IN ({}, {})".format, _TERMS, st.sampled_from(("", "NOT ")), _TERMS, _TERMS),
    st.builds("{} {}LIKE '{}'".format, _TERMS, st.sampled_from(("", "NOT ")), _PATTERNS),
    st.builds("{} LIKE '{}' ESCAPE 'b'".format, _TERMS, st.sampled_from(("b%%", "_b_", "bb", "a%b_"))),
    _TERMS,
)
_CONDITIONS = st.recursive(
    _PREDICATES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(("AND", "OR")), inner).map("({0[0]} {0[1]} {0[2]})".format),
        inner.map("NOT ({})".format),
    ),
    max_leaves=5,
)


def _same(filters: Filters, payload: bytes) -> None:
    program = filters.program()
    if program is None:
        return
    found = program.look(payload)
    if found is None:
        return
    try:
        assert found is filters.passes(payload)
    except Amqp10Error:
        pass  # what cannot be decoded further back, where the program does not look


def _filters(**named: Any) -> Filters:
    return Filters({name: v.Described(v.Symbol(code), value) for name, (code, value) in named.items()}, int)


@given(_CONDITIONS, _MESSAGES)
@example("x LIKE '%a_'", s.encode_section(s.APPLICATION_PROPERTIES, {"x": "ba\U0001f600"}))
@example("x <> y", s.encode_section(s.APPLICATION_PROPERTIES, {"x": float("nan"), "y": float("nan")}))
def test_selectors(text: str, payload: bytes) -> None:
    _same(_filters(sql=("amqp:sql-filter", text)), payload)


_WANTED = st.one_of(
    _VALUES.filter(lambda one: not isinstance(one, list | dict)), st.sampled_from(("&p:a", "&s:b", "&&p"))
)


@given(
    st.dictionaries(st.sampled_from(("subject", "to", "message-id", "user-id")), _WANTED, min_size=1),
    st.dictionaries(st.sampled_from(_NAMES), _WANTED, min_size=1),
    _MESSAGES,
)
def test_filters_of_properties(fields: dict[str, Any], application: dict[str, Any], payload: bytes) -> None:
    _same(_filters(p=("amqp:properties-filter", fields)), payload)
    _same(_filters(a=("amqp:application-properties-filter", application)), payload)


@given(st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3), st.booleans(), _MESSAGES)
def test_filters_of_streams(values: list[str], unfiltered: bool, payload: bytes) -> None:
    named = {"v": ("rabbitmq:stream-filter", values), "u": ("rabbitmq:stream-match-unfiltered", unfiltered)}
    _same(_filters(**named), payload)


@given(damaged())
def test_any_bytes(payload: bytes) -> None:
    text = "x = 1 OR p.subject LIKE '%a' OR m.m IN ('a') OR h.durable OR JMSDeliveryMode = 'PERSISTENT'"
    program = _filters(sql=("amqp:sql-filter", text)).program()
    assert program is not None
    assert program.look(payload) in (True, False, None)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("x = 5 AND y = 'banana'", True),
        ("x > 5 OR y LIKE 'b_n%a'", True),
        ("z = 1 OR NOT (x BETWEEN 1 AND 4)", True),
        ("z = 1 AND x = 5", False),
        ("x IN (1, 2, 5) AND z IS NULL AND y <> 'apple'", True),
        ("x = 5.0 AND x < 5.5 AND -5 < x", True),
        ("JMSDeliveryMode = 'NON_PERSISTENT' AND JMSPriority = 4", True),
    ],
)
def test_ordinary_messages_need_no_function(text: str, passes: bool) -> None:
    payload = s.encode_section(s.APPLICATION_PROPERTIES, {"x": v.Int(5), "y": "banana"})
    program = _filters(sql=("amqp:sql-filter", text)).program()
    assert program is not None
    assert program.look(payload) is passes


def test_arithmetic_has_no_program() -> None:
    assert _filters(sql=("amqp:sql-filter", "x + 1 = 2")).program() is None
