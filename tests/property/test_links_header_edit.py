"""The kernel that changes the headers of messages, against plain Python; pamqp reads the result."""

from __future__ import annotations

import contextlib
import struct
import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from penstock.protocols.links.amqp._header_edit import HeaderEdit
from penstock.protocols.links.amqp._relay import Relay
from penstock.protocols.links.amqp.header import element, encoded, short_string
from penstock.protocols.links.errors import LinkError
from tests.reference.amqp_header import (
    array_of,
    entries,
    lowered,
    table_of,
    with_entry,
    with_first,
    with_properties,
    without_user_id,
)

_ARRAY, _STAMP = b"x-received-from", b"x-stamp"
_TEXTS = st.sampled_from(["here", "there", "", "/"])
_HOPS = st.dictionaries(
    st.sampled_from(["uri", "queue", "cluster-name", "vhost", "visit-count"]),
    _TEXTS | st.integers(-200, 1 << 40) | st.booleans(),
    max_size=5,
)
_VALUES = st.none() | st.booleans() | st.text(max_size=5) | st.lists(_HOPS | st.integers(0, 9), max_size=3)
_HEADERS = st.none() | st.dictionaries(
    st.sampled_from([_ARRAY.decode(), _STAMP.decode(), "a", "CC", "BCC", "DCC"]), _VALUES, max_size=4
)
_OTHERS = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.text(max_size=3),
        "content_encoding": st.just("gzip"),
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 255),
        "correlation_id": st.just("c"),
        "message_id": st.text(max_size=3),
        "user_id": st.just("me"),
        "app_id": st.just("a"),
    },
)
_FIRSTS = element({"n": 1}), element({"n": 2})


def header(headers: Mapping[str, Any] | None, **more: Any) -> bytes:
    properties = commands.Basic.Properties(headers=dict(headers) if headers else None, **more)
    return pamqp.frame.marshal(ContentHeader(0, 3, properties), 1)


def edit(**settings: Any) -> HeaderEdit:
    return HeaderEdit(frame_max=1 << 17, end="target", **settings)


@given(
    _HEADERS, _OTHERS, st.sampled_from([{}, {"delivery_mode": 2, "type": "t"}, {"headers": {"b": [1, "x"]}}])
)
def test_properties_are_set(
    headers: Mapping[str, Any] | None, others: Mapping[str, Any], properties: Mapping[str, Any]
) -> None:
    before, made = header(headers, **others), encoded(properties)
    assert edit(properties=made).changed(before, False) == with_properties(before, made)
    # Headers that are set are those to which others are added.
    both = edit(properties=made, array=_ARRAY, firsts=_FIRSTS).changed(before, False)
    assert both == with_first(with_properties(before, made), _ARRAY, _FIRSTS[0])


@given(_HEADERS, _OTHERS)
def test_user_id_goes_and_all_else_stays(
    headers: Mapping[str, Any] | None, others: Mapping[str, Any]
) -> None:
    before = header(headers, **others)
    assert edit(removes_user_id=True).changed(before, False) == without_user_id(before)
    assert edit().changed(before, False) == before


@given(_HEADERS, _OTHERS)
def test_copies_route_nothing(headers: Mapping[str, Any] | None, others: Mapping[str, Any]) -> None:
    before = header(headers, **others)
    assert edit(lowers_copies=True).changed(before, False) == lowered(before)


@given(_HEADERS, _OTHERS, st.booleans())
def test_a_table_is_put_in_front_of_those_before(
    headers: Mapping[str, Any] | None, others: Mapping[str, Any], redelivered: bool
) -> None:
    before = header(headers, **others)
    made = edit(array=_ARRAY, firsts=_FIRSTS).changed(before, redelivered)
    assert made == with_first(before, _ARRAY, _FIRSTS[redelivered])
    size, _, found = pamqp.frame.unmarshal(made)
    assert size == len(made) and isinstance(found, ContentHeader) and found.body_size == 3


@given(_HEADERS, _OTHERS, st.integers(0, 3))
def test_a_message_that_was_here_or_crossed_enough_links_stays_out(
    headers: Mapping[str, Any] | None, others: Mapping[str, Any], max_hops: int
) -> None:
    before = header(headers, **others)
    been = array_of(before, _ARRAY)
    was_here = any(
        isinstance(one, Mapping) and one.get("cluster-name") == "here" and one.get("vhost") == "/"
        for one in been
    )
    made = edit(array=_ARRAY, firsts=_FIRSTS, here=(b"here", b"/"), max_hops=max_hops).changed(before, False)
    if was_here or (been and len(been) >= max_hops):
        assert made is None
    else:
        assert made == with_first(before, _ARRAY, _FIRSTS[0])


@given(_HEADERS, _OTHERS)
def test_visits_of_one_place_are_counted_in_one_element(
    headers: Mapping[str, Any] | None, others: Mapping[str, Any]
) -> None:
    before = header(headers, **others)
    place = {"uri": "there", "queue": "here"}
    count = short_string("visit-count") + b"l"
    firsts = element(place, count + struct.pack(">q", 1)), element(place, count + struct.pack(">q", 9))
    visits, kept = 1, []
    for one in array_of(before, _ARRAY):
        if isinstance(one, Mapping) and (one.get("uri"), one.get("queue")) == ("there", "here"):
            earlier = one.get("visit-count", 1)
            visits += earlier if isinstance(earlier, int) and not isinstance(earlier, bool) else 1
        else:
            kept.append(one)
    made = edit(array=_ARRAY, firsts=firsts, visited=(b"there", b"here")).changed(before, False)
    assert made is not None
    assert array_of(made, _ARRAY) == [{**place, "visit-count": visits}, *kept]
    others_of = [
        {frame[at + 1 : kind]: frame[kind:end] for at, kind, end in entries(frame, *table_of(frame))}
        for frame in (before, made)
    ]
    for one in others_of:
        one.pop(_ARRAY, None)
    assert others_of[0] == others_of[1]


@given(_HEADERS, _OTHERS)
def test_a_header_has_the_time(headers: Mapping[str, Any] | None, others: Mapping[str, Any]) -> None:
    before = header(headers, **others)
    began = int(time.time() * 1000)
    made = edit(stamp=_STAMP).changed(before, False)
    assert made is not None
    (value,) = (
        made[kind + 1 : end]
        for at, kind, end in entries(made, *table_of(made))
        if made[at + 1 : kind] == _STAMP
    )
    assert began <= int.from_bytes(value, "big") <= time.time() * 1000
    assert made == with_entry(before, _STAMP, b"l" + value)


@pytest.mark.parametrize(
    ("name", "value"), [("headers", {"a": 2**70}), ("type", "ö" * 128), ("priority", 256)]
)
def test_a_property_that_cannot_be_sent_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} cannot be sent by AMQP"):
        encoded({name: value})


def test_headers_that_no_frame_could_carry_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(20):
        deep = {"a": deep}
    for headers in (encoded({"headers": deep}), {1 << 13: b"\0\0\0\1"}):
        with pytest.raises(ValueError, match="headers are no table"):
            edit(properties=headers, array=_ARRAY, firsts=_FIRSTS)


def test_a_header_that_grows_too_large_is_refused() -> None:
    before = header({"a": "x" * 400})
    most = len(edit(stamp=b"s").changed(before, False) or b"")
    assert HeaderEdit(frame_max=most, end="target", stamp=b"s").changed(before, False) is not None
    with pytest.raises(LinkError, match="target: the header of a message has no room"):
        HeaderEdit(frame_max=most - 1, end="target", stamp=b"s").changed(before, False)


@given(_HEADERS, _OTHERS, st.integers(0, 1 << 16), st.binary(max_size=4))
def test_a_damaged_header_is_refused_or_changed_within_its_bounds(
    headers: Mapping[str, Any] | None, others: Mapping[str, Any], place: int, noise: bytes
) -> None:
    frame = bytearray(header(headers, **others))
    at = 7 + place % (len(frame) - 7)
    frame[at : at + len(noise)] = noise
    change = edit(
        removes_user_id=True, array=_ARRAY, firsts=_FIRSTS, here=(b"here", b"/"), max_hops=2, stamp=_STAMP
    )
    with contextlib.suppress(ValueError):
        change.changed(bytes(frame), False)
    for size in range(len(frame)):
        with contextlib.suppress(ValueError):
            change.changed(bytes(frame[:size]), False)


def test_no_function_of_python_runs_for_a_message() -> None:
    deliver = commands.Basic.Deliver("c", 1, False, "e", "k")
    message = pamqp.frame.marshal(deliver, 1) + header({"a": 1}, user_id="me")
    message += pamqp.frame.marshal(ContentBody(b"abc"), 1)
    change = edit(
        properties=encoded({"delivery_mode": 2}),
        removes_user_id=True,
        array=_ARRAY,
        firsts=_FIRSTS,
        here=(b"here", b"/"),
        max_hops=2,
        stamp=_STAMP,
    )
    relay, calls = Relay(channel=1, change=change), list[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        # The collector of garbage may call others.
        if event == "call" and frame.f_globals.get("__name__", "").startswith("penstock"):
            calls.append(frame.f_code.co_qualname)

    data = message * 1000
    sys.setprofile(note)
    try:
        used = relay.take(data)
    finally:
        sys.setprofile(None)
    assert used == len(data) and sum(count for _, count in relay.runs) == 1000
    assert relay.out.count(_STAMP) == 1000 and not calls
