"""MQTT 5.0, chapters 1 and 2: text, variable byte integers, flags, packet ids, properties."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import Gate, encode, props

MALFORMED = b"\xe0\x01\x81"
PROTOCOL_ERROR = b"\xe0\x01\x82"

ILL_FORMED = {
    "cut": b"abc\xe2\x82",
    "overlong": b"\xc0\x80",
    "surrogate": b"\xed\xa0\x80",
    "a lone continuation": b"a\x80",
    "beyond U+10FFFF": b"\xf4\x90\x80\x80",
}


@pytest.mark.parametrize("name", ILL_FORMED)
def test_mqtt5_1_5_4_1__ill_formed_text_is_malformed(gate: Gate, name: str) -> None:
    text = ILL_FORMED[name]
    assert gate.fails(f.publish(text, props=b"")) == MALFORMED
    assert gate.fails(f.publish("t", props=b"\x03" + f.text(text))) == MALFORMED
    filter_ = b"\0\1\0" + f.text(text)
    assert gate.fails(f.packet(8, 2, filter_ + b"\0")) == MALFORMED
    assert gate.fails(f.packet(10, 2, filter_)) == MALFORMED
    level = f.text("MQTT") + b"\5\2\0\0\0"
    assert gate.refused(f.packet(1, 0, level + f.text(text))) == b"\x20\3\0\x81\0"


def test_mqtt5_1_5_4_2__nul_in_text_is_malformed(gate: Gate) -> None:
    assert gate.fails(f.publish("a\0b", props=b"")) == MALFORMED
    assert gate.fails(f.publish("t", props=props(content_type=b"a\0"))) == MALFORMED
    assert gate.fails(f.subscribe(1, ("a\0", 0), version=5)) == MALFORMED
    assert gate.fails(f.unsubscribe(1, "a\0", version=5)) == MALFORMED
    assert gate.refused(f.connect("a\0b", version=5)) == b"\x20\3\0\x81\0"


def test_mqtt5_1_5_4_3__a_byte_order_mark_is_part_of_the_text(gate: Gate, unique: str) -> None:
    """In the topic, and a topic with one is another topic; in a property too."""
    marked = f"\ufeff{unique}"
    sub = gate.subscriber(marked, f"{unique}/end")
    gate.connect().publish(unique, b"without").publish(
        marked, b"with", block=props(content_type="\ufefftext", user=("\ufeffk", "v\ufeff"))
    )
    got = sub.message()
    assert (got.topic, got.payload) == (marked, b"with")
    assert got.props == {"content_type": ["\ufefftext".encode()], "user": [("\ufeffk", "v\ufeff")]}


def test_mqtt5_1_5_5_1__a_variable_byte_integer_that_is_longer_than_it_need_be_is_malformed(
    gate: Gate, unique: str
) -> None:
    assert gate.fails(b"\xc0\x80\x00") == MALFORMED
    assert gate.fails(f.packet(3, 0, f.text("t") + b"\x80\x00")) == MALFORMED
    assert gate.fails(f.packet(8, 2, b"\0\1\x83\x00\x0b\x81\x00" + f.text("t") + b"\0")) == MALFORMED
    # The gateway sends minimal lengths too: a block of 127 and one of 128 bytes.
    sub = gate.subscriber(unique)
    pub = gate.connect()
    for size in (122, 123):
        block = props(correlation_data=bytes(size))
        pub.publish(unique, b"", block=block)
        assert encode(sub.next()) == f.publish(unique, b"", props=block)


def test_mqtt5_1_5_7_1__both_halves_of_a_pair_are_text(gate: Gate) -> None:
    for pair in ((b"\xff", b"v"), (b"k", b"\xff"), (b"\0", b"v"), (b"k", b"\0")):
        block = b"\x26" + f.text(pair[0]) + f.text(pair[1])
        assert gate.fails(f.publish("t", props=block)) == MALFORMED
        assert gate.fails(f.subscribe(1, ("t", 0), version=5, props=block)) == MALFORMED


@pytest.mark.parametrize(
    ("packet", "answer"),
    [
        (b"\xc1\0", MALFORMED),
        (b"\xe1\0", MALFORMED),
        (f.packet(8, 0, b"\0\1\0\0\1t\0"), MALFORMED),
        (f.packet(8, 3, b"\0\1\0\0\1t\0"), MALFORMED),
        (f.packet(10, 0, b"\0\1\0\0\1t"), MALFORMED),
        (f.packet(4, 1, b"\0\1"), MALFORMED),
        (f.packet(5, 1, b"\0\1"), MALFORMED),
        (f.packet(6, 0, b"\0\1"), MALFORMED),
        (f.packet(7, 2, b"\0\1"), MALFORMED),
        (f.packet(0, 0, b""), PROTOCOL_ERROR),
    ],
    ids=["PINGREQ", "DISCONNECT", "SUBSCRIBE", "SUBSCRIBE-3", "UNSUBSCRIBE"]
    + ["PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "type-0"],
)
def test_mqtt5_2_1_3_1__reserved_flags_that_are_set_end_the_connection(
    gate: Gate, packet: bytes, answer: bytes
) -> None:
    assert gate.fails(packet) == answer


def test_mqtt5_2_2_1_2__qos_0_has_no_packet_id(gate: Gate, unique: str) -> None:
    """The property length stands in place of a packet id, in both directions."""
    sub = gate.subscriber(unique)
    gate.connect().send(f.packet(3, 0, f.text(unique) + b"\0" + b"\0\1payload"))
    assert encode(sub.next()) == f.packet(3, 0, f.text(unique) + b"\0" + b"\0\1payload")


@pytest.mark.parametrize(
    "packet",
    [
        f.publish("t", qos=1, packet_id=0, props=b""),
        f.publish("t", qos=2, packet_id=0, props=b""),
        f.subscribe(0, ("t", 0), version=5),
        f.unsubscribe(0, "t", version=5),
        f.ack(f.PUBREL, 0),
    ],
    ids=["PUBLISH-1", "PUBLISH-2", "SUBSCRIBE", "UNSUBSCRIBE", "PUBREL"],
)
def test_mqtt5_2_2_1_3__packet_id_0_is_a_protocol_error(gate: Gate, packet: bytes) -> None:
    assert gate.fails(packet) == PROTOCOL_ERROR


def test_mqtt5_2_2_1_4__packet_ids_of_the_server_are_unused_and_not_0(gate: Gate, unique: str) -> None:
    """Ids that are in use are passed over, in all of the id space."""
    sub = gate.subscriber((unique, 1))
    pub = gate.connect()
    seen: set[int] = set()
    kept = 0
    for round_ in range(70):
        pub.send(*[pub.frame(unique, b"x", qos=1, packet_id=i) for i in range(1, 1001)])
        got = [m.packet_id for m in sub.messages(1000)]
        assert 0 not in got and len(set(got)) == 1000
        if round_ == 0:
            kept = got[0]  # never acknowledged
            got = got[1:]
        else:
            assert kept not in got
        seen.update(got)
        sub.send(*[f.ack(f.PUBACK, packet_id) for packet_id in got])
        for _ in range(1000):
            pub.answer(4)
    assert seen == set(range(1, 65536)) - {kept}


def test_mqtt5_2_2_1_5__acknowledgements_carry_the_packet_id_of_the_publish(gate: Gate, unique: str) -> None:
    pub = gate.connect()
    gate.subscriber(unique)
    for packet_id in (1, 255, 256, 65535):
        pub.publish(unique, qos=1, packet_id=packet_id)
        assert pub.bytes() == f.ack(f.PUBACK, packet_id)
        pub.publish(unique, qos=2, packet_id=packet_id)
        assert pub.bytes() == f.ack(f.PUBREC, packet_id)
        pub.pubrel(packet_id)
        assert pub.bytes() == f.ack(f.PUBCOMP, packet_id)


def test_mqtt5_2_2_1_6__suback_and_unsuback_carry_the_packet_id_they_answer(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    for packet_id in (1, 256, 65535):
        number = packet_id.to_bytes(2, "big")
        wire.send(f.subscribe(packet_id, (unique, 1), version=5))
        assert wire.bytes() == b"\x90\4" + number + b"\0\1"
        wire.send(f.unsubscribe(packet_id, unique, version=5))
        assert wire.bytes() == b"\xb0\4" + number + b"\0\0"


def test_mqtt5_2_2_2_1__no_properties_are_a_length_of_0(gate: Gate, unique: str) -> None:
    """A packet that ends before its property length is malformed; what we send without properties says 0."""
    assert gate.fails(f.packet(3, 0, f.text("t"))) == MALFORMED
    assert gate.fails(f.packet(8, 2, b"\0\1")) == MALFORMED
    assert gate.refused(f.packet(1, 0, f.text("MQTT") + b"\5\2\0\0")) == b"\x20\3\0\x81\0"
    sub = gate.subscriber(unique)
    gate.connect().publish(unique, b"payload")
    assert encode(sub.next()) == f.packet(3, 0, f.text(unique) + b"\0payload")
