"""Headers that a shovel adds: the others keep their bytes, and pamqp reads the result."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.header import ContentHeader

from penstock.protocols.links.amqp.header import (
    array_of,
    element,
    encoded,
    entries,
    table_of,
    with_entry,
    with_first,
    with_properties,
    without_user_id,
)

_NAMES = st.sampled_from(["a", "x-shovelled", "x-shovelled-timestamp", "b"])
_VALUES = st.none() | st.booleans() | st.text(max_size=5) | st.lists(st.integers(0, 9), max_size=2)
_HEADERS = st.none() | st.dictionaries(_NAMES, _VALUES, max_size=4)
_OTHERS = st.sampled_from([{}, {"content_type": "x/y", "app_id": "me"}, {"content_encoding": "gzip"}])


def header(headers: dict[str, Any] | None, **more: Any) -> bytes:
    return pamqp.frame.marshal(
        ContentHeader(0, 3, commands.Basic.Properties(headers=headers or None, **more)), 1
    )


def properties(frame: bytes) -> dict[str, Any]:
    size, _, found = pamqp.frame.unmarshal(frame)
    assert isinstance(found, ContentHeader) and size == len(frame) and found.body_size == 3
    return {name: value for name, value in found.properties if value is not None}


def raw(frame: bytes) -> dict[bytes, bytes]:
    return {frame[at + 1 : kind]: frame[kind:end] for at, kind, end in entries(frame, *table_of(frame))}


@given(_HEADERS, _OTHERS)
def test_a_header_is_set_and_the_others_stay(headers: dict[str, Any] | None, more: dict[str, str]) -> None:
    before = header(headers, **more)
    made = with_entry(before, b"x-shovelled-timestamp", b"l" + (7).to_bytes(8, "big"))
    wanted = {**properties(before), "headers": {**(headers or {}), "x-shovelled-timestamp": 7}}
    assert properties(made) == wanted
    assert raw(made) == raw(before) | {b"x-shovelled-timestamp": b"l" + (7).to_bytes(8, "big")}


@given(_HEADERS, _OTHERS)
def test_a_table_is_put_in_front_of_those_before(
    headers: dict[str, Any] | None, more: dict[str, str]
) -> None:
    made = with_first(header(headers, **more), b"x-shovelled", element({"by": "me"}))
    earlier = (headers or {}).get("x-shovelled")
    wanted = [{"by": "me"}, *(earlier if isinstance(earlier, list) else [])]
    assert properties(made)["headers"] == {**(headers or {}), "x-shovelled": wanted}


@given(_HEADERS, _OTHERS)
def test_properties_are_set(headers: dict[str, Any] | None, more: dict[str, str]) -> None:
    before = header(headers, **more)
    made = with_properties(before, encoded({"delivery_mode": 2, "type": "t", "timestamp": 5}))
    wanted = {"delivery_mode": 2, "message_type": "t", "timestamp": datetime.fromtimestamp(5, UTC)}
    assert properties(made) == {**properties(before), **wanted}
    assert raw(made) == raw(before)


def test_headers_that_are_set_replace_all() -> None:
    before = header({"a": 1}, app_id="me")
    made = with_properties(before, encoded({"headers": {"b": [1, "x"]}}))
    assert properties(made) == {**properties(before), "headers": {"b": [1, "x"]}}


@pytest.mark.parametrize(
    ("name", "value"), [("headers", {"a": 2**70}), ("type", "ö" * 128), ("priority", 256)]
)
def test_a_property_that_cannot_be_sent_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} cannot be sent by AMQP"):
        encoded({name: value})


@given(
    _HEADERS,
    _OTHERS,
    st.sampled_from(
        [{}, {"timestamp": datetime.fromtimestamp(1, UTC), "delivery_mode": 2, "expiration": "9"}]
    ),
)
def test_user_id_goes_and_all_else_stays(
    headers: dict[str, Any] | None, more: dict[str, Any], others: dict[str, Any]
) -> None:
    plain = header(headers, **{"app_id": "a", **more, **others}, priority=1, message_type="t")
    assert without_user_id(plain) == plain
    with_user = header(
        headers, **{"app_id": "a", **more, **others}, priority=1, message_type="t", user_id="me"
    )
    assert without_user_id(with_user) == plain


def test_the_elements_of_an_array_are_read() -> None:
    made = with_first(header(None), b"x-received-from", element({"vhost": "/"}, b"\x04hops" + b"s\x00\x03"))
    made = with_first(made, b"x-received-from", element({"vhost": "b"}))
    assert array_of(made, b"x-received-from") == [{"vhost": "b"}, {"vhost": "/", "hops": 3}]
    assert array_of(made, b"x-shovelled") == []
