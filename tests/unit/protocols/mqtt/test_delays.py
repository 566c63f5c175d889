"""Delayed publishing over MQTT: $delayed, the user properties, and wills over a crash."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.protocols.mqtt.publishing.delays import Delay, DelayRefused, read_delay
from penstock.router.messages.delayed import HORIZON_MS
from tests.reference import mqtt_frames as f
from tests.support.logs import files_made
from tests.support.mqtt import Gateway, Peer

WALL = 1_700_000_000_000


def user(name: str, value: str) -> bytes:
    return b"\x26" + f.text(name) + f.text(value)


def subscriber(gateway: Gateway, topic: str = "#", version: int = 5) -> Peer:
    peer = gateway.connect("s", version)
    peer.subscribe((topic, 2))
    return peer


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_to_delayed_comes_to_the_topic_behind_it_in_time(
    gateway: Gateway, version: int, qos: int
) -> None:
    sub = subscriber(gateway, "a/#", version)
    gateway.connect("p", version).publish("$delayed/5/a/b", b"x", qos=qos, packet_id=7 if qos else 0)
    gateway.advance(4.999)
    assert sub.publishes() == []
    gateway.advance(0.01)
    (got,) = sub.publishes()
    assert (got.topic, got.payload, got.qos, got.retain) == (b"a/b", b"x", qos, False)


def test_a_large_number_is_the_time_itself(gateway: Gateway) -> None:
    sub = subscriber(gateway)
    at = int(gateway.clock.now) + 100
    assert at > 42_949_670
    gateway.connect("p").publish(f"$delayed/{at}/t", b"x")
    gateway.advance(99)
    assert sub.publishes() == []
    gateway.advance(1.1)
    assert [m.payload for m in sub.publishes()] == [b"x"]


@pytest.mark.parametrize("topic", ["$delayed/0/t", "$delayed/42949671/t"])
def test_a_message_due_now_is_published_at_once(gateway: Gateway, topic: str) -> None:
    sub = subscriber(gateway)
    gateway.connect("p").publish(topic, b"x")
    assert [m.topic for m in sub.publishes()] == [b"t"]


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("$delayed/x/t", 0x90),
        ("$delayed/-1/t", 0x90),
        ("$delayed/5", 0x90),
        ("$delayed/5/", 0x90),
        ("$delayed//t", 0x90),
        ("$delayed/5/$SYS/t", 0x87),
        ("$delayed/5/$delayed/5/t", 0x87),
        ("$delayed/99999999999/t", 0x90),
    ],
)
def test_a_bad_delayed_topic_is_refused_and_the_connection_stays(
    gateway: Gateway, topic: str, reason: int
) -> None:
    peer = gateway.connect("p", 5).publish(topic, qos=1, packet_id=3)
    assert peer.bytes_taken() == f.ack(4, 3, reason)
    assert not peer.closed


@pytest.mark.parametrize(("name", "base"), [("penstock-deliver-after", 0), ("penstock-deliver-at", 1)])
def test_a_user_property_delays_and_is_taken_out(gateway: Gateway, name: str, base: int) -> None:
    sub = subscriber(gateway)
    props = (
        b"\x01\x01" + user("a", "1") + user(name, str(3000 + base * gateway.log.wall_ms())) + user("b", "2")
    )
    gateway.connect("p", 5).publish("t", b"x", props=props)
    gateway.advance(2.9)
    assert sub.publishes() == []
    gateway.advance(0.2)
    (got,) = sub.publishes()
    assert got.block == b"\x01\x01" + user("a", "1") + user("b", "2")


def test_a_user_property_that_is_no_number_is_refused(gateway: Gateway) -> None:
    props = user("penstock-deliver-after", "soon")
    peer = gateway.connect("p", 5).publish("t", qos=1, packet_id=3, props=props)
    assert peer.bytes_taken() == f.ack(4, 3, 0x83)


def test_a_property_with_a_longer_name_is_the_users_own() -> None:
    block = user("penstock-deliver-atlas", "x")
    assert read_delay(b"t", block, WALL) == Delay(b"t", block)


def test_the_horizon_holds_for_both() -> None:
    for topic, block in (
        (f"$delayed/{(WALL + HORIZON_MS) // 1000 + 2}/t".encode(), b""),
        (b"t", user("penstock-deliver-after", str(HORIZON_MS + 1))),
    ):
        with pytest.raises(DelayRefused, match="100 years"):
            read_delay(topic, block, WALL)


def test_a_message_with_a_name_is_cancelled_or_replaced(gateway: Gateway) -> None:
    sub = subscriber(gateway)
    peer = gateway.connect("p", 5)

    def publish(payload: bytes, *props: tuple[str, str], topic: str = "t") -> int:
        """The reason of its PUBACK."""
        block = b"".join(user(*one) for one in props)
        peer.publish(topic, payload, qos=1, packet_id=9, props=block)
        (answer,) = peer.take()
        assert (answer.kind, answer.body[:2]) == (4, b"\0\x09")
        return answer.body[2] if len(answer.body) > 2 else 0

    wait = ("penstock-deliver-after", "3000")
    assert publish(b"one", ("penstock-delay-id", "a"), wait) == 0
    assert publish(b"two", wait, ("penstock-delay-id", "b"), ("x", "y")) == 0
    assert publish(b"three", ("penstock-delay-id", "c"), topic="$delayed/3/t") == 0
    assert publish(b"", ("penstock-cancel", "a")) == 0
    assert publish(b"", ("penstock-cancel", "a")) == 0x10, "none of this name waits"
    assert publish(b"", ("penstock-cancel", "")) == 0x83
    assert publish(b"", ("penstock-cancel", "b"), ("penstock-delay-id", "b")) == 0x83
    # It comes in the other one's stead, now.
    assert publish(b"three, now", ("penstock-delay-id", "c")) == 0
    assert [m.payload for m in sub.publishes()] == [b"three, now"]
    gateway.advance(2.9)
    assert sub.publishes() == []
    gateway.advance(0.2)
    (got,) = sub.publishes()
    assert (got.payload, got.block) == (b"two", user("x", "y"))


def test_a_cancelled_message_does_not_come_after_a_crash(gateway: Gateway, tmp_path: Path) -> None:
    peer = gateway.connect("p", 5)
    for name in ("a", "b"):
        props = user("penstock-deliver-after", "5000") + user("penstock-delay-id", name)
        peer.publish("t", name.encode(), qos=1, packet_id=7, props=props)
    peer.publish("t", b"", qos=1, packet_id=7, props=user("penstock-cancel", "a"))
    assert [packet.kind for packet in peer.take()] == [4, 4, 4]
    crashed = gateway.crash(tmp_path / "crashed")
    sub = subscriber(crashed)
    crashed.advance(4.9)
    wait_for(crashed, sub, 1)
    assert crashed.broker.statistics()["delayed"] == 0
    crashed.stop()


def test_a_delayed_retained_message_is_retained_when_it_is_due(gateway: Gateway) -> None:
    gateway.connect("p").publish("$delayed/5/t", b"x", retain=True)
    early = subscriber(gateway)
    assert early.publishes() == []
    gateway.advance(5.1)
    assert [m.retain for m in early.publishes()] == [False]
    late = gateway.connect("late")
    late.subscribe(("t", 0))
    assert [(m.payload, m.retain) for m in late.publishes()] == [(b"x", True)]


def test_the_publisher_does_not_get_it_back_with_no_local(gateway: Gateway) -> None:
    peer = gateway.connect("p", 5)
    peer.subscribe(("t", 0x04))
    peer.publish("$delayed/1/t", b"x")
    gateway.advance(1.1)
    assert peer.publishes() == []


def test_it_survives_a_crash_once(gateway: Gateway, tmp_path: Path) -> None:
    sub = gateway.connect("s", 4, clean=False)
    sub.subscribe(("t", 1))
    peer = gateway.connect("p").publish("$delayed/60/t", b"x", qos=1, packet_id=1)
    assert [packet.kind for packet in peer.take()] == [4]
    crashed = gateway.crash(tmp_path / "crashed")
    sub = crashed.connect("s", 4, clean=False)
    crashed.advance(59)
    assert sub.publishes() == []
    wait_for(crashed, sub, 1)
    again = crashed.restart()
    sub = again.connect("s", 4, clean=False)
    again.advance(10)
    assert again.broker.statistics()["delayed"] == 0
    again.stop()


def test_exactly_once_from_a_session_that_lasts(gateway: Gateway) -> None:
    sub = subscriber(gateway, "t", 4)
    peer = gateway.connect("p", 4, clean=False)
    peer.publish("$delayed/5/t", b"x", qos=2, packet_id=7)
    assert [packet.kind for packet in peer.take()] == [5]
    peer.drop()
    peer = gateway.connect("p", 4, clean=False)
    peer.publish("$delayed/5/t", b"x", qos=2, packet_id=7, dup=True)
    peer.send(f.ack(6, 7))
    assert [packet.kind for packet in peer.take()] == [5, 7]
    gateway.advance(5.1)
    assert [m.payload for m in sub.publishes()] == [b"x"]


def wait_for(gateway: Gateway, sub: Peer, count: int) -> None:
    """Let seconds pass until `count` messages have come, acknowledging them."""
    for _ in range(200):
        gateway.advance(1.0)
        for message in sub.publishes():
            sub.send(f.ack(4, message.packet_id))
            count -= 1
        if count <= 0:
            assert count == 0
            return
        gateway.log.reader._pool.submit(lambda: None).result()
    raise AssertionError("it did not come")


def test_a_crash_while_a_will_goes_out_neither_loses_nor_repeats_it(gateway: Gateway, tmp_path: Path) -> None:
    sub = gateway.connect("s", 4, clean=False)
    sub.subscribe(("w", 1))
    expiry, delay = b"\x11\0\0\0\x64", b"\x18\0\0\0\x0a"
    gateway.connect("a", 5, clean=False, props=expiry, will=("w", b"gone", 1, False), will_props=delay).drop()
    sub.drop()
    gateway.advance(1.1)  # the sessions are written, whose clients do not come back at once
    segment = gateway.log._wal.segment
    start = segment.end
    gateway.advance(9.0)
    raw = segment.path.read_bytes()
    cuts = [start]
    while cuts[-1] < segment.end:
        cuts.append(cuts[-1] + int.from_bytes(raw[cuts[-1] : cuts[-1] + 4], "little"))
    assert len(cuts) == 3, "one unit of two batches"
    files_made(gateway.log)
    for i, cut in enumerate(cuts):
        folder = tmp_path / str(i)
        shutil.copytree(gateway.folder, folder)
        path = folder / segment.path.relative_to(gateway.folder)
        path.write_bytes(raw[:cut] + bytes(len(raw) - cut))
        again = Gateway(folder, gateway.options, gateway.clock)
        sub = again.connect("s", 4, clean=False)
        again.advance(20)
        assert [m.payload for m in sub.publishes()] == [b"gone"], f"cut at {cut}"
        again.stop()
