"""Any text is a selector or refused, and any two values compare."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.filters.errors import SelectorError
from penstock.protocols.amqp10.filters.parser import parse_selector
from penstock.protocols.amqp10.messages.sections import Message
from tests.support.examples import histories

MESSAGE = Message(
    properties=[UUID(int=1), b"u", "orders", "subject"],
    application_properties={"n": v.Int(5), "s": "banana", "t": True},
)

_PIECES = st.sampled_from(
    [
        "n",
        "s",
        "5",
        "'a'",
        "(",
        ")",
        "AND",
        "OR",
        "NOT",
        "=",
        "<",
        "-",
        "*",
        "LIKE",
        "IN",
        "IS",
        "NULL",
        "p.to",
    ]
    + ["BETWEEN", "ESCAPE", ",", "%", ".", "[", "]", "UTC", "JMSType", "TRUE", "\0", "é", "'"]
)


@settings(max_examples=histories(60))
@given(st.lists(_PIECES, max_size=15).map(" ".join) | st.text(max_size=60))
def test_any_text_is_refused_or_answers_any_message(text: str) -> None:
    try:
        selector = parse_selector(text, int).value
    except SelectorError:
        return
    for message in (MESSAGE, Message()):
        assert selector(message) in (True, False, None)


_SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=4),
    st.binary(max_size=4),
)


@settings(max_examples=histories(60))
@given(_SCALARS, _SCALARS)
def test_any_two_values_compare(one: Any, other: Any) -> None:
    message = Message(application_properties={"x": one, "y": other})
    found = {
        sign: parse_selector(f"x {sign} y", int).value(message) for sign in ("=", "<>", "<", "<=", ">", ">=")
    }
    if one is None or other is None:
        assert set(found.values()) == {None}
    else:
        assert None not in found.values()
        assert not (found["="] and found["<>"])
        assert not (found["<"] and found[">"])
    for sign in "+-*/%":
        parse_selector(f"x {sign} y = 0", int).value(message)
