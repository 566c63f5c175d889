"""Wills: when they are published, and when not."""

from __future__ import annotations

from penstock.router.authorization.permissions import Permission
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer

WILL = ("w/a", b"gone", 1, False)


def delay(seconds: int) -> bytes:
    return b"\x18" + seconds.to_bytes(4, "big")


def expiry(seconds: int) -> bytes:
    return b"\x11" + seconds.to_bytes(4, "big")


def watcher(gateway: Gateway) -> Peer:
    peer = gateway.connect("watcher", 5)
    peer.subscribe(("w/#", 0x0A))
    return peer


def test_a_lost_connection_publishes_the_will(gateway: Gateway) -> None:
    sub = watcher(gateway)
    gateway.connect("a", 5, will=("w/a", b"gone", 2, True), will_props=b"\x01\x01").drop()
    (got,) = sub.publishes()
    assert (got.topic, got.payload, got.qos, got.retain, got.block) == (b"w/a", b"gone", 2, True, b"\x01\x01")
    late = gateway.connect("late")
    late.subscribe(("w/a", 0))
    assert [m.payload for m in late.publishes()] == [b"gone"]


def test_disconnect_discards_the_will__mqtt5_3_14_4_3(gateway: Gateway) -> None:
    sub = watcher(gateway)
    gateway.connect("a", will=WILL).send(f.disconnect())
    assert sub.publishes() == []


def test_disconnect_with_will_publishes_it(gateway: Gateway) -> None:
    sub = watcher(gateway)
    gateway.connect("a", 5, will=WILL).send(f.disconnect(0x04))
    assert len(sub.publishes()) == 1


def test_a_fault_and_the_keep_alive_publish_it(gateway: Gateway) -> None:
    sub = watcher(gateway)
    gateway.connect("a", will=WILL).send(b"\x00\x00")
    peer = gateway.connect("b", will=WILL, keep_alive=1)
    gateway.loop.advance(1.6)
    peer.session.handle_deadline(gateway.loop.time())
    assert len(sub.publishes()) == 2


def test_a_delayed_will_waits_and_a_return_cancels_it(gateway: Gateway) -> None:
    sub = watcher(gateway)
    options = {"clean": False, "props": expiry(100), "will": WILL, "will_props": delay(10)}
    gateway.connect("a", 5, **options).drop()
    gateway.advance(9.99)
    assert sub.publishes() == []
    gateway.connect("a", 5, **options).drop()
    gateway.advance(9.99)
    assert sub.publishes() == []
    gateway.advance(0.02)
    assert len(sub.publishes()) == 1
    gateway.advance(100)
    assert sub.publishes() == []


def test_the_end_of_the_session_publishes_a_delayed_will__mqtt5_3_1_2_8(gateway: Gateway) -> None:
    sub = watcher(gateway)
    gateway.connect("a", 5, clean=False, props=expiry(5), will=WILL, will_props=delay(10)).drop()
    gateway.advance(5.01)
    assert len(sub.publishes()) == 1
    gateway.connect("b", 5, clean=False, props=expiry(50), will=WILL, will_props=delay(10)).drop()
    gateway.connect("b", 5, clean=True)
    assert len(sub.publishes()) == 1


def test_a_take_over_publishes_it_unless_it_is_delayed(gateway: Gateway) -> None:
    sub = watcher(gateway)
    gateway.connect("a", 5, will=WILL)
    gateway.connect("a", 5)
    assert len(sub.publishes()) == 1
    gateway.connect("b", 5, clean=False, props=expiry(50), will=WILL, will_props=delay(10))
    gateway.connect("b", 5, clean=False, props=expiry(50))
    gateway.advance(20)
    assert sub.publishes() == []


def test_a_delayed_will_survives_a_restart(gateway: Gateway) -> None:
    gateway.connect("a", 5, clean=False, props=expiry(100), will=WILL, will_props=delay(10)).drop()
    gateway.connect(
        "b", 5, clean=False, props=expiry(100), will=WILL, will_props=delay(0) + b"\x01\x01"
    ).drop()
    gateway.connect("c", 5, clean=False, props=expiry(100), will=WILL, will_props=delay(3)).drop()
    gateway.advance(6)
    again = gateway.restart()
    sub = watcher(again)
    again.advance(3.9)
    assert sub.publishes() == []
    again.advance(0.2)
    assert [m.payload for m in sub.publishes()] == [b"gone"]
    again.stop()


def test_a_will_to_a_forbidden_topic_is_refused_at_connect(gateway: Gateway) -> None:
    peer = gateway.peer(5).send(f.connect("a", version=5, will=("$SYS/x", b"", 0, False)))
    assert peer.bytes_taken() == b"\x20\x03\x00\x87\x00"


class Hangs:
    """Rules that take long, and must not be asked while nobody can wait for them."""

    individual = slow = True
    filters = False

    def allow(self, *_: object, **__: object) -> bool:
        raise AssertionError("the gateway waits for what takes long")


def test_a_slow_rule_is_not_asked_again_about_wills_and_subscriptions(gateway: Gateway) -> None:
    sub, peer = watcher(gateway), gateway.connect("a", 5, will=WILL)
    gateway.broker.authorizer.topic_guard = Hangs()
    gateway.broker.authorizer.set("guest", "/", Permission())
    assert sub.session.client is not None
    assert list(sub.session.client.subscriptions) == ["w/#"]
    peer.drop()
    assert [got.payload for got in sub.publishes()] == [b"gone"]
