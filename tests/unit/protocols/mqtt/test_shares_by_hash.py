"""Shared subscriptions by hash: one member per topic, or per publisher, and the order of a key's messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

from penstock.protocols.mqtt.clients.client import number_of
from penstock.protocols.mqtt.options import MqttOptions
from tests.reference import mqtt_frames as f
from tests.support.bridged import amqp_publish
from tests.support.mqtt import Gateway, Peer

EXPIRY = b"\x11\0\0\x10\0"
TOPICS = [f"t/{i}" for i in range(16)]
Make = Callable[[str], Gateway]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Make]:
    gateways = []

    def make(strategy: str) -> Gateway:
        gateways.append(Gateway(tmp_path / "data", options=MqttOptions(shared_strategy_of=[f"g={strategy}"])))
        return gateways[-1]

    yield make
    for gateway in gateways:
        if not gateway.stopped:
            gateway.stop()


def member(gateway: Gateway, client_id: str, qos: int, *, props: bytes = EXPIRY, version: int = 5) -> Peer:
    peer = gateway.connect(client_id, version, clean=False, props=props)
    if not peer.session_present:
        assert peer.subscribe(("$share/g/t/#", qos)) == [qos]
    return peer


def publish(
    gateway: Gateway, numbers: range, qos: int, client_id: str = "pub", topics: list[str] = TOPICS
) -> None:
    """Number by number to one topic after another."""
    pub = gateway.connect(client_id, 5)
    for i in numbers:
        pub.publish(topics[i % len(topics)], i.to_bytes(2, "big"), qos=qos, packet_id=i + 1 if qos else 0)
        if qos == 2:
            pub.send(f.ack(f.PUBREL, i + 1))
    pub.drop()


def take(peer: Peer) -> list[f.Publish]:
    """PUBLISH packets that came; others are answered as the protocol demands."""
    found = []
    while packets := peer.take():
        for packet in packets:
            if packet.kind == f.PUBREL:
                peer.send(f.ack(f.PUBCOMP, f.parse_ack(packet, peer.version)[0]))
            elif packet.kind == f.PUBLISH:
                found.append(f.parse_publish(packet, peer.version))
    return found


def acknowledge(peer: Peer, messages: list[f.Publish]) -> None:
    for message in messages:
        if message.qos:
            peer.send(f.ack(f.PUBACK if message.qos == 1 else f.PUBREC, message.packet_id))


def by_topic(messages: list[f.Publish]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for message in messages:
        found.setdefault(message.topic.decode(), []).append(int.from_bytes(message.payload, "big"))
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_each_topic_has_one_member_and_keeps_its_order(made: Make, qos: int, version: int) -> None:
    gateway = made("hash-topic")
    members = [member(gateway, f"m{i}", qos, version=version) for i in range(3)]
    publish(gateway, range(160), qos)
    got = [by_topic(take(peer)) for peer in members]
    assert all(got), "each of the three has some of sixteen topics"
    assert sorted(topic for each in got for topic in each) == sorted(TOPICS)
    for each in got:
        for topic, numbers in each.items():
            assert numbers == list(range(TOPICS.index(topic), 160, len(TOPICS)))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_publisher_has_one_member_whatever_it_publishes_to(made: Make, qos: int) -> None:
    gateway = made("hash-clientid")
    members = [member(gateway, f"m{i}", qos) for i in range(3)]
    for i in range(12):
        publish(gateway, range(i * 10, i * 10 + 5), qos, f"p{i}")
        # It is the client that counts, not its connection or session.
        publish(gateway, range(i * 10 + 5, i * 10 + 10), qos, f"p{i}")
    got = [[int.from_bytes(m.payload, "big") for m in take(peer)] for peer in members]
    assert all(got), "each of the three has some of twelve publishers"
    owners = {n // 10: i for i, each in enumerate(got) for n in each}
    for i, each in enumerate(got):
        assert each == [n for n in range(120) if owners[n // 10] == i]


def test_publishers_over_other_protocols_count_as_one(made: Make) -> None:
    gateway = made("hash-clientid")
    members = [member(gateway, f"m{i}", 1) for i in range(3)]
    for i in range(30):
        amqp_publish(gateway, f"t.{i}", bytes((i,)))
    assert sorted(len(take(peer)) for peer in members) == [0, 0, 30]


def test_a_topic_is_the_same_key_when_amqp_publishes_to_it(made: Make) -> None:
    gateway = made("hash-topic")
    members = [member(gateway, f"m{i}", 1) for i in range(3)]
    publish(gateway, range(16), 1)
    for topic in TOPICS:
        amqp_publish(gateway, topic.replace("/", "."), b"\xff\xff", flags=2)
    got = [by_topic(take(peer)) for peer in members]
    assert sorted(topic for each in got for topic in each) == sorted(TOPICS)
    assert all(numbers == [TOPICS.index(topic), 0xFFFF] for each in got for topic, numbers in each.items())


def test_a_topic_moves_to_a_new_member_when_the_old_one_has_acknowledged_all_of_it(made: Make) -> None:
    gateway = made("hash-topic")
    first = member(gateway, "m0", 1)
    publish(gateway, range(16), 1)
    held = take(first)
    others = [member(gateway, f"m{i}", 1) for i in (1, 2)]
    publish(gateway, range(16, 32), 1)
    stays = by_topic(take(first))
    assert 0 < len(stays) < len(TOPICS), "some topics are another member's now"
    assert all(not take(peer) for peer in others), "but the first one has messages of all of them"
    moved = [m for m in held if m.topic.decode() not in stays]
    acknowledge(first, moved[:1])
    arrived = by_topic([m for peer in others for m in take(peer)])
    assert arrived == {(topic := moved[0].topic.decode()): [16 + TOPICS.index(topic)]}
    acknowledge(first, moved[1:])
    arrived |= by_topic([m for peer in others for m in take(peer)])
    assert sorted([*arrived, *stays]) == sorted(TOPICS)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_member_that_is_gone_leaves_its_topics_in_order_to_the_others(made: Make, qos: int) -> None:
    """At QoS 2 what it was sent stays its own (mqtt5:4.8.2-4), and nobody waits for that."""
    gateway = made("hash-topic")
    members = [member(gateway, f"m{i}", qos) for i in range(3)]
    publish(gateway, range(48), qos)
    lost = by_topic(take(members[0]))
    for peer in members[1:]:
        acknowledge(peer, take(peer))
    members[0].drop()
    publish(gateway, range(48, 96), qos)
    got: dict[str, list[int]] = {}
    for peer in members[1:]:
        got |= by_topic(take(peer))
    assert set(lost) <= set(got)
    for topic, numbers in lost.items():
        later = list(range(48 + TOPICS.index(topic), 96, 16))
        assert got[topic] == (numbers + later if qos == 1 else later)
    again = member(gateway, "m0", qos)
    assert by_topic(take(again)) == (lost if qos == 2 else {})


def test_a_member_that_is_taken_over_keeps_its_topics(made: Make) -> None:
    gateway = made("hash-topic")
    members = [member(gateway, f"m{i}", 1) for i in range(3)]
    publish(gateway, range(32), 1)
    theirs = set(by_topic(take(members[0])))
    fresh = member(gateway, "m0", 1)
    assert members[0].closed
    publish(gateway, range(32, 64), 1)
    got = by_topic(take(fresh))
    # Until the others have acknowledged it, what was given to them meanwhile keeps its topic there.
    for peer in members[1:]:
        acknowledge(peer, take(peer))
    publish(gateway, range(64, 96), 1)
    got |= by_topic(take(fresh))
    assert theirs == set(got)


def test_a_member_whose_window_is_full_holds_up_its_own_topics_only(made: Make) -> None:
    gateway = made("hash-topic")
    slow = member(gateway, "m0", 1, props=EXPIRY + b"\x21\0\x01")
    quick = member(gateway, "m1", 1)
    publish(gateway, range(160), 1)
    (one,) = take(slow)
    theirs = by_topic(take(quick))
    waits = [n for n in range(160) if TOPICS[n % 16] not in theirs]
    assert all(numbers == list(range(TOPICS.index(t), 160, 16)) for t, numbers in theirs.items())
    got = []
    while one is not None:
        got.append(one)
        acknowledge(slow, [one])
        one = next(iter(take(slow)), None)
    assert sorted(int.from_bytes(m.payload, "big") for m in got) == waits
    assert all(numbers == sorted(numbers) for numbers in by_topic(got).values())
    assert take(quick) == []


@pytest.mark.parametrize("strategy", ["hash-topic", "hash-clientid"])
@pytest.mark.parametrize("qos", [1, 2])
def test_the_choice_is_the_same_after_a_restart(made: Make, strategy: str, qos: int) -> None:
    gateway = made(strategy)
    for i in range(3):
        member(gateway, f"m{i}", qos)
    for i in range(8):
        publish(gateway, range(i * 16, i * 16 + 16), qos, f"p{i}")
    before = []
    for i in range(3):
        peer = member(gateway, f"m{i}", qos)  # takes over
        before.append(take(peer))
        acknowledge(peer, before[-1])
        assert not take(peer)
    publish_again = [f"p{i}" for i in range(8)]
    gateway = gateway.restart()
    members = [member(gateway, f"m{i}", qos) for i in range(3)]
    for i, client_id in enumerate(publish_again):
        publish(gateway, range(i * 16, i * 16 + 16), qos, client_id)
    after = [take(peer) for peer in members]
    for old, new in zip(before, after, strict=True):
        key = (lambda m: m.topic) if strategy == "hash-topic" else (lambda m: m.payload[1] // 16)
        assert {key(m) for m in new} and {key(m) for m in new} == {key(m) for m in old}
    gateway.stop()


def test_qos_2_messages_claimed_after_a_restart_hold_up_nobody_else(made: Make) -> None:
    gateway = made("hash-topic")
    members = [member(gateway, f"m{i}", 2) for i in range(2)]
    publish(gateway, range(16), 2)
    held = [by_topic(take(peer)) for peer in members]
    gateway = gateway.restart()
    one = member(gateway, "m1", 2)  # it gets all topics now; the other one, away, has its sixteen or so still
    assert by_topic(take(one)) == held[1]
    publish(gateway, range(16, 32), 2)
    assert set(by_topic(take(one))) == set(TOPICS)
    assert by_topic(take(member(gateway, "m0", 2))) == held[0]
    gateway.stop()


def test_publishers_are_named_in_records_while_a_group_asks_for_it(made: Make) -> None:
    gateway = made("hash-clientid")
    assert not gateway.log.appender.keeps_origins
    peer = member(gateway, "m0", 0)
    assert gateway.log.appender.keeps_origins
    peer.send(f.unsubscribe(7, "$share/g/t/#", version=5))
    assert not gateway.log.appender.keeps_origins


def test_sessions_with_the_same_number_by_chance_are_told_apart(made: Make) -> None:
    alike = "client21157", "client72357"
    assert number_of("/", alike[0]) == number_of("/", alike[1])
    gateway = made("hash-topic")
    mine, other = (gateway.connect(client_id, 5) for client_id in alike)
    mine.subscribe(("x", 0 | 4))  # no local
    other.publish("x", b"b's")
    mine.publish("x", b"a's")
    assert [m.payload for m in mine.publishes()] == [b"b's"]


def test_a_client_id_has_the_same_number_in_every_run() -> None:
    assert number_of("/", "client") == number_of("/", "client") != number_of("/", "client2")
    assert number_of("/", "client") != number_of("v", "client")
    for client_id in ("a", "client", "ü" * 60, "x" * 200):
        key = (1).to_bytes(2, "little") + b"/" + client_id.encode()
        assert number_of("/", client_id).to_bytes(4, "big") == blake2b(key, digest_size=4).digest()
