"""MQTT 3.1.1, chapters 1 and 2: text, flags, packet ids. A fault closes the connection without a byte."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import Gate, encode


@pytest.mark.parametrize(
    "text",
    [b"abc\xe2\x82", b"\xc0\x80", b"\xed\xa0\x80", b"a\x80", b"\xf4\x90\x80\x80"],
    ids=["cut", "overlong", "surrogate", "continuation", "beyond"],
)
def test_mqtt311_1_5_3_1__ill_formed_text_closes(gate: Gate, text: bytes) -> None:
    assert gate.fails(f.publish(text)) == b""
    assert gate.fails(f.packet(8, 2, b"\0\1" + f.text(text) + b"\0")) == b""
    assert gate.fails(f.packet(10, 2, b"\0\1" + f.text(text))) == b""
    assert gate.refused(f.packet(1, 0, f.text("MQTT") + b"\4\2\0\0" + f.text(text))) == b""


def test_mqtt311_1_5_3_2__nul_in_text_closes(gate: Gate) -> None:
    assert gate.fails(f.publish("a\0b")) == b""
    assert gate.fails(f.subscribe(1, ("a\0", 0))) == b""
    assert gate.fails(f.unsubscribe(1, "a\0")) == b""
    assert gate.refused(f.connect("a\0b")) == b""


def test_mqtt311_1_5_3_3__a_byte_order_mark_is_part_of_the_text(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(f"\ufeff{unique}")
    gate.connect().publish(unique, b"without").publish(f"\ufeff{unique}", b"with")
    message = sub.message()
    assert (message.topic, message.payload) == (f"\ufeff{unique}", b"with")


RESERVED = {
    "CONNECT": b"\x11" + f.connect("c")[1:],
    "PUBACK": f.packet(4, 1, b"\0\1"),
    "PUBREC": f.packet(5, 1, b"\0\1"),
    "PUBREL": f.packet(6, 0, b"\0\1"),
    "PUBCOMP": f.packet(7, 1, b"\0\1"),
    "SUBSCRIBE": f.packet(8, 0, b"\0\1\0\1t\0"),
    "UNSUBSCRIBE": f.packet(10, 0, b"\0\1\0\1t"),
    "PINGREQ": f.packet(12, 1, b""),
    "DISCONNECT": f.packet(14, 1, b""),
}


@pytest.mark.parametrize("name", RESERVED)
def test_mqtt311_2_2_2_1__reserved_flags_have_their_value(gate: Gate, unique: str, name: str) -> None:
    """Another value is refused; what the gateway sends has it."""
    packet = RESERVED[name]
    assert (gate.refused if name == "CONNECT" else gate.fails)(packet) == b""
    sub = gate.subscriber(unique)
    sub.send(f.unsubscribe(2, f"{unique}/x"), b"\xc0\0")
    gate.connect().published(unique, qos=2)
    packets = [sub.next() for _ in range(3)]
    assert {p.kind: p.flags for p in packets} == {11: 0, 13: 0, 3: 4}
    assert sub.pubrec(1).next().flags == 2


def test_mqtt311_2_2_2_2__invalid_flags_close(gate: Gate, unique: str) -> None:
    """With all that goes with it: the will is published."""
    sub = gate.subscriber(unique)
    assert gate.fails(b"\x36\0", will=(unique, b"will", 0, False)) == b""
    assert sub.message().payload == b"will"
    assert gate.fails(f.packet(0, 0, b"")) == b""
    assert gate.fails(f.packet(15, 0, b"")) == b""


@pytest.mark.parametrize(
    "packet",
    [
        f.publish("t", qos=1, packet_id=0),
        f.publish("t", qos=2, packet_id=0),
        f.packet(3, 2, f.text("t")),
        f.packet(3, 2, f.text("t") + b"\1"),
        f.subscribe(0, ("t", 0)),
        f.unsubscribe(0, "t"),
    ],
    ids=["QoS-1", "QoS-2", "none", "half", "SUBSCRIBE", "UNSUBSCRIBE"],
)
def test_mqtt311_2_3_1_1__packet_id_0_or_none_closes(gate: Gate, packet: bytes) -> None:
    assert gate.fails(packet) == b""


def test_mqtt311_2_3_1_4__packet_ids_of_the_server_are_unused_and_stay_the_same(
    gate: Gate, unique: str
) -> None:
    sub = gate.lasting(unique)
    sub.subscribe((unique, 2))
    pub = gate.connect()
    for qos in (1, 2, 1, 2):
        pub.published(unique, bytes((qos,)), qos=qos)
    sent = sub.messages(4)
    ids = [message.packet_id for message in sent]
    assert len(set(ids)) == 4 and 0 not in ids
    sub.close()
    assert [m.packet_id for m in gate.lasting(unique).messages(4)] == ids


def test_mqtt311_2_3_1_5__qos_0_has_no_packet_id(gate: Gate, unique: str) -> None:
    sub = gate.subscriber(unique)
    gate.connect().send(f.packet(3, 0, f.text(unique) + b"\0\1payload"))
    assert encode(sub.next()) == f.packet(3, 0, f.text(unique) + b"\0\1payload")


def test_mqtt311_2_3_1_6__acknowledgements_carry_the_packet_id_of_the_publish(
    gate: Gate, unique: str
) -> None:
    pub = gate.connect()
    for packet_id in (1, 256, 65535):
        pub.publish(unique, qos=1, packet_id=packet_id)
        assert pub.bytes() == f.ack(f.PUBACK, packet_id)
        pub.publish(unique, qos=2, packet_id=packet_id)
        assert pub.bytes() == f.ack(f.PUBREC, packet_id)
        assert pub.pubrel(packet_id).bytes() == f.ack(f.PUBCOMP, packet_id)


def test_mqtt311_2_3_1_7__suback_and_unsuback_carry_the_packet_id_they_answer(
    gate: Gate, unique: str
) -> None:
    wire = gate.connect()
    for packet_id in (1, 256, 65535):
        number = packet_id.to_bytes(2, "big")
        assert wire.send(f.subscribe(packet_id, (unique, 1))).bytes() == b"\x90\3" + number + b"\1"
        assert wire.send(f.unsubscribe(packet_id, unique)).bytes() == b"\xb0\2" + number
