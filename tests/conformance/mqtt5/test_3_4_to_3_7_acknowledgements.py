"""MQTT 5.0, sections 3.4 to 3.7: PUBACK, PUBREC, PUBREL and PUBCOMP."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt_wire import Gate, Wire, props

PROTOCOL_ERROR = b"\xe0\x01\x82"

RECEIPT = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
"""Reason codes of PUBACK and PUBREC."""
COMPLETION = {0x00, 0x92}
"""Reason codes of PUBREL and PUBCOMP."""

ROOMS = (19, 24, 60, 1000)
"""Maximum packet sizes of clients: the first has hardly room for CONNACK."""


def with_delivery(gate: Gate, unique: str, qos: int, block: bytes = b"") -> tuple[Wire, int]:
    """A client with one message under way to it, and its packet id."""
    sub = gate.connect(props=block)
    sub.subscribe((unique, qos))
    gate.connect().published(unique, b"", qos=qos)
    return sub, sub.message().packet_id


def outcomes(wire: Wire, unique: str, qos: int) -> list[int]:
    """The reasons that PUBACK or PUBREC give for publishes that go well, to nobody, and that are refused."""
    found = []
    for i, topic in enumerate((unique, f"{unique}/nobody", "$SYS/x", "$share/g/x")):
        wire.publish(topic, qos=qos, packet_id=i + 1)
        answer = wire.answer(4 if qos == 1 else 5)
        assert answer.packet_id == i + 1
        found.append(answer.code)
    return found


def accepted(gate: Gate, unique: str, qos: int, kind: int) -> set[int]:
    """The reasons that a client may give in PUBACK or PUBREC; the others are protocol errors."""
    found = set()
    for reason in range(256):
        sub, packet_id = with_delivery(gate, unique, qos)
        sub.send(f.ack(kind, packet_id, reason), b"\xc0\0")
        rest = [sub.next()]
        if rest[0].kind == f.PUBREL:
            rest = [sub.next()]
        if rest[0].kind == 13:
            found.add(reason)
        else:
            assert (rest[0].kind, rest[0].body) == (14, b"\x82")
        sub.close()
    return found


def test_mqtt5_3_4_2_1__puback_has_one_of_its_reasons(gate: Gate, unique: str) -> None:
    gate.subscriber(unique)
    assert outcomes(gate.connect(), unique, 1) == [0, 0x10, 0x87, 0x87]
    assert accepted(gate, unique + "/a", 1, f.PUBACK) == RECEIPT


def sizes(gate: Gate, size: int, qos: int) -> list[int]:
    """The sizes of the answers to publishes of a client that takes packets of `size` bytes."""
    wire = gate.connect(props=props(maximum_packet_size=size))
    found = []
    for topic in ("nobody/there", "$SYS/refused", "$share/refused"):
        found.append(len(wire.publish(topic, qos=qos, packet_id=1).bytes()))
        if qos == 2:
            wire.pubrel(1)
            found.append(len(wire.bytes()))
    return found


@pytest.mark.parametrize("size", ROOMS)
def test_mqtt5_3_4_2_2__a_reason_string_does_not_make_puback_too_large(gate: Gate, size: int) -> None:
    assert max(sizes(gate, size, 1)) <= size


def test_mqtt5_3_4_2_3__user_properties_do_not_make_puback_too_large(gate: Gate) -> None:
    """There are none at all."""
    wire = gate.connect()
    for topic in ("nobody/there", "$SYS/refused"):
        wire.publish(topic, qos=1, packet_id=1)
        assert "user" not in wire.answer(4).props


def test_mqtt5_3_5_2_1__pubrec_has_one_of_its_reasons(gate: Gate, unique: str) -> None:
    gate.subscriber(unique)
    assert outcomes(gate.connect(), unique, 2) == [0, 0x10, 0x87, 0x87]
    assert accepted(gate, unique + "/a", 2, f.PUBREC) == RECEIPT


@pytest.mark.parametrize("size", ROOMS)
def test_mqtt5_3_5_2_2__a_reason_string_does_not_make_pubrec_too_large(gate: Gate, size: int) -> None:
    assert max(sizes(gate, size, 2)) <= size


def test_mqtt5_3_5_2_3__user_properties_do_not_make_pubrec_too_large(gate: Gate) -> None:
    """There are none at all."""
    wire = gate.connect()
    for topic in ("nobody/there", "$SYS/refused"):
        wire.publish(topic, qos=2, packet_id=1)
        assert "user" not in wire.answer(5).props
        wire.pubrel(1)
        wire.next()


def test_mqtt5_3_6_1_1__pubrel_has_the_flags_0010(gate: Gate, unique: str) -> None:
    for flags in set(range(16)) - {2}:
        assert gate.fails(f.packet(6, flags, b"\0\1"))[:2] == b"\xe0\1"
    sub, packet_id = with_delivery(gate, unique, 2)
    assert sub.pubrec(packet_id).bytes() == b"\x62\2" + packet_id.to_bytes(2, "big")


def test_mqtt5_3_6_2_1__pubrel_has_one_of_its_reasons(gate: Gate, unique: str) -> None:
    sub, packet_id = with_delivery(gate, unique, 2)
    sub.pubrec(packet_id)
    assert sub.answer(6).code == 0
    sub.pubrec(packet_id + 1)
    assert sub.answer(6).code == 0x92
    for reason in range(256):
        wire = gate.connect()
        wire.send(f.ack(f.PUBREL, 1, reason))
        if reason in COMPLETION:
            assert wire.answer(7).packet_id == 1
        else:
            assert wire.until_closed() == PROTOCOL_ERROR
        wire.close()


@pytest.mark.parametrize("size", ROOMS)
def test_mqtt5_3_6_2_2__a_reason_string_does_not_make_pubrel_too_large(gate: Gate, size: int) -> None:
    wire = gate.connect(props=props(maximum_packet_size=size))
    assert len(wire.pubrec(9).bytes()) <= size


def test_mqtt5_3_6_2_3__user_properties_do_not_make_pubrel_too_large(gate: Gate) -> None:
    """There are none at all."""
    assert "user" not in gate.connect().pubrec(9).answer(6).props


def test_mqtt5_3_7_2_1__pubcomp_has_one_of_its_reasons(gate: Gate, unique: str) -> None:
    wire = gate.connect()
    wire.publish(unique, qos=2, packet_id=1)
    wire.answer(5)
    assert wire.pubrel(1).answer(7).code == 0
    assert wire.pubrel(1).answer(7).code == 0x92
    for reason in range(256):
        sub, packet_id = with_delivery(gate, unique, 2)
        sub.pubrec(packet_id)
        sub.answer(6)
        sub.send(f.ack(f.PUBCOMP, packet_id, reason))
        if reason in COMPLETION:
            assert sub.ping() == []
        else:
            assert sub.until_closed() == PROTOCOL_ERROR
        sub.close()


@pytest.mark.parametrize("size", ROOMS)
def test_mqtt5_3_7_2_2__a_reason_string_does_not_make_pubcomp_too_large(gate: Gate, size: int) -> None:
    wire = gate.connect(props=props(maximum_packet_size=size))
    assert len(wire.pubrel(9).bytes()) <= size


def test_mqtt5_3_7_2_3__user_properties_do_not_make_pubcomp_too_large(gate: Gate) -> None:
    """There are none at all."""
    assert "user" not in gate.connect().pubrel(9).answer(7).props
