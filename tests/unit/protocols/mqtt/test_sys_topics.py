"""The `$SYS` tree: who may read it, what it says, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.protocols.mqtt.auth.acl import AclFile
from penstock.protocols.mqtt.publishing.sys_topics import Counts, SysTopics
from penstock.router.authorization.identity import Actor, Identity
from tests.reference import mqtt_frames as f
from tests.support.mqtt import Gateway, Peer


class Figures:
    """The counters of connections, with values that the test sets."""

    def __init__(self) -> None:
        self.counts = Counts()

    def __call__(self) -> Counts:
        return replace(self.counts)


@pytest.fixture
def figures(gateway: Gateway) -> Figures:
    made = Figures()
    gateway.guest = Identity("guest", frozenset({"administrator"}))
    gateway.clients.sys = SysTopics(gateway.clients, made, gateway.clock)
    return made


def values(peer: Peer) -> dict[str, bytes]:
    return {m.topic.decode().removeprefix("$SYS/broker/"): m.payload for m in peer.publishes()}


def test_a_new_subscriber_gets_the_last_figures_like_retained_messages(
    gateway: Gateway, figures: Figures
) -> None:
    peer = gateway.connect("m", 5)
    assert peer.subscribe(("$SYS/#", 1)) == [1]
    messages = peer.publishes()
    assert all(m.retain and m.qos == 0 for m in messages)
    names = {m.topic.decode() for m in messages}
    assert {"$SYS/broker/version", "$SYS/broker/uptime", "$SYS/broker/clients/connected"} <= names
    assert {f"$SYS/broker/load/messages/received/{n}min" for n in (1, 5, 15)} <= names


def test_only_what_changed_is_published_again(gateway: Gateway, figures: Figures) -> None:
    gateway.clients.sys.update()  # type: ignore[union-attr]
    peer = gateway.connect("m", 4)
    peer.subscribe(("$SYS/broker/+/received", 0), ("$SYS/broker/clients/#", 0))
    before = values(peer)
    assert before["messages/received"] == b"0" and before["clients/connected"] == b"0"
    figures.counts.packets_received = 600
    gateway.clock.now += 10
    gateway.clients.sys.update()  # type: ignore[union-attr]
    messages = peer.publishes()
    assert not any(m.retain for m in messages)
    changed = {m.topic.decode().removeprefix("$SYS/broker/"): m.payload for m in messages}
    assert changed == {
        "messages/received": b"600",
        "clients/connected": b"1",
        "clients/active": b"1",
        "clients/total": b"1",
        "clients/maximum": b"1",
    }
    gateway.clients.sys.update()  # type: ignore[union-attr]
    assert peer.take() == []


def test_loads_are_averages_per_minute(gateway: Gateway, figures: Figures) -> None:
    peer = gateway.connect("m", 4)
    for _ in range(60):
        figures.counts.published += 100
        gateway.clock.now += 10
        gateway.clients.sys.update()  # type: ignore[union-attr]
    peer.subscribe(("$SYS/broker/load/publish/received/+", 0))
    found = values(peer)
    assert found["load/publish/received/1min"] == b"599.97"
    assert float(found["load/publish/received/5min"]) == pytest.approx(600 * (1 - 2.718281828**-2), abs=0.01)
    assert float(found["load/publish/received/15min"]) == pytest.approx(292, abs=1)


def test_sessions_and_subscriptions_are_counted(gateway: Gateway, figures: Figures) -> None:
    peer = gateway.connect("m", 5)
    gateway.connect("away", clean=False).subscribe(("a", 0), ("b", 0))
    gateway.connect("away", clean=False).drop()
    gateway.connect("p").publish("kept", retain=True)
    peer.subscribe(("$share/g/x", 0))
    gateway.clients.sys.update()  # type: ignore[union-attr]
    peer.subscribe(("$SYS/broker/#", 0))
    found = values(peer)
    expected = {"subscriptions/count": b"3", "shared_subscriptions/count": b"1"}
    expected |= {"retained messages/count": b"1", "clients/connected": b"2", "clients/disconnected": b"1"}
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    "topic", ["$SYS/#", "$SYS/broker/uptime", "$share/g/$SYS/#", "$exclusive/$SYS/#", "$replay/-1h/$SYS/#"]
)
def test_others_may_not_read_it(gateway: Gateway, topic: str) -> None:
    assert gateway.connect("m", 5).subscribe((topic, 0)) == [0x87]
    assert gateway.connect("n", 4).subscribe((topic, 0)) == [0x80]


def test_a_line_of_the_acl_file_lets_anybody_read_it(gateway: Gateway) -> None:
    gateway.broker.authorizer.topic_guard = AclFile("topic read $SYS/#\ntopic readwrite #", "acl", "guest")
    peer = gateway.connect("m", 5)
    assert peer.subscribe(("$SYS/#", 0), ("#", 0)) == [0, 0]


def test_publishing_there_is_refused_and_the_connection_stays(gateway: Gateway, figures: Figures) -> None:
    peer = gateway.connect("m", 5)
    answer = peer.publish("$SYS/broker/version", b"mine", qos=1, packet_id=1, retain=True).bytes_taken()
    assert answer == f.ack(f.PUBACK, 1, 0x87)
    assert not peer.closed and len(gateway.vhost.retained) == 0


def test_a_wildcard_for_everything_does_not_match_it(gateway: Gateway, figures: Figures) -> None:
    peer = gateway.connect("m", 5)
    peer.subscribe(("#", 0), ("+/broker/#", 0))
    figures.counts.published = 1
    gateway.clients.sys.update()  # type: ignore[union-attr]
    assert peer.take() == []


EXPORTED = (
    "bytes/received bytes/sent messages/received messages/sent messages/stored publish/bytes/received "
    "publish/bytes/sent publish/messages/dropped publish/messages/received publish/messages/sent uptime "
    "version clients/total clients/maximum clients/connected clients/disconnected clients/active "
    "clients/inactive clients/expired store/messages/count store/messages/bytes subscriptions/count "
    "shared_subscriptions/count retained.messages/count heap/current heap/maximum"
)
"""The topics below $SYS/broker/ that Telegraf, Home Assistant and Prometheus exporters read."""


def test_topics_that_mosquitto_exporters_read_exist(gateway: Gateway, figures: Figures) -> None:
    peer = gateway.connect("m", 4)
    peer.subscribe(("$SYS/#", 0))
    found = values(peer)
    for name in EXPORTED.split():
        assert found[name.replace(".", " ")], name
    assert int(found["heap/current"]) <= int(found["heap/maximum"])


def test_stored_counts_the_messages_in_the_log(gateway: Gateway, figures: Figures) -> None:
    peer = gateway.connect("m", 4)
    before = int(gateway.clients.sys._values["$SYS/broker/messages/stored"])  # type: ignore[union-attr]
    for _ in range(5):
        peer.publish("t", qos=1, packet_id=1)
    gateway.clients.sys.update()  # type: ignore[union-attr]
    assert int(gateway.clients.sys._values["$SYS/broker/messages/stored"]) >= before + 5  # type: ignore[union-attr]


def test_payload_bytes_are_counted_both_ways_in_shared_runs_too(gateway: Gateway) -> None:
    """A message for many sessions is encoded once and copied: each session counts its own bytes."""
    peers = [gateway.connect(f"s{i}", 5) for i in range(6)]
    for peer in peers:
        peer.subscribe(("t", 0))
    publisher = gateway.connect("p", 5)
    sizes = (0, 1, 100, 7)
    publisher.send(b"".join(f.publish("t", b"x" * size, props=b"") for size in sizes))
    for peer in peers:
        assert [len(message.payload) for message in peer.publishes()] == list(sizes)
    for peer in (publisher, *peers):
        counts = Counts()
        peer.session.add_to(counts)
        got = sum(sizes) if peer is publisher else 0
        assert (counts.published_bytes, counts.delivered_bytes) == (got, sum(sizes) - got)


def test_a_binding_to_the_exchange_gets_no_figures(gateway: Gateway, figures: Figures) -> None:
    """Nobody was asked whether whoever bound it may read them."""
    queue = gateway.vhost.declare_queue("q", Actor(gateway.guest, None)).queue
    for key in ("#", "$SYS.#", "$SYS.broker.uptime"):
        gateway.vhost.bind_queue("q", "amq.topic", key, Actor(gateway.guest, None))
    peer = gateway.connect("m", 5)
    peer.subscribe(("$SYS/broker/uptime", 0))
    peer.take()
    gateway.clock.now += 10
    gateway.clients.sys.update()  # type: ignore[union-attr]
    assert values(peer) == {"uptime": b"10 seconds"}
    assert queue.ready_count == 0
