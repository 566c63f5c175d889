"""MQTT 5.0, sections 3.12 to 3.15: PINGREQ, DISCONNECT and AUTH."""

from __future__ import annotations

import pytest

from tests.reference import mqtt_frames as f
from tests.support.brokers import Broker
from tests.support.mqtt_wire import Gate, props, wrong_login

MALFORMED = b"\xe0\x01\x81"
PROTOCOL_ERROR = b"\xe0\x01\x82"

DISCONNECT_REASONS = {
    0x00,
    0x80,
    0x81,
    0x82,
    0x83,
    0x87,
    0x89,
    0x8B,
    0x8D,
    0x8E,
    0x8F,
    0x90,
    0x93,
    0x94,
    0x95,
}
DISCONNECT_REASONS |= {0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2}

FAULTS = {
    "malformed": (f.publish("a/#", props=b""), 0x81),
    "protocol error": (f.publish("t", props=props(subscription_id=1)), 0x82),
    "receive maximum": (
        b"".join(f.publish("t", qos=2, packet_id=i + 1, props=b"") for i in range(32_769)),
        0x93,
    ),
    "alias": (f.publish("t", props=props(topic_alias=0)), 0x94),
    "too large": (b"\x30\xff\xff\xff\x7f", 0x95),
    "levels": (f.publish("/" * 200, props=b""), 0x90),
}


def test_mqtt5_3_12_4_1__a_ping_is_answered(gate: Gate) -> None:
    wire = gate.connect().send(b"\xc0\0" * 3)
    assert [wire.bytes() for _ in range(3)] == [b"\xd0\0"] * 3


def test_mqtt5_3_14_0_1__no_disconnect_before_connack(gate: Gate) -> None:
    """The gateway reports an earlier fault in CONNACK or not at all."""
    for packet in (
        b"\xe0\0",
        b"\xc0\0",
        f.publish("a/#", props=b""),
        f.connect("a\0", version=5),
        f.connect("c", version=5, **wrong_login()),
        f.connect("c", version=5, props=props(receive_maximum=0)),
        b"\x10\xff\xff\xff\x7f",
    ):
        assert not gate.refused(packet).startswith(b"\xe0")


def test_mqtt5_3_14_1_1__flags_on_disconnect_are_malformed(gate: Gate, unique: str) -> None:
    """It does not count as one: the will is published."""
    sub = gate.subscriber(unique)
    for flags in range(1, 16):
        answer = gate.fails(f.packet(14, flags, b""), will=(unique, bytes((flags,)), 0, False))
        assert answer == MALFORMED
        assert sub.message().payload == bytes((flags,))


@pytest.mark.parametrize("name", FAULTS)
def test_mqtt5_3_14_2_1__disconnect_has_one_of_its_reasons(gate: Gate, name: str) -> None:
    packets, reason = FAULTS[name]
    wire = gate.connect().send(packets)
    while (packet := wire.next()).kind != 14:
        pass
    assert wire.parse(packet).code == reason
    assert reason in DISCONNECT_REASONS


def test_mqtt5_3_14_2_1__a_client_may_give_its_own_reasons_only(gate: Gate) -> None:
    """Without one, one of a client's: closed and nothing said. Another one: a protocol error."""
    mine = {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99}
    for reason in range(256):
        answer = gate.fails(f.disconnect(reason))
        assert answer == (b"" if reason in mine else PROTOCOL_ERROR), hex(reason)
    assert gate.fails(f.disconnect()) == b""


def test_mqtt5_3_14_2_2__the_servers_disconnect_has_no_session_expiry(gate: Gate, unique: str) -> None:
    first = gate.lasting(unique)
    gate.lasting(unique)
    assert "session_expiry" not in first.answer(14).props
    wire = gate.lasting(unique).send(f.publish("#", props=b""))
    assert "session_expiry" not in wire.answer(14).props
    # And a client may give one, but not after none in CONNECT.
    later = props(session_expiry=60)
    assert gate.fails(f.disconnect(0, later)) == PROTOCOL_ERROR
    gate.lasting(unique + "2", 1000).disconnect(0, props(session_expiry=0))
    assert gate.lasting(unique + "2").connack.session_present == 0


@pytest.mark.parametrize("size", [19, 24, 60])
def test_mqtt5_3_14_2_3__a_reason_string_does_not_make_disconnect_too_large(gate: Gate, size: int) -> None:
    for packets, _ in FAULTS.values():
        wire = gate.connect(props=props(maximum_packet_size=size)).send(packets)
        while (packet := wire.next()).kind != 14:
            pass
        assert 2 + len(packet.body) <= size


def test_mqtt5_3_14_2_4__user_properties_do_not_make_disconnect_too_large(gate: Gate) -> None:
    """There are none at all."""
    for packet, _ in FAULTS.values():
        if len(packet) < 1000:
            assert "user" not in gate.connect().send(packet).answer(14).props


def test_mqtt5_3_14_4_1__nothing_follows_a_disconnect(gate: Gate, unique: str) -> None:
    """Ours is the last packet, though messages are coming; nothing behind the client's own is looked at."""
    sub = gate.subscriber(unique)
    flood = gate.subscriber((unique, 0))
    pub = gate.connect()
    pub.send(*[pub.frame(unique, b"x") for _ in range(500)])
    flood.send(f.publish("#", props=b""))
    pub.send(*[pub.frame(unique, b"x") for _ in range(500)])
    assert flood.until_closed().endswith(b"\xe0\1\x81")
    sub.messages(1000)
    wire = gate.connect()
    assert wire.send(f.disconnect(), wire.frame(unique, b"late"), b"\xc0\0").until_closed() == b""
    pub.publish(unique, b"end")
    assert sub.message().payload == b"end"


def test_mqtt5_3_14_4_2__the_server_closes_after_its_disconnect(gate: Gate, unique: str) -> None:
    first = gate.lasting(unique)
    gate.lasting(unique)
    assert first.until_closed() == b"\xe0\1\x8e"
    assert gate.fails(f.publish("#", props=b"")) == MALFORMED


def test_mqtt5_3_14_4_2__also_when_the_gateway_stops(own_broker: Broker) -> None:
    gate = Gate(own_broker.mqtt_port, 5)
    wire = gate.connect()
    own_broker.terminate()
    assert wire.until_closed() == b"\xe0\1\x8b"
    gate.close()


@pytest.mark.parametrize("reason", [None, 0])
def test_mqtt5_3_14_4_3__disconnect_with_reason_0_discards_the_will(
    gate: Gate, unique: str, reason: int | None
) -> None:
    sub = gate.subscriber(unique)
    gate.connect(will=(unique, b"will", 0, False)).disconnect(reason)
    gate.lasting(unique, will=(unique, b"will", 0, False), will_props=props(will_delay=1)).disconnect(reason)
    gate.connect().publish(unique, b"end")
    assert sub.message().payload == b"end"


def test_mqtt5_3_15_1_1__flags_on_auth_end_the_connection(gate: Gate) -> None:
    for flags in range(1, 16):
        assert gate.fails(f.packet(15, flags, b"")) == MALFORMED


def test_mqtt5_3_15_2_1__auth_has_one_of_its_reasons(gate: Gate) -> None:
    for reason in (0x01, 0x04, 0x10, 0x1A, 0x80, 0x87, 0xFF):
        assert gate.fails(f.packet(15, 0, bytes((reason, 0)))) == PROTOCOL_ERROR
