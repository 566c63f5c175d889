"""Messages of AMQP 1.0 as records keep them, as AMQP 0-9-1 and MQTT consumers get them, and back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message as ProtonMessage
from proton import symbol, ulong

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.codec.errors import Amqp10Error, DecodeError
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.amqp10.messages.addresses import (
    AddressError,
    Place,
    exchange_address,
    parse_address,
    queue_address,
)
from penstock.protocols.amqp10.messages.sections import encode_section, parse_message
from penstock.protocols.amqp10.messages.translate import Stored, amqp10_from_stored, stored_from_amqp10
from penstock.protocols.properties import _tables as t
from penstock.protocols.properties.properties import SECTIONS_HEADER, decode_properties, encode_properties
from penstock.protocols.properties.translate import mqtt5_from_amqp091
from penstock.router.names import join_key_block

KEY = join_key_block("amq.topic", "a.b")


def back(stored: Stored, *, delivery_count: int = 0) -> bytes:
    """The message that a consumer of AMQP 1.0 gets."""
    return amqp10_from_stored(
        KEY, stored.block, stored.body, sections=stored.has_sections, delivery_count=delivery_count
    )


def test_a_message_of_proton_is_an_ordinary_message_of_0_9_1() -> None:
    message = ProtonMessage(body=b"hello", durable=True, priority=7, ttl=1.5)
    message.id = "m1"
    message.correlation_id = ulong(7)
    message.reply_to = "/queues/a%2Fb"
    message.content_type = symbol("text/plain")
    message.creation_time = 1700000000.0
    message.group_id = "app"
    message.properties = {"colour": "red", "n": 5}
    message.annotations = {symbol("x-mine"): True}
    message.inferred = True
    stored = stored_from_amqp10(bytes(message.encode()))
    assert (stored.durable, stored.priority, stored.ttl_ms) == (True, 7, 1500)
    assert stored.body == b"hello"
    found = decode_properties(stored.block)
    headers = found.pop("headers")
    assert isinstance(headers, dict)
    headers.pop(SECTIONS_HEADER, None)
    assert headers == {"colour": "red", "n": 5, "x-mine": True}
    assert found == {
        "delivery_mode": 2,
        "priority": 7,
        "expiration": "1500",
        "message_id": "m1",
        "correlation_id": "7",
        "reply_to": "a/b",
        "content_type": "text/plain",
        "timestamp": 1700000000,
        "app_id": "app",
    }


def test_a_message_of_proton_returns_to_proton_unchanged() -> None:
    message = ProtonMessage(body={"k": [1, "x"]}, durable=True, subject="s")
    message.id = UUID(int=7)
    message.properties = {"x-a": 1, "b": ulong(2**63), "CC": "c"}
    message.annotations = {symbol("x-opt-a"): {"deep": [1]}, symbol("plain"): 1}
    stored = stored_from_amqp10(bytes(message.encode()))
    again = ProtonMessage()
    again.decode(back(stored, delivery_count=2))
    assert again.body == message.body
    assert (again.id, again.subject, again.durable) == (message.id, "s", True)
    assert again.properties == message.properties
    assert again.delivery_count == 2
    assert again.first_acquirer is False
    assert again.annotations == {**message.annotations, "x-exchange": "amq.topic", "x-routing-key": "a.b"}


def test_proton_reads_a_message_of_0_9_1() -> None:
    block = encode_properties(
        {
            "content_type": "text/plain",
            "headers": {"a": 1, "x-death": [{"count": t.Long(2)}], "when": t.Timestamp(5), "l": [1]},
            "delivery_mode": 2,
            "priority": 3,
            "correlation_id": "c",
            "reply_to": "amq.gen-1",
            "expiration": "9000",
            "message_id": "m",
            "timestamp": 12,
            "type": "kind",
            "user_id": "guest",
            "app_id": "app",
        }
    )
    message = ProtonMessage()
    message.decode(amqp10_from_stored(KEY, block, b"body"))
    assert message.body == b"body"
    assert (message.durable, message.priority, message.ttl) == (True, 3, 9.0)
    assert (message.id, message.correlation_id, message.reply_to) == ("m", "c", "/queues/amq.gen-1")
    assert (message.user_id, message.group_id, message.creation_time) == (b"guest", "app", 12.0)
    # A list has no place among application properties.
    assert message.properties == {"a": 1, "when": 5000}
    assert message.annotations["x-death"] == [{"count": 2}]
    assert message.annotations["x-basic-type"] == "kind"


def test_an_mqtt_subscriber_gets_its_application_properties() -> None:
    message = ProtonMessage(body=b"x", properties={"colour": "red"}, reply_to="/exchanges/amq.topic/r.s")
    stored = stored_from_amqp10(bytes(message.encode()))
    topic, block = mqtt5_from_amqp091(KEY, stored.block)
    assert topic == b"a/b"
    assert b"\x00\x06colour\x00\x03red" in block
    assert b"\x08\x00\x03r/s" in block
    assert SECTIONS_HEADER.encode() not in block


@pytest.mark.parametrize(
    "body",
    [
        encode_section(s.VALUE, "text"),
        encode_section(s.VALUE, None),
        encode_section(s.SEQUENCE, [1]) + encode_section(s.SEQUENCE, [2]),
        encode_section(s.DATA, b"a") + encode_section(s.DATA, b"b"),
    ],
)
def test_a_body_that_is_not_one_data_section_comes_back_byte_for_byte(body: bytes) -> None:
    footer = encode_section(s.FOOTER, {v.Symbol("crc"): v.UInt(1)})
    stored = stored_from_amqp10(body + footer)
    assert decode_properties(stored.block)["type"] == "amqp-1.0"
    assert stored.body == body
    assert back(stored).endswith(body + footer)


def test_a_plain_message_carries_no_second_copy_of_its_sections() -> None:
    payload = encode_section(s.PROPERTIES, ["m"]) + encode_section(s.APPLICATION_PROPERTIES, {"n": v.Int(1)})
    stored = stored_from_amqp10(payload + encode_section(s.DATA, b"x"))
    assert decode_properties(stored.block)["headers"] == {"n": 1}


def test_annotations_of_the_broker_cannot_be_forged() -> None:
    payload = encode_section(s.ANNOTATIONS, {v.Symbol("x-death"): "forged", v.Symbol("x-exchange"): "forged"})
    stored = stored_from_amqp10(payload + encode_section(s.DATA, b"x"))
    headers = decode_properties(stored.block)["headers"]
    assert isinstance(headers, dict)
    assert set(headers) == {SECTIONS_HEADER}
    out = parse_message(back(stored))
    assert out.annotations["x-exchange"] == "amq.topic"


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\x41", "no section"),
        (b"\x00\x53\x10\x45", "no section"),
        (encode_section(s.DATA, "text"), "another value"),
        (encode_section(s.DATA, b"") + encode_section(s.VALUE, 1), "behind"),
        (encode_section(s.VALUE, 1) * 2, "behind"),
        (encode_section(s.PROPERTIES, []) + encode_section(s.HEADER, []), "behind"),
        (encode_section(s.FOOTER, {}) * 2, "behind"),
        (encode_section(s.HEADER, [1]), "durable"),
        (encode_section(s.HEADER, [None, 1]), "priority"),
        (encode_section(s.HEADER, [None, None, -1]), "ttl"),
        (encode_section(s.PROPERTIES, [None] * 14), "more than its fields"),
    ],
)
def test_bytes_that_are_no_message_are_a_decode_error(payload: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        stored_from_amqp10(payload)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_typed_error(payload: bytes) -> None:
    try:
        stored = stored_from_amqp10(payload)
    except Amqp10Error:
        return
    back(stored)


@settings(max_examples=300)
@given(st.binary(max_size=60), st.binary(max_size=200), st.binary(max_size=60))
def test_every_record_is_a_message(key: bytes, block: bytes, body: bytes) -> None:
    parse_message(amqp10_from_stored(key, block, body))


_SIMPLE: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=300),
    st.binary(max_size=20),
    st.integers(0, 2**64 - 1).map(v.ULong),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1).map(v.Timestamp),
    st.uuids(),
    st.floats(allow_nan=False),
)


@given(
    st.dictionaries(st.text(st.characters(max_codepoint=127), max_size=9).map(v.Symbol), _SIMPLE, max_size=4),
    st.lists(_SIMPLE, max_size=13),
    st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=300), _SIMPLE, max_size=4),
    st.binary(max_size=40),
)
def test_sections_come_back_as_they_were_sent(
    annotations: dict[Any, Any], properties: list[Any], application: dict[Any, Any], body: bytes
) -> None:
    sent = (
        encode_section(s.ANNOTATIONS, annotations)
        + encode_section(s.PROPERTIES, properties)
        + encode_section(s.APPLICATION_PROPERTIES, application)
        + encode_section(s.DATA, body)
    )
    stored = stored_from_amqp10(sent)
    came = parse_message(back(stored))
    expected = parse_message(sent)
    for code in (s.PROPERTIES, s.APPLICATION_PROPERTIES):
        assert came.raw.get(code, b"") == expected.raw[code]
    assert came.data == body
    added = {"x-exchange", "x-routing-key"}
    assert {k: x for k, x in came.annotations.items() if k not in added} == {
        k: x for k, x in annotations.items() if k not in added
    }


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("/queues/q", Place("", "q")),
        ("/queues/a%2Fb%25", Place("", "a/b%")),
        ("/queues/%C3%A9", Place("", "\u00e9")),
        ("/exchanges/e/k", Place("e", "k")),
        ("/exchanges/e/", Place("e", "")),
        ("/exchanges/e", Place("e", "")),
        ("/exchanges/e%2F/k%2Fl", Place("e/", "k/l")),
        ("q", Place("", "q")),
        ("a%2Fb", Place("", "a%2Fb")),
        ("queue://a/b", Place("", "a/b")),
        ("topic://a.b", Place("amq.topic", "a.b")),
    ],
)
def test_an_address_names_a_place(address: str, place: Place) -> None:
    assert parse_address(address) == place


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("", "empty queue name"),
        ("/queues/", "empty queue name"),
        ("/queues", "names nothing"),
        ("/queues/a/b", "names nothing"),
        ("/exchanges//k", "empty exchange name"),
        ("/exchanges/e/k/l", "names nothing"),
        ("/exchange/e/k", "names nothing"),
        ("/queues/%", "begins no escape"),
        ("/queues/%zz", "begins no escape"),
        ("/queues/%ff", "no UTF-8"),
        ("topic://", "empty topic name"),
        ("/queues/" + "q" * 256, "more than 255 bytes"),
    ],
)
def test_an_address_that_names_nothing_is_refused(address: str, said: str) -> None:
    with pytest.raises(AddressError, match=said) as refused:
        parse_address(address)
    assert refused.value.condition == "amqp:invalid-field"


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=60))
def test_any_name_has_an_address(name: str) -> None:
    assert parse_address(queue_address(name)) == Place("", name)
    assert parse_address(exchange_address(name, name)) == Place(name, name)
