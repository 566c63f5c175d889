"""Shared subscriptions: who gets what, what a lost member had, and what a restart keeps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from penstock.protocols.mqtt.options import MqttOptions
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer

EXPIRY = b"\x11\0\0\x10\0"
FILTER = "$share/g/t/#"


def member(
    gateway: Gateway,
    client_id: str,
    qos: int = 1,
    *,
    version: int = 5,
    topic: str = FILTER,
    props: bytes = b"",
) -> Peer:
    peer = gateway.connect(client_id, version, props=props)
    assert peer.subscribe((topic, qos)) == [qos]
    return peer


def retention_feed(gateway: Gateway, client_id: str, qos: int = 1, *, resubscribe: bool = True) -> Peer:
    """A member whose session outlives its connection."""
    peer = gateway.connect(client_id, 5, clean=False, props=EXPIRY)
    if resubscribe:
        assert peer.subscribe((FILTER, qos)) == [qos]
    return peer


def publish(gateway: Gateway, first: int, last: int, qos: int = 1) -> None:
    pub = gateway.connect("pub", 5)
    for i in range(first, last):
        pub.publish(f"t/{i % 3}", bytes((i,)), qos=qos, packet_id=i + 1 if qos else 0)
        if qos == 2:
            pub.send(f.ack(f.PUBREL, i + 1))
    pub.drop()


def numbers(messages: list[f.Publish]) -> list[int]:
    return [m.payload[0] for m in messages]


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("topic", [FILTER, "$queue/t/#"])
def test_each_message_goes_to_one_member_in_turn(gateway: Gateway, version: int, topic: str) -> None:
    members = [member(gateway, f"m{i}", version=version, topic=topic) for i in range(3)]
    publish(gateway, 0, 30)
    got = [numbers(peer.publishes()) for peer in members]
    assert sorted(n for each in got for n in each) == list(range(30))
    assert [len(each) for each in got] == [10, 10, 10]
    assert all(each == sorted(each) for each in got)


def test_a_sticky_group_has_one_member_that_gets_all_until_it_is_gone(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data", options=MqttOptions(shared_strategy="sticky"))
    members = [member(gateway, f"m{i}") for i in range(3)]
    publish(gateway, 0, 10)
    assert [len(peer.publishes()) for peer in members] == [10, 0, 0]
    members[0].drop()  # what it had not acknowledged goes on with the next one, and so does the rest
    publish(gateway, 10, 20)
    assert [sorted(numbers(peer.publishes())) for peer in members[1:]] == [list(range(20)), []]
    gateway.stop()


def test_a_random_group_draws_who_is_next(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data", options=MqttOptions(shared_strategy="random"))
    members = [member(gateway, f"m{i}", qos=0) for i in range(3)]
    order = []
    for i in range(60):
        publish(gateway, i, i + 1, qos=0)
        got = [numbers(peer.publishes()) for peer in members]
        assert sorted(n for each in got for n in each) == [i]
        order.append(got.index([i]))
    assert set(order) == {0, 1, 2}
    assert order != order[:3] * 20  # by chance once in 3**57
    gateway.stop()


def test_a_group_may_have_a_strategy_of_its_own_and_another_one_after_a_restart(tmp_path: Path) -> None:
    options = MqttOptions(shared_strategy="random", shared_strategy_of=["g=sticky"])
    gateway = Gateway(tmp_path / "data", options=options)
    members = [retention_feed(gateway, f"m{i}") for i in range(2)]
    others = [member(gateway, f"o{i}", topic="$share/h/t/#") for i in range(2)]
    publish(gateway, 0, 10)
    assert [len(peer.publishes()) for peer in members] == [10, 0]
    assert sum(len(peer.publishes()) for peer in others) == 10
    for peer in members:
        peer.drop()
    gateway.options = MqttOptions()
    gateway = gateway.restart()
    members = [retention_feed(gateway, f"m{i}", resubscribe=False) for i in range(2)]
    for peer in members:
        peer.publishes()
    publish(gateway, 20, 30)
    assert [len(peer.publishes()) for peer in members] == [5, 5]
    gateway.stop()


def test_groups_and_plain_subscriptions_do_not_share_with_each_other(gateway: Gateway) -> None:
    one = member(gateway, "one")
    other = member(gateway, "other", topic="$share/h/t/#")
    plain = member(gateway, "plain", topic="t/#")
    one.subscribe(("t/+", 0))
    publish(gateway, 0, 4)
    assert sorted((m.payload[0], m.qos) for m in one.publishes()) == [
        (i, qos) for i in range(4) for qos in (0, 1)
    ]
    assert numbers(other.publishes()) == numbers(plain.publishes()) == [0, 1, 2, 3]


def test_members_have_their_own_qos_and_subscription_identifiers(gateway: Gateway) -> None:
    zero = gateway.connect("zero", 5)
    zero.subscribe((FILTER, 0), props=b"\x0b\x07")
    two = gateway.connect("two", 5)
    two.subscribe((FILTER, 2), props=b"\x0b\x09")
    publish(gateway, 0, 10, qos=2)
    for peer, qos, block in ((zero, 0, b"\x0b\x07"), (two, 2, b"\x0b\x09")):
        packets = peer.take()
        assert {p.flags >> 1 for p in packets} == {qos} and len(packets) == 5
        assert all(b"\x02" + block in p.body for p in packets)


def test_a_member_whose_window_is_full_is_passed_over(gateway: Gateway) -> None:
    slow = member(gateway, "slow", props=b"\x21\0\x02")
    quick = member(gateway, "quick")
    publish(gateway, 0, 12)
    assert len(slow.publishes()) == 2
    got = quick.publishes()
    assert len(got) == 10
    slow.send(f.ack(f.PUBACK, 1) + f.ack(f.PUBACK, 2))
    publish(gateway, 12, 16)
    assert len(slow.publishes()) == 2 and len(quick.publishes()) == 2


def test_retained_messages_are_not_sent_to_a_group__mqtt5_3_3_1_3(gateway: Gateway) -> None:
    gateway.connect("p").publish("t/1", b"kept", retain=True)
    assert member(gateway, "m").publishes() == []


def test_no_local_on_a_shared_subscription_is_a_protocol_error__mqtt5_3_8_3_4(gateway: Gateway) -> None:
    peer = gateway.connect("m", 5)
    peer.send(f.subscribe(1, (FILTER, 4 | 1), version=5))
    assert peer.closed and peer.bytes_taken() == f.disconnect(0x82)


@pytest.mark.parametrize(
    "topic", ["$share/g", "$share/g/", "$share//t", "$share/+/t", "$share/g#/t", "$queue/"]
)
@pytest.mark.parametrize("version", [4, 5])
def test_a_shared_subscription_needs_a_group_and_a_filter__mqtt5_4_8_2_1__mqtt5_4_8_2_2(
    gateway: Gateway, topic: str, version: int
) -> None:
    peer = gateway.connect("m", version)
    peer.send(f.subscribe(1, (topic, 1), version=version))
    assert peer.closed and peer.bytes_taken() == (f.disconnect(0x81) if version == 5 else b"")


@pytest.mark.parametrize("kept", [False, True])
def test_unacknowledged_messages_of_a_lost_member_go_to_another_at_qos_1(
    gateway: Gateway, kept: bool
) -> None:
    first = retention_feed(gateway, "first") if kept else member(gateway, "first")
    second = member(gateway, "second")
    publish(gateway, 0, 6)
    mine, theirs = first.publishes(), second.publishes()
    assert (len(mine), len(theirs)) == (3, 3)
    first.send(f.ack(f.PUBACK, mine[0].packet_id))
    first.drop()
    again = second.publishes()
    assert numbers(again) == numbers(mine)[1:]
    # For this member they are new.
    assert not any(m.dup for m in again)
    assert len({m.packet_id for m in theirs + again}) == 5


def test_qos_2_messages_of_a_lost_member_stay_its_own__mqtt5_4_8_2_4(gateway: Gateway) -> None:
    first, second = retention_feed(gateway, "first", 2), retention_feed(gateway, "second", 2)
    publish(gateway, 0, 4, qos=2)
    mine = first.publishes()
    assert len(mine) == len(second.publishes()) == 2
    first.send(f.ack(f.PUBREC, mine[0].packet_id))
    first.drop()
    assert second.take() == []
    first = retention_feed(gateway, "first", resubscribe=False)
    released, again = first.take()
    assert f.parse_ack(released, 5) == (mine[0].packet_id, 0)
    message = f.parse_publish(again, 5)
    assert (message.packet_id, message.dup, message.qos) == (mine[1].packet_id, True, 2)
    assert message.payload == mine[1].payload
    first.send(f.ack(f.PUBCOMP, mine[0].packet_id) + f.ack(f.PUBREC, mine[1].packet_id))
    first.send(f.ack(f.PUBCOMP, mine[1].packet_id))
    assert gateway.vhost.shares.get("$share/g/t/#").queue.cursor.outstanding == 2  # type: ignore[union-attr]


def test_a_session_that_ends_takes_its_qos_2_messages_with_it__mqtt5_4_8_2_5(gateway: Gateway) -> None:
    first, second = member(gateway, "first", 2), member(gateway, "second", 2)
    publish(gateway, 0, 4, qos=2)
    assert len(first.publishes()) == len(second.publishes()) == 2
    first.drop()
    assert second.take() == []
    assert gateway.vhost.shares.get("$share/g/t/#").queue.cursor.outstanding == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_that_a_member_refuses_go_to_nobody__mqtt5_4_8_2_6(gateway: Gateway, qos: int) -> None:
    first, second = member(gateway, "first", qos), member(gateway, "second", qos)
    publish(gateway, 0, 2, qos=qos)
    (message,) = first.publishes()
    second.take()
    first.send(f.ack(f.PUBACK if qos == 1 else f.PUBREC, message.packet_id, 0x97))
    first.drop()
    assert second.take() == []


def test_messages_wait_while_every_member_is_away_but_not_those_of_qos_0(gateway: Gateway) -> None:
    for name in ("a", "b"):
        retention_feed(gateway, name).drop()
    publish(gateway, 0, 6)
    publish(gateway, 6, 9, qos=0)
    one = retention_feed(gateway, "a", resubscribe=False)
    assert numbers(one.publishes()) == list(range(6))
    publish(gateway, 9, 10, qos=0)
    assert numbers(one.publishes()) == [9]


def test_a_member_that_is_away_gets_nothing_while_another_is_there(gateway: Gateway) -> None:
    retention_feed(gateway, "away").drop()
    here = member(gateway, "here")
    publish(gateway, 0, 5)
    assert numbers(here.publishes()) == list(range(5))
    assert retention_feed(gateway, "away", resubscribe=False).publishes() == []


def test_the_group_ends_with_its_last_session(gateway: Gateway) -> None:
    retention_feed(gateway, "a").drop()
    retention_feed(gateway, "b").drop()
    publish(gateway, 0, 5)
    gateway.connect("a", 5).drop()
    assert len(gateway.clients.shares) == 1
    gateway.advance(4097)
    assert len(gateway.clients.shares) == 0 and gateway.vhost.shares.get("$share/g/t/#") is None
    assert retention_feed(gateway, "b").publishes() == []


def test_a_member_that_unsubscribes_gets_nothing_more(gateway: Gateway) -> None:
    stays, leaves = member(gateway, "stays"), member(gateway, "leaves")
    leaves.send(f.unsubscribe(5, FILTER, "$share/g/other", version=5))
    assert leaves.take()[0].body[3:] == b"\x00\x11"
    publish(gateway, 0, 4)
    assert numbers(stays.publishes()) == [0, 1, 2, 3] and leaves.take() == []
    stays.send(f.unsubscribe(5, FILTER, version=5))
    assert len(gateway.clients.shares) == 0


def test_subscribing_again_changes_the_qos(gateway: Gateway) -> None:
    peer = member(gateway, "m", 0)
    assert peer.subscribe((FILTER, 2)) == [2]
    publish(gateway, 0, 1, qos=2)
    assert [m.qos for m in peer.publishes()] == [2]


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_a_group_and_its_messages_survive_a_restart(gateway: Gateway, tmp_path: Path, how: str) -> None:
    retention_feed(gateway, "a").drop()
    retention_feed(gateway, "b").drop()
    publish(gateway, 0, 6)
    gateway = gateway.restart() if how == "stop" else gateway.crash(tmp_path / "copy")
    a, b = (retention_feed(gateway, name, resubscribe=False) for name in "ab")
    got = a.publishes() + b.publishes()
    assert sorted(numbers(got)) == list(range(6))
    publish(gateway, 6, 10)
    assert len(a.publishes()) == len(b.publishes()) == 2
    gateway.stop()


@pytest.mark.parametrize("other_comes", ["before", "after"])
def test_qos_2_of_a_member_is_still_its_own_after_a_kill(
    gateway: Gateway, tmp_path: Path, other_comes: str
) -> None:
    first, second = retention_feed(gateway, "first", 2), retention_feed(gateway, "second", 2)
    publish(gateway, 0, 4, qos=2)
    mine, theirs = first.publishes(), second.publishes()
    assert len(mine) == len(theirs) == 2
    gateway = gateway.crash(tmp_path / "copy")
    if other_comes == "before":
        second = retention_feed(gateway, "second", resubscribe=False)
        assert Counter(numbers(second.publishes())) == Counter(numbers(theirs))
    first = retention_feed(gateway, "first", resubscribe=False)
    again = first.publishes()
    assert [(m.packet_id, m.payload, m.dup) for m in again] == [(m.packet_id, m.payload, True) for m in mine]
    for message in again:
        first.send(f.ack(f.PUBREC, message.packet_id))
        first.send(f.ack(f.PUBCOMP, message.packet_id))
    if other_comes == "after":
        second = retention_feed(gateway, "second", resubscribe=False)
        assert Counter(numbers(second.publishes())) == Counter(numbers(theirs))
    queue = gateway.vhost.shares.get("$share/g/t/#").queue  # type: ignore[union-attr]
    assert queue.cursor.outstanding == 2
    publish(gateway, 4, 6, qos=2)
    assert len([p for p in first.take() if p.kind == 3]) == 1
    gateway.stop()


def test_a_group_becomes_durable_with_its_first_session_that_stays(gateway: Gateway, tmp_path: Path) -> None:
    member(gateway, "passing")
    retention_feed(gateway, "a").drop()
    publish(gateway, 0, 1)
    gateway.connect("passing", 5).drop()
    publish(gateway, 1, 4)
    gateway = gateway.crash(tmp_path / "copy")
    got = numbers(retention_feed(gateway, "a", resubscribe=False).publishes())
    assert got == [0, 1, 2, 3] or got == [1, 2, 3]
    gateway.stop()


def test_passing_groups_leave_no_places_behind(gateway: Gateway) -> None:
    peer = gateway.connect("m", 5)
    for i in range(50):
        peer.subscribe((f"$share/g/{i}", 1))
        peer.send(f.unsubscribe(5, f"$share/g/{i}", version=5))
    (client,) = gateway.clients
    assert len(client.ids.inflight.cursors) <= 2
    assert len(gateway.clients.shares) == 0


def test_an_exclusive_filter_has_one_subscriber(gateway: Gateway, tmp_path: Path) -> None:
    gateway.connect("p").publish("t/1", b"kept", retain=True)
    first = gateway.connect("first", 5, clean=False, props=EXPIRY)
    assert first.subscribe(("$exclusive/t/#", 1)) == [1]
    assert [(m.payload, m.retain) for m in first.publishes()] == [(b"kept", True)]
    assert gateway.connect("second", 5).subscribe(("$exclusive/t/#", 1), ("$exclusive/x", 0)) == [0x97, 0]
    assert gateway.connect("third", 4).subscribe(("$exclusive/t/#", 1)) == [0x80]
    assert gateway.connect("fourth", 4).subscribe(("t/#", 1)) == [1]
    assert first.subscribe(("$exclusive/t/#", 2)) == [2]
    first.drop()
    publish(gateway, 0, 3)
    gateway = gateway.crash(tmp_path / "copy")
    assert gateway.connect("second", 5).subscribe(("$exclusive/t/#", 1)) == [0x97]
    first = retention_feed(gateway, "first", resubscribe=False)
    assert [m.payload for m in first.publishes()] == [b"\0", b"\1", b"\2"]
    first.send(f.unsubscribe(3, "$exclusive/t/#", version=5))
    assert gateway.connect("second", 5).subscribe(("$exclusive/t/#", 1)) == [1]
    gateway.stop()


def test_no_local_holds_for_an_exclusive_filter(gateway: Gateway) -> None:
    peer = gateway.connect("m", 5)
    assert peer.subscribe(("$exclusive/t/#", 4 | 1)) == [1]
    peer.publish("t/1", b"mine")
    gateway.connect("p", 5).publish("t/1", b"theirs")
    assert [m.payload for m in peer.publishes()] == [b"theirs"]
