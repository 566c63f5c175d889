"""Retained messages: kept, removed, and delivered to new subscriptions in pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.protocols.mqtt.codec._shared_packets import forget_runs
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway


def test_a_new_subscription_gets_what_is_retained(gateway: Gateway) -> None:
    pub = gateway.connect("p", 5)
    pub.publish("a/b", b"1", retain=True)
    pub.publish("a/c", b"2", qos=1, packet_id=1, retain=True, props=b"\x01\x01")
    pub.publish("a/b", b"3", retain=True)
    pub.publish("a/d", b"4", retain=True)
    pub.publish("a/d", b"", retain=True)
    sub = gateway.connect("s", 5)
    sub.subscribe(("a/+", 2), props=b"\x0b\x09")
    (c, b) = sorted(sub.take(), key=lambda p: p.flags, reverse=True)
    assert b.flags == 1 and b.body == f.text("a/b") + b"\x02\x0b\x09" + b"3"
    assert c.flags == 3 and c.body == f.text("a/c") + b"\0\1" + b"\x04\x01\x01\x0b\x09" + b"2"


def test_retain_handling_says_when__mqtt5_3_3_1_10(gateway: Gateway) -> None:
    gateway.connect("p").publish("t", b"r", retain=True)
    sub = gateway.connect("s", 5)
    got = []
    for options in (0x20, 0x10, 0x00, 0x10, 0x20):
        sub.subscribe(("t", options))
        got.append(len(sub.publishes()))
        if options == 0x20 and len(got) == 1:
            sub.send(f.unsubscribe(1, "t", version=5)).take()
    assert got == [0, 1, 1, 0, 0]


def test_many_retained_messages_come_in_pages_and_none_is_dropped(gateway: Gateway) -> None:
    pub = gateway.connect("p")
    count = 3000
    pub.send(
        b"".join(
            f.publish(f"r/{i}", bytes(100), qos=1, packet_id=1 + i % 60000, retain=True) for i in range(count)
        )
    )
    sub = gateway.connect("s", 5, props=b"\x21\0\x10")
    sub.space = 5000
    sub.subscribe(("r/+", 1))
    topics: list[bytes] = []
    for _ in range(10_000):
        got = sub.publishes()
        assert len(got) <= 16
        topics += [m.topic for m in got]
        sub.send(b"".join(f.ack(f.PUBACK, m.packet_id) for m in got))
        sub.session.writable()
        if len(topics) == count:
            break
    assert sorted(topics) == sorted(f"r/{i}".encode() for i in range(count))
    quiet = gateway.connect("q")
    quiet.space = 5000
    quiet.subscribe(("r/+", 0))
    seen = 0
    for _ in range(1000):
        seen += len(quiet.publishes())
        quiet.session.writable()
    assert seen == count


def test_retained_messages_under_way_come_again_with_dup(gateway: Gateway) -> None:
    pub = gateway.connect("p")
    for i in range(3):
        pub.publish(f"r/{i}", bytes((i,)), qos=2, packet_id=1 + i, retain=True)
    options = {"clean": False, "props": b"\x11\0\0\1\0"}
    sub = gateway.connect("s", 5, **options)
    sub.subscribe(("r/0", 1), ("r/1", 2), ("r/2", 2))
    first = {m.packet_id: m for m in sub.publishes()}
    assert {m.qos for m in first.values()} == {1, 2} and len(first) == 3
    two = next(i for i, m in first.items() if m.topic == b"r/2")
    assert sub.send(f.ack(f.PUBREC, two)).bytes_taken() == f.ack(f.PUBREL, two)
    sub.drop()
    sub = gateway.connect("s", 5, **options)
    packets = sub.take()
    assert packets[0].kind == f.PUBREL
    again = {m.packet_id: m for m in (f.parse_publish(p, 5) for p in packets[1:])}
    assert again.keys() == first.keys() - {two}
    assert all(m.dup and m.retain and m.payload == first[i].payload for i, m in again.items())


def test_an_expired_retained_message_is_gone(gateway: Gateway) -> None:
    pub = gateway.connect("p", 5)
    pub.publish("a", b"x", retain=True, props=b"\x02\0\0\0\x0a")
    gateway.advance(4)
    sub = gateway.connect("s", 5)
    sub.subscribe(("a", 0))
    assert [m.block for m in sub.publishes()] == [b"\x02\0\0\0\x06"]
    gateway.advance(7)
    sub.subscribe(("a", 0))
    assert sub.publishes() == []


def test_retained_messages_survive_a_restart(gateway: Gateway) -> None:
    gateway.connect("p").publish("a", b"kept", qos=1, packet_id=1, retain=True)
    again = gateway.restart()
    sub = again.connect("s")
    sub.subscribe(("#", 0))
    assert [m.payload for m in sub.publishes()] == [b"kept"]
    again.stop()


@pytest.mark.parametrize("kept_before", [False, True])
def test_a_message_retained_between_subscribe_and_suback_comes_once(
    tmp_path: Path, kept_before: bool
) -> None:
    """SUBACK of a session that lasts waits for the disk."""
    gateway = Gateway(tmp_path, fsync="group")
    pub = gateway.connect("p", 5)
    if kept_before:
        pub.publish("t/a", b"old", qos=1, packet_id=1, retain=True)
    pub.publish("t/b", b"kept", qos=1, packet_id=1, retain=True).take()
    sub = gateway.connect("s", 5, clean=False, props=b"\x11\0\0\1\0")
    sub.send(f.subscribe(9, ("t/+", 1), version=5), settle=False)
    sub.flush()
    assert not sub.received, "SUBACK has not left yet"
    pub.publish("t/a", b"new", qos=1, packet_id=1, retain=True, settle=False)
    came = [p for p in sub.take() if p.kind == f.PUBLISH]
    found = sorted((m.payload, m.retain) for m in (f.parse_publish(p, 5) for p in came))
    assert found == [(b"kept", True), (b"new", False)]
    forget_runs()
    gateway.stop()
