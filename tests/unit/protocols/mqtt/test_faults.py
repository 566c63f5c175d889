"""Forbidden input of a client, and its reason code: table 1.5 of the front end's behaviour."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.protocols.mqtt.codec.properties import PROPERTIES
from penstock.protocols.mqtt.options import MqttOptions
from tests.reference import mqtt_frames as f
from tests.support.logs import BROKEN, FailingFiles
from tests.support.mqtt import Gateway

USER = b"\x26" + f.text("k") + f.text("v")

CASES = {
    # Fixed header and sizes
    "a length of five bytes": (b"\x30\xff\xff\xff\xff\x01", 0x81),
    "a length that is not minimal": (b"\xc0\x80\x00", 0x81),
    "a packet above the maximum, by what it announces": (b"\x30\xff\xff\xff\x7f", 0x95),
    # PUBLISH
    "qos 3": (f.packet(3, 6, f.text("t") + b"\0\1\0"), 0x81),
    "dup with qos 0": (f.packet(3, 8, f.text("t") + b"\0"), 0x81),
    "no topic": (f.packet(3, 0, b""), 0x81),
    "half a topic": (f.packet(3, 0, b"\0\5abc"), 0x81),
    "no packet id": (f.packet(3, 2, f.text("t")), 0x81),
    "packet id 0": (f.packet(3, 2, f.text("t") + b"\0\0\0"), 0x82),
    "no property length": (f.packet(3, 0, f.text("t")), 0x81),
    "properties longer than the packet": (f.packet(3, 0, f.text("t") + b"\5"), 0x81),
    "an empty topic without alias": (f.publish("", props=b""), 0x82),
    "a plus in the topic": (f.publish("a/+", props=b""), 0x81),
    "a hash in the topic": (f.publish("0123456789#", props=b""), 0x81),
    "NUL in the topic": (f.publish("a\0b", props=b""), 0x81),
    "a control character in the topic": (f.publish("0123456\x07", props=b""), 0x81),
    "a C1 control character in the topic": (f.publish("a\x85b", props=b""), 0x81),
    "a cut UTF-8 topic": (f.publish(b"abc\xe2\x82", props=b""), 0x81),
    "an overlong topic": (f.publish(b"\xc0\x80", props=b""), 0x81),
    "a surrogate in the topic": (f.publish(b"\xed\xa0\x80", props=b""), 0x81),
    "too many levels": (f.publish("/" * 128, props=b""), 0x90),
    "an unknown property": (f.publish("t", props=b"\x7e\0"), 0x81),
    "a property of two bytes' identifier": (f.publish("t", props=b"\x81\x00\0"), 0x81),
    "a property of CONNECT": (f.publish("t", props=b"\x11\0\0\0\1"), 0x81),
    "a subscription identifier": (f.publish("t", props=b"\x0b\x01"), 0x82),
    "a property twice": (f.publish("t", props=b"\x01\0\x01\0"), 0x82),
    "payload format 2": (f.publish("t", props=b"\x01\x02"), 0x82),
    "alias 0": (f.publish("t", props=b"\x23\0\0"), 0x94),
    "an alias that is cut": (f.publish("t", props=b"\x23\0"), 0x81),
    "an empty response topic": (f.publish("t", props=b"\x08\0\0"), 0x82),
    "a response topic with a wildcard": (f.publish("t", props=b"\x08" + f.text("a/#")), 0x81),
    "a user property that is cut": (f.publish("t", props=USER[:-1]), 0x81),
    "NUL in a user property": (f.publish("t", props=b"\x26" + f.text("k") + f.text("\0")), 0x81),
    "a content type that is no UTF-8": (f.publish("t", props=b"\x03" + f.text(b"\xff")), 0x81),
    # Acknowledgements
    "flags on PUBACK": (f.packet(4, 1, b"\0\1"), 0x81),
    "no flags on PUBREL": (f.packet(6, 0, b"\0\1"), 0x81),
    "PUBACK of one byte": (f.packet(4, 0, b"\1"), 0x81),
    "PUBACK of id 0": (f.ack(4, 0), 0x82),
    "PUBACK with another packet's reason": (f.ack(4, 1, 0x92), 0x82),
    "PUBCOMP with PUBREC's reason": (f.ack(7, 1, 0x80), 0x82),
    "PUBACK with a property of PUBLISH": (f.ack(4, 1, 0, b"\x01\x01"), 0x81),
    "PUBACK with properties that are cut": (f.packet(4, 0, b"\0\1\0\5"), 0x81),
    "PUBACK with something behind": (f.packet(4, 0, b"\0\1\0\0\0"), 0x81),
    # SUBSCRIBE and the rest
    "SUBSCRIBE without flags": (f.packet(8, 0, b"\0\1\0" + f.text("t") + b"\0"), 0x81),
    "SUBSCRIBE of id 0": (f.subscribe(0, ("t", 0), version=5), 0x82),
    "SUBSCRIBE without a filter": (f.packet(8, 2, b"\0\1\0"), 0x81),
    "SUBSCRIBE without options": (f.packet(8, 2, b"\0\1\0" + f.text("t")), 0x81),
    "subscription QoS 3": (f.subscribe(1, ("t", 3), version=5), 0x81),
    "reserved options": (f.subscribe(1, ("t", 0x40), version=5), 0x81),
    "retain handling 3": (f.subscribe(1, ("t", 0x30), version=5), 0x81),
    "an empty filter": (f.subscribe(1, ("", 0), version=5), 0x81),
    "a hash inside": (f.subscribe(1, ("a/#/b", 0), version=5), 0x81),
    "a hash in a word": (f.subscribe(1, ("a#", 0), version=5), 0x81),
    "a plus in a word": (f.subscribe(1, ("a/b+/c", 0), version=5), 0x81),
    "subscription identifier 0": (f.subscribe(1, ("t", 0), version=5, props=b"\x0b\0"), 0x82),
    "two subscription identifiers": (f.subscribe(1, ("t", 0), version=5, props=b"\x0b\1\x0b\2"), 0x82),
    "no-local on a shared one": (f.subscribe(1, ("$share/g/t", 4), version=5), 0x82),
    "UNSUBSCRIBE without a filter": (f.packet(10, 2, b"\0\1\0"), 0x81),
    "UNSUBSCRIBE without flags": (f.packet(10, 0, b"\0\1\0" + f.text("t")), 0x81),
    "PINGREQ with a body": (f.packet(12, 0, b"x"), 0x81),
    "DISCONNECT with flags": (f.packet(14, 1, b""), 0x81),
    "DISCONNECT with a reason of servers": (f.disconnect(0x8E), 0x82),
    "an expiry in DISCONNECT after none": (f.disconnect(0, b"\x11\0\0\0\5"), 0x82),
}


REQUIRED_FLAGS = {6: 2, 8: 2, 10: 2}


@pytest.mark.parametrize("kind", [k for k in range(1, 16) if k != 3])
def test_wrong_flags_are_malformed_on_every_packet(gateway: Gateway, kind: int) -> None:
    """Before anything else of the packet is judged (mqtt5:2.1.3); flags of PUBLISH have a meaning each."""
    for flags in set(range(16)) - {REQUIRED_FLAGS.get(kind, 0)}:
        peer = gateway.connect(f"a{flags}", 5).send(f.packet(kind, flags, b"\0\1"))
        assert (peer.bytes_taken(), peer.closed) == (b"\xe0\x01\x81", True), flags


PROPERTIES_OF = {
    "SUBSCRIBE": (lambda block: f.subscribe(1, ("t", 0), version=5, props=block), {0x0B, 0x26}),
    "UNSUBSCRIBE": (
        lambda block: f.packet(10, 2, b"\0\1" + f.varint(len(block)) + block + f.text("t")),
        {0x26},
    ),
    "DISCONNECT": (lambda block: f.disconnect(0, block), {0x11, 0x1F, 0x26}),
    "PUBLISH": (lambda block: f.publish("t", props=block), {1, 2, 3, 8, 9, 0x0B, 0x23, 0x26}),
    "PUBACK": (lambda block: f.ack(f.PUBACK, 1, 0, block), {0x1F, 0x26}),
    "PUBREC": (lambda block: f.ack(f.PUBREC, 1, 0, block), {0x1F, 0x26}),
    "PUBREL": (lambda block: f.ack(f.PUBREL, 1, 0, block), {0x1F, 0x26}),
    "PUBCOMP": (lambda block: f.ack(f.PUBCOMP, 1, 0, block), {0x1F, 0x26}),
}


@pytest.mark.parametrize("name", PROPERTIES_OF)
def test_a_property_of_another_packet_is_malformed(gateway: Gateway, name: str) -> None:
    """Each of the 27 in each packet of a client that may not carry it (mqtt5:2.2.2.2)."""
    build, allowed = PROPERTIES_OF[name]
    for identifier in sorted(set(PROPERTIES) - allowed):
        peer = gateway.connect(f"a{identifier}", 5).send(build(bytes((identifier,)) + bytes(8)))
        assert peer.bytes_taken() == b"\xe0\x01\x81", PROPERTIES[identifier].name


def test_3_1_does_not_look_at_flags_without_a_meaning(gateway: Gateway) -> None:
    """DUP is set in PUBREL, SUBSCRIBE and UNSUBSCRIBE that are sent again, and bit 0 of CONNECT is free."""
    connect = bytearray(f.connect("old", version=3))
    connect[connect.index(b"MQIsdp") + 7] |= 1
    peer = gateway.peer(3).send(bytes(connect))
    assert [p.kind for p in peer.take()] == [f.CONNACK]
    peer.send(f.packet(8, 0xA, b"\0\1" + f.text("t") + b"\2"))
    peer.send(f.packet(10, 0xA, b"\0\2" + f.text("t")))
    peer.publish("t", b"m", qos=2, packet_id=3)
    peer.send(f.packet(6, 0xA, b"\0\3")).send(f.packet(12, 1, b"")).send(f.packet(6, 0xA, b"\0\3"))
    assert [p.kind for p in peer.take()] == [9, 11, f.PUBREC, f.PUBCOMP, 13, f.PUBCOMP]
    assert not peer.closed


@pytest.mark.parametrize("name", CASES)
def test_5_0_is_told_with_disconnect(gateway: Gateway, name: str) -> None:
    data, reason = CASES[name]
    peer = gateway.connect("a", 5).send(data)
    assert peer.closed
    assert peer.bytes_taken() == bytes((0xE0, 1, reason))


@pytest.mark.parametrize("name", [n for n in CASES if "propert" not in n and "alias" not in n])
def test_the_same_in_3_1_1_closes_without_a_byte(gateway: Gateway, name: str) -> None:
    data, _ = CASES[name]
    if name in ("reserved options", "an expiry in DISCONNECT after none") or data[0] >> 4 in (3, 8, 10):
        return
    peer = gateway.connect("a", 4).send(data)
    assert peer.closed
    assert peer.take() == []


@pytest.mark.parametrize(
    "data",
    [
        f.packet(3, 6, f.text("t") + b"\0\1"),
        f.publish("a/+"),
        f.publish(""),
        f.publish("t", qos=1),
        f.packet(3, 2, f.text("t") + b"\1"),
        f.subscribe(1, ("t", 3)),
        f.subscribe(1, ("t", 4)),
        f.subscribe(1, ("a/#/b", 0)),
        f.packet(8, 2, b"\0\1"),
        f.packet(4, 0, b"\0\1\0"),
        f.disconnect(0),
        f.packet(15, 0, b""),
    ],
)
def test_faults_of_3_1_1_close_without_a_byte(gateway: Gateway, data: bytes) -> None:
    peer = gateway.connect("a", 4).send(data)
    assert peer.closed
    assert peer.take() == []


@pytest.mark.parametrize(
    ("qos", "wrong"),
    [(1, f.PUBREC), (1, f.PUBCOMP), (2, f.PUBACK), (2, f.PUBCOMP)],
)
def test_an_acknowledgement_of_another_flow_is_a_protocol_error(
    gateway: Gateway, qos: int, wrong: int
) -> None:
    sub = gateway.connect("s", 5)
    sub.subscribe(("t", qos))
    gateway.connect("p").publish("t", qos=qos, packet_id=1)
    (got,) = sub.publishes()
    assert sub.send(f.ack(wrong, got.packet_id)).bytes_taken() == b"\xe0\x01\x82"


def test_packets_before_a_fault_are_processed(gateway: Gateway) -> None:
    sub = gateway.connect("s")
    sub.subscribe(("t", 0))
    gateway.connect("p").send(
        f.publish("t", b"1") + f.publish("t", b"2") + b"\x36\x00" + f.publish("t", b"3")
    )
    assert [m.payload for m in sub.publishes()] == [b"1", b"2"]


def test_a_packet_of_exactly_the_maximum_is_taken(gateway: Gateway) -> None:
    gateway.options = MqttOptions(max_packet_bytes=200)
    sub = gateway.connect("s", 5)
    sub.subscribe(("t", 0))
    pub = gateway.connect("p", 5)
    packet = f.publish("t", bytes(200 - 3 - 3 - 1), props=b"")
    assert len(packet) == 200
    pub.send(packet[:3])
    assert pub.session.want == 200
    pub.send(packet[3:])
    assert len(sub.publishes()) == 1
    assert pub.send(f.publish("t", bytes(194), props=b"")).bytes_taken() == b"\xe0\x01\x95"
    assert pub.ended is not None
    assert "201 bytes, above the maximum packet size of 200 (mqtt.max_packet_bytes)" in pub.ended


@pytest.mark.parametrize(("version", "goodbye"), [(4, b""), (5, b"\xe0\x01\x80")])
def test_when_the_log_fails_nothing_is_acknowledged_and_the_connection_ends__mqtt311_4_8_0_2(
    tmp_path: Path, version: int, goodbye: bytes
) -> None:
    files = FailingFiles()
    gateway = Gateway(tmp_path / "data", files=files)
    peer = gateway.connect("p", version)
    files.write_error, files.write_most = BROKEN, 0
    peer.publish("t", qos=1, packet_id=1)
    assert peer.closed
    assert peer.bytes_taken() == goodbye
    gateway.log.close_sync()
