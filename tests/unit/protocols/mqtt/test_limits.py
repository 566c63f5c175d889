"""Limits of sessions and clients: waiting messages, rates of CONNECT, of messages and of bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.mqtt.options import MqttOptions
from penstock.router.limits.token_buckets import Bucket
from penstock.router.policies.policies import Policy
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer

EXPIRY = b"\x11\0\0\x10\0"


def retention_feed(gateway: Gateway, client_id: str, topic: str = "t", **options: object) -> Peer:
    peer = gateway.connect(client_id, 5, clean=False, props=EXPIRY + b"\x21\0\x02")
    if not peer.session_present:
        peer.subscribe((topic, 1))
    return peer


def publish(gateway: Gateway, first: int, last: int, qos: int = 1) -> None:
    pub = gateway.connect("pub", 5)
    for i in range(first, last):
        pub.publish("t", bytes((i,)), qos=qos, packet_id=i + 1 if qos else 0)
        assert qos == 0 or pub.take()[0].body[2:] in (b"", b"\x10")


def rest(peer: Peer) -> list[int]:
    """The payloads of everything that comes, acknowledged as it comes."""
    got = []
    while packets := peer.take():
        for packet in packets:
            message = f.parse_publish(packet, 5)
            got.append(message.payload[0])
            peer.send(f.ack(f.PUBACK, message.packet_id), settle=False)
    return got


def test_without_a_limit_everything_waits(gateway: Gateway) -> None:
    retention_feed(gateway, "s").drop()
    publish(gateway, 0, 200)
    assert rest(retention_feed(gateway, "s")) == list(range(200))


@pytest.mark.parametrize("restarted", [False, True])
def test_the_oldest_of_too_many_are_dropped_counted_and_published(tmp_path: Path, restarted: bool) -> None:
    gateway = Gateway(tmp_path / "data", MqttOptions(max_queued_messages=10, dead_letter_topic="lost"))
    retention_feed(gateway, "s").drop()
    if restarted:
        gateway = gateway.restart()
    dead = gateway.connect("dead", 5)
    dead.subscribe(("lost", 1))
    publish(gateway, 0, 25)
    letters = dead.take()
    assert gateway.clients.backlog.dropped == 15
    assert [p.body[-1] for p in letters] == list(range(15))
    block = (
        b"\x26" + f.text("penstock-session") + f.text("s") + b"\x26" + f.text("penstock-topic") + f.text("t")
    )
    assert all(block in p.body for p in letters)
    assert rest(retention_feed(gateway, "s")) == list(range(15, 25))
    gateway.stop()


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "limit",
    [
        {"max_queued_messages": 10},
        {"max_queued_bytes": 10},
        {"max_queued_messages": 10, "max_queued_bytes": 99},
    ],
)
def test_the_newest_of_too_many_are_dropped_if_that_is_asked(
    tmp_path: Path, limit: dict[str, int], restarted: bool
) -> None:
    """Every payload has one byte. A restart keeps the kept messages, and brings no dropped one back."""
    options = MqttOptions(queue_full="drop-newest", dead_letter_topic="lost", **limit)  # type: ignore[arg-type]
    gateway = Gateway(tmp_path / "data", options)
    retention_feed(gateway, "s").drop()
    dead = gateway.connect("dead", 5)
    dead.subscribe(("lost", 1))
    publish(gateway, 0, 25)
    assert [p.body[-1] for p in dead.take()] == list(range(10, 25))
    if restarted:
        gateway = gateway.restart()
        publish(gateway, 25, 27)
    assert rest(retention_feed(gateway, "s")) == list(range(10))
    publish(gateway, 30, 35)
    assert rest(retention_feed(gateway, "s")) == list(range(30, 35))
    gateway.stop()


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_a_limit_in_bytes_leaves_subscriptions_as_they_are(tmp_path: Path, policy: str) -> None:
    """Waiting messages below the limit keep their QoS and the identifiers of the matching subscriptions."""
    options = MqttOptions(max_queued_bytes=25, queue_full=policy)  # type: ignore[arg-type]
    gateway = Gateway(tmp_path / "data", options)
    peer = gateway.connect("s", 5, clean=False, props=EXPIRY)
    peer.subscribe(("t/#", 2), props=b"\x0b\x07")
    peer.subscribe(("t/a", 1), props=b"\x0b\x09")
    peer.drop()
    pub = gateway.connect("pub", 5)
    for i in range(4):
        pub.publish("t/a", bytes((i,)) * 10, qos=1, packet_id=i + 1)
    (session,) = [c for c in gateway.clients if c.client_id == "s"]
    assert (session.queue.ready_count, session.queue.dropped, gateway.clients.backlog.dropped) == (2, 2, 2)
    packets = gateway.connect("s", 5, clean=False, props=EXPIRY).take()
    assert [p.body[-1] for p in packets] == ([0, 1] if policy == "drop-newest" else [2, 3])
    assert [p.flags for p in packets] == [2, 2]
    assert all(b"\x04\x0b\x07\x0b\x09" in p.body for p in packets)
    gateway.stop()


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_messages_that_a_client_takes_at_once_never_exceed_the_limit(tmp_path: Path, policy: str) -> None:
    options = MqttOptions(max_queued_messages=1, max_queued_bytes=1, queue_full=policy)  # type: ignore[arg-type]
    gateway = Gateway(tmp_path / "data", options)
    sub = gateway.connect("sub", 5)
    sub.subscribe(("t", 1))
    gateway.connect("pub", 5).send(b"".join(f.publish("t", b"abc", props=b"") for _ in range(50)))
    assert len(sub.take()) == 50
    assert gateway.clients.backlog.dropped == 0
    gateway.stop()


def test_a_shared_subscription_has_the_limit_too(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data", MqttOptions(max_queued_messages=10))
    retention_feed(gateway, "s", "$share/g/t").drop()
    publish(gateway, 0, 25)
    assert rest(retention_feed(gateway, "s", "$share/g/t")) == list(range(15, 25))
    gateway.stop()


@pytest.mark.parametrize("policy", ["drop-oldest", "disconnect"])
def test_a_client_that_does_not_keep_up_is_disconnected_if_that_is_asked(tmp_path: Path, policy: str) -> None:
    options = MqttOptions(max_queued_messages=5, queue_full=policy)  # type: ignore[arg-type]
    gateway = Gateway(tmp_path / "data", options)
    slow = retention_feed(gateway, "s")
    publish(gateway, 0, 7)
    assert not slow.closed
    publish(gateway, 7, 9)
    assert slow.closed == (policy == "disconnect")
    if policy == "disconnect":
        assert slow.received[-1].body == b"\x97"
    gateway.stop()


def test_more_connects_than_the_rate_are_refused(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data", MqttOptions(max_connect_rate=5))
    for i in range(10):
        gateway.connect(f"c{i}", 4)
    refused = gateway.peer(5).send(f.connect("x", version=5)), gateway.peer(4).send(f.connect("y"))
    assert refused[0].bytes_taken()[:4] == b"\x20\x03\x00\x9f" and refused[0].closed
    assert refused[1].bytes_taken() == b"\x20\x02\x00\x03" and refused[1].closed
    gateway.advance(1.1)
    for i in range(5):
        gateway.connect(f"d{i}", 5)
    gateway.stop()


@pytest.mark.parametrize("options", [MqttOptions(max_message_rate=10), MqttOptions(max_byte_rate=200)])
def test_a_client_above_its_rate_is_slowed_down_or_disconnected(tmp_path: Path, options: MqttOptions) -> None:
    gateway = Gateway(tmp_path / "data", options)
    old, new = gateway.connect("old", 4), gateway.connect("new", 5)
    for peer, props in ((old, None), (new, b"")):
        one = f.publish("a/b/c", b"0123456789", props=props)
        now = gateway.loop.time()
        for _ in range(20):
            peer.send(one)
            wait_s = peer.session.spent(len(one), now)
            if wait_s:
                break
        else:
            peer.send(one * 5)
            wait_s = peer.session.spent(5 * len(one), now)
        assert 0 < wait_s <= 1
    assert not old.closed and new.closed
    assert new.received[-1].body == b"\x96"
    gateway.stop()


@given(
    st.floats(0.5, 1000),
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 500)), min_size=1, max_size=40),
)
def test_a_bucket_never_gives_more_than_its_rate_and_burst(
    rate: float, asked: list[tuple[float, float]]
) -> None:
    bucket = Bucket(rate, 0.0)
    now = blocked_until = given_ = last = 0.0
    for gap, tokens in asked:
        now += gap
        if now < blocked_until:
            continue
        given_ += tokens
        last = tokens
        blocked_until = now + bucket.take(tokens, now)
    # All but the last, which may overdraw by itself, fit into what time has brought.
    assert given_ - last <= rate * (now + 2.0) + 1e-6 * given_ + 1e-6


def test_a_connection_above_the_limit_of_its_user_is_refused(gateway: Gateway) -> None:
    gateway.broker.administration.set_user_limits("guest", {"max-connections": 1})
    one = gateway.connect("one", 5)
    assert gateway.peer(5).send(f.connect("two", version=5)).bytes_taken() == b"\x20\x03\x00\x97\x00"
    assert gateway.peer(4).send(f.connect("two")).bytes_taken() == b"\x20\x02\x00\x03"
    assert len(gateway.clients) == 1
    one.drop()
    gateway.connect("two", 5)


def police(gateway: Gateway, definition: dict[str, object] | None) -> None:
    """Set the policy for sessions whose client id begins with "s", or delete it."""
    vhost = gateway.broker.vhost("/")
    if definition is None:
        vhost.delete_policy("policy", "p")
    else:
        policy = Policy("p", "^mqtt-subscription-s", definition, apply_to="queues")
        vhost.set_policy("policy", policy)
    gateway.settle()


@pytest.mark.parametrize(
    ("definition", "kept"),
    [
        ({"max-length": 10}, range(15, 25)),
        ({"max-length-bytes": 10}, range(15, 25)),
        ({"max-length": 10, "overflow": "reject-publish"}, range(10)),
    ],
)
@pytest.mark.parametrize("when", ["before", "after", "restarted"])
def test_a_policy_limits_sessions_whose_queues_it_matches(
    tmp_path: Path, definition: dict[str, object], kept: range, when: str
) -> None:
    gateway = Gateway(tmp_path / "data")
    if when == "before":
        police(gateway, definition)
    for client_id in ("s", "other"):
        retention_feed(gateway, client_id).drop()
    if when != "before":
        police(gateway, definition)
    if when == "restarted":
        gateway = gateway.restart()
    publish(gateway, 0, 25)
    assert rest(retention_feed(gateway, "s")) == list(kept)
    assert rest(retention_feed(gateway, "other")) == list(range(25))
    gateway.stop()


def test_without_the_policy_there_is_no_limit_any_more(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    retention_feed(gateway, "s").drop()
    police(gateway, {"max-length": 3})
    police(gateway, {"max-length": 5})
    publish(gateway, 0, 10)
    police(gateway, None)
    publish(gateway, 10, 20)
    assert rest(retention_feed(gateway, "s")) == list(range(5, 20))
    gateway.stop()


def test_the_lower_one_of_option_and_policy_counts(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data", MqttOptions(max_queued_messages=4))
    for client_id in ("s", "other"):
        retention_feed(gateway, client_id).drop()
    police(gateway, {"max-length": 2})
    publish(gateway, 0, 10)
    assert rest(retention_feed(gateway, "s")) == [8, 9]
    police(gateway, {"max-length": 9})
    for client_id in ("s", "other"):
        retention_feed(gateway, client_id).drop()
    publish(gateway, 10, 20)
    assert rest(retention_feed(gateway, "s")) == [16, 17, 18, 19]
    gateway.stop()


def test_a_policys_time_to_live_holds_for_sessions(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    retention_feed(gateway, "s").drop()
    police(gateway, {"message-ttl": 10_000})
    publish(gateway, 0, 2)
    gateway.advance(6)
    publish(gateway, 2, 4)
    gateway.advance(6)
    assert rest(retention_feed(gateway, "s")) == [2, 3]
    gateway.stop()


def test_a_policy_for_very_many_sessions_reaches_them_all(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    for i in range(250):
        retention_feed(gateway, f"s{i}").drop()
    police(gateway, {"max-length": 1})
    publish(gateway, 0, 3)
    gateway.settle()
    assert {client.queue.ready_count for client in gateway.clients if client.client_id[0] == "s"} == {1}
    gateway.stop()
