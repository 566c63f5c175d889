"""The messages that pass each filter."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.codec.encoding import encode
from penstock.protocols.amqp10.codec.errors import Amqp10Error, FieldError, Unsupported
from penstock.protocols.amqp10.filters.filters import Filters
from penstock.protocols.amqp10.filters.view import View
from penstock.protocols.amqp10.messages import sections as s
from penstock.router.queues.start_position import StartPosition
from tests.support.amqp10_messages import messages

NOW = (1_000_000).__int__
"""A clock."""
PROPERTIES = [v.ULong(7), b"u", None, "subject", None, "&c", v.Symbol("text/plain")]
APPLICATION = {"n": v.Int(5), "f": 2.5, "t": True, "s": "banana", "none": None}
MESSAGE = (
    s.encode_section(s.ANNOTATIONS, {v.Symbol("x-stream-filter-value"): "red"})
    + s.encode_section(s.PROPERTIES, PROPERTIES)
    + s.encode_section(s.APPLICATION_PROPERTIES, APPLICATION)
)


def filters(**named: Any) -> Filters:
    """Filters by name: `amqp__x_y` is `amqp:x-y`."""
    names = {
        v.Symbol(name.replace("apache_", "apache.").replace("__", ":").replace("_", "-")): value
        for name, value in named.items()
    }
    return Filters({name: v.Described(name, value) for name, value in names.items()}, NOW)


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        ({"message-id": v.UInt(7)}, True),
        ({"message-id": v.ULong(8)}, False),
        ({"user-id": b"u", "subject": "subject"}, True),
        ({"user-id": b"u", "subject": "other"}, False),
        ({"subject": "&p:sub"}, True),
        ({"subject": "&p:ub"}, False),
        ({"subject": "&s:ject"}, True),
        ({"subject": "&s:jec"}, False),
        ({"correlation-id": "&&c"}, True),
        ({"content-type": v.Symbol("text/plain")}, True),
        ({"to": None}, True),
        ({"to": "x"}, False),
        ({"reply-to-group-id": "x"}, False),
    ],
)
def test_fields_of_the_properties_are_compared(wanted: dict[str, Any], passes: bool) -> None:
    assert filters(amqp__properties_filter=wanted).passes(MESSAGE) is passes


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        ({"n": v.ULong(5), "s": "banana"}, True),
        ({"n": 5.0}, True),
        ({"f": v.Float(2.5)}, True),
        ({"n": "5"}, False),
        ({"t": True}, True),
        ({"t": v.Int(1)}, False),
        ({"s": "&p:ban", "t": True}, True),
        ({"n": "&p:5"}, False),
        ({"absent": "x"}, False),
        ({"absent": None}, False),
        ({"none": None}, True),
    ],
)
def test_application_properties_are_compared(wanted: dict[str, Any], passes: bool) -> None:
    assert filters(amqp__application_properties_filter=wanted).passes(MESSAGE) is passes


def test_all_filters_have_to_let_a_message_pass() -> None:
    both = filters(rabbitmq__stream_filter=["red"], amqp__properties_filter={"subject": "other"})
    assert not both.passes(MESSAGE)
    assert filters(rabbitmq__stream_filter="red").passes(MESSAGE)


@pytest.mark.parametrize("unfiltered", [True, False])
def test_messages_without_a_value_pass_if_that_is_wanted(unfiltered: bool) -> None:
    found = filters(rabbitmq__stream_filter=["red"], rabbitmq__stream_match_unfiltered=unfiltered)
    assert found.passes(s.encode_section(s.DATA, b"m")) is unfiltered


def test_a_time_is_an_offset() -> None:
    assert filters(rabbitmq__stream_offset_spec=v.Timestamp(5)).offset == StartPosition(5)
    assert filters().offset is None


@pytest.mark.parametrize(
    "named",
    [
        {"amqp__properties_filter": {}},
        {"amqp__properties_filter": {"nothing": 1}},
        {"amqp__properties_filter": {"subject": "&x:y"}},
        {"amqp__properties_filter": {"subject": [1]}},
        {"amqp__application_properties_filter": {str(n): n for n in range(17)}},
        {"amqp__application_properties_filter": {1: 1}},
        {"amqp__sql_filter": 1},
        {"rabbitmq__stream_filter": [1]},
        {"rabbitmq__stream_filter": {"a": "b"}},
        {"rabbitmq__stream_filter": [str(n) for n in range(33)]},
    ],
)
def test_an_impossible_filter_is_refused(named: dict[str, Any]) -> None:
    with pytest.raises(FieldError):
        filters(**named)


def test_selectors_and_other_filters_have_to_agree() -> None:
    both = filters(apache_org__selector_filter__string="n = 5", amqp__sql_filter="s = 'banana'")
    assert both.passes(MESSAGE)
    assert not filters(amqp__sql_filter="s = 'apple'").passes(MESSAGE)
    assert not filters(amqp__sql_filter="absent = 1").passes(MESSAGE)
    assert filters(amqp__sql_filter="UTC() = 1000000").passes(MESSAGE)


def test_equal_filters_say_the_same() -> None:
    one = filters(amqp__sql_filter="n = 5", amqp__properties_filter={"subject": "a", "to": "b"})
    other = filters(amqp__properties_filter={"to": "b", "subject": "a"}, amqp__sql_filter="n = 5")
    assert one.text == other.text
    assert one.text != filters(amqp__sql_filter="n = 6").text


def test_an_unknown_filter_is_refused() -> None:
    with pytest.raises(Unsupported, match="jms-selector"):
        filters(jms_selector="a = 1")


def test_a_descriptor_that_is_no_name_is_refused() -> None:
    with pytest.raises(FieldError, match="descriptor"):
        Filters({v.Symbol("f"): v.Described(v.Array(0xA3, []), "x")}, NOW)


def test_a_filter_may_be_named_by_its_number() -> None:
    found = Filters({v.Symbol("f"): v.Described(v.ULong(0x173), {v.Symbol("subject"): "other"})}, NOW)
    assert not found.passes(MESSAGE)


@given(messages())
@example(b"\x00" + encode(v.Symbol("amqp:application-properties:map")) + encode({"a": 1}))
def test_a_view_has_the_sections_of_a_message(payload: bytes) -> None:
    try:
        whole = s.parse_message(payload)
    except Amqp10Error:
        return
    view = View(payload)
    assert (view.header, view.annotations, view.properties, view.application_properties) == (
        whole.header,
        whole.annotations,
        whole.properties,
        whole.application_properties,
    )


@pytest.mark.parametrize("payload", [b"", b"\0", b"\0\x53\x70", b"\0\xa3\x01x\x45", b"\0\x53\x74\xc1\xff"])
def test_a_view_of_what_is_no_message_is_empty(payload: bytes) -> None:
    assert (View(payload).header, View(payload).application_properties) == ([], {})
