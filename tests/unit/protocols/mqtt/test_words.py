"""The texts that 5.0 clients get besides reason codes, and when they get none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer
from tests.support.mqtt_wire import read_props

WORDS_OFF = b"\x17\0"


def words_of(packet: f.Packet, skip: int) -> str | None:
    """The reason string of a packet whose properties begin after `skip` bytes."""
    if len(packet.body) <= skip:
        return None
    found = read_props(f.Reader(packet.body[skip:])).get("reason_string")
    return None if found is None else str(found[0].decode())


def talker(gateway: Gateway, props: bytes = b"", **options: Any) -> Peer:
    return gateway.connect("c", 5, props=props, problems=True, **options)


def only(peer: Peer, kind: int) -> f.Packet:
    (packet,) = peer.take()
    assert packet.kind == kind
    return packet


@pytest.mark.parametrize(("qos", "kind"), [(1, f.PUBACK), (2, f.PUBREC)])
def test_a_refused_publish_is_told_why__mqtt5_3_4_2_2_2(gateway: Gateway, qos: int, kind: int) -> None:
    peer = talker(gateway).publish("$SYS/x", qos=qos, packet_id=9)
    answer = only(peer, kind)
    assert answer.body[:3] == b"\0\x09\x87"
    assert str(words_of(answer, 3)).startswith("this user may not publish here; $SYS, ")


def test_a_success_has_no_reason_string(gateway: Gateway) -> None:
    """0x10, no matching subscribers, comes with every publish to nobody."""
    peer = talker(gateway).publish("nobody", qos=1, packet_id=9)
    assert only(peer, f.PUBACK).body == b"\0\x09\x10"


def test_an_unknown_packet_id_is_told(gateway: Gateway) -> None:
    peer = talker(gateway).send(f.ack(f.PUBREL, 7))
    answer = only(peer, f.PUBCOMP)
    assert answer.body[:3] == b"\0\x07\x92"
    assert words_of(answer, 3) == "nothing is under way with this packet id"


def test_suback_and_unsuback_name_the_filters(gateway: Gateway) -> None:
    deep = "/".join("a" * 200)
    peer = talker(gateway).send(f.subscribe(1, ("fine", 0), (deep, 0), version=5))
    words = words_of(only(peer, f.SUBACK), 2)
    assert words is not None
    assert words.startswith(f"{deep[:80]}: it has too many levels, or begins with $replay and is no ")
    peer.send(f.unsubscribe(2, "other", "fine", version=5))
    assert words_of(only(peer, f.UNSUBACK), 2) == "other: the session has no such filter"
    peer.send(f.subscribe(3, ("fine", 0), version=5))
    assert only(peer, f.SUBACK).body == b"\0\3\0\0"


def test_a_fault_is_told_in_disconnect__mqtt5_3_14_2_2_3(gateway: Gateway) -> None:
    peer = talker(gateway).send(f.connect("again", version=5))
    goodbye = only(peer, f.DISCONNECT)
    assert goodbye.body[0] == 0x82
    assert words_of(goodbye, 1) == "a second CONNECT"


def test_a_refused_connect_is_told_why__mqtt5_3_2_2_3_9(gateway: Gateway) -> None:
    peer = gateway.peer(5).send(f.connect("c", version=5, problems=True, will=("$SYS/x", b"", 0, False)))
    refused = only(peer, f.CONNACK)
    assert refused.body[1] == 0x87
    assert words_of(refused, 2) == "the will's topic is not allowed"


def test_a_refused_login_does_not_tell_which_part_was_wrong(gateway: Gateway) -> None:
    peer = gateway.peer(5)
    peer.identity = None
    peer.send(f.connect("c", version=5, problems=True, user="guest", password=b"no"))
    assert only(peer, f.CONNACK).body == b"\0\x86\0"


def test_no_words_for_a_client_that_wants_none__mqtt5_3_1_2_29(gateway: Gateway) -> None:
    peer = talker(gateway, WORDS_OFF).publish("$SYS/x", qos=1, packet_id=9)
    assert only(peer, f.PUBACK).body == b"\0\x09\x87"
    peer.send(f.subscribe(1, ("/".join("a" * 200), 0), version=5))
    assert only(peer, f.SUBACK).body == b"\0\1\0\x8f"
    peer.send(f.connect("again", version=5))
    assert only(peer, f.DISCONNECT).body == b"\x82"


def test_words_make_no_packet_larger_than_the_client_takes(gateway: Gateway) -> None:
    """mqtt5:3.4.2-2, 3.9.2-1, 3.14.2-3: they are left out instead."""
    peer = talker(gateway, b"\x27\0\0\0\x20").publish("$SYS/x", qos=1, packet_id=9)
    assert only(peer, f.PUBACK).body == b"\0\x09\x87"
    peer.send(f.subscribe(1, ("$SYS/#", 0), ("/".join("a" * 200), 0), version=5))
    suback = only(peer, f.SUBACK)
    assert suback.body[:3] == b"\0\1\0" and suback.body[-1] == 0x8F
    peer.send(f.packet(1, 0, f.connect("again", version=5)[2:]))
    assert only(peer, f.DISCONNECT).body[0] == 0x82


@pytest.mark.parametrize("kind", [f.PUBACK, f.PUBREC])
def test_properties_beside_the_reason_codes_of_a_client_are_accepted(gateway: Gateway, kind: int) -> None:
    """User properties, several and twice, and a reason string on what it acknowledges with."""
    block = b"".join(b"\x26" + f.text("k") + f.text(value) for value in "ab") + b"\x1f" + f.text("why")
    peer = gateway.connect("c", 5)
    peer.subscribe(("t", 2))
    peer.publish("t", qos=1 if kind == f.PUBACK else 2, packet_id=1)
    found = [packet for packet in peer.take() if packet.kind == f.PUBLISH]
    packet_id = f.parse_publish(found[0], 5).packet_id
    body = packet_id.to_bytes(2, "big") + b"\0" + f.varint(len(block)) + block
    peer.send(f.packet(kind, 0, body))
    if kind == f.PUBREC:
        assert only(peer, f.PUBREL).body == packet_id.to_bytes(2, "big")
        peer.send(f.packet(f.PUBCOMP, 0, body))
    assert peer.take() == [] and not peer.closed
    assert peer.session.client is not None
    assert peer.session.client.ids.inflight.held == 0
