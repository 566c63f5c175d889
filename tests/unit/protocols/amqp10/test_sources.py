"""Receivers of named subscriptions, of a queue's past, and of topics and streams from a moment on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Source,
    Target,
)
from penstock.protocols.amqp10.codec.values import Described, Symbol, Timestamp
from penstock.protocols.amqp10.messages import sections as s
from tests.support.amqp10_session import Peer
from tests.support.amqp_session import World

LIMIT_S = 60


def filtered(address: str, durable: int = 0, **filters: Any) -> Source:
    """`replay` is the filter `penstock:replay`."""
    made = {
        Symbol(f"penstock:{name}"): Described(Symbol(f"penstock:{name}"), value)
        for name, value in filters.items()
    }
    return Source(address, durable, filter=made)


def properties(**named: Any) -> dict[Symbol, Any]:
    return {Symbol(f"penstock:{name.replace('_', '-')}"): value for name, value in named.items()}


def send(peer: Peer, address: str, *bodies: bytes, **application: Any) -> None:
    sender = peer.attach(Target(address))
    peer.got()
    for body in bodies:
        head = s.encode_section(s.HEADER, [True])
        if application:
            head += s.encode_section(s.ANNOTATIONS, {Symbol("x-key"): application["key"]})
        peer.transfer(sender, head + s.encode_section(s.DATA, body))
    synced(peer.world)
    peer.session.durable(True)
    assert peer.outcomes() == [Accepted()] * len(bodies)


def synced(world: World) -> None:
    """All that was sent is on disk: readers of streams get no more."""
    world.turn()
    world.log.wait_synced(world.log.appender.next_lsn - 1)


def until(world: World, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        synced(world)


def receive(peer: Peer, source: Source, count: int, **fields: Any) -> list[bytes]:
    """The first message of a new receiver."""
    receiver = peer.attach(source, **fields)
    peer.credit(receiver, count)
    return arrived(peer, count)


def arrived(peer: Peer, count: int) -> list[bytes]:
    found: list[bytes] = []
    until(peer.world, lambda: found.extend(peer.bodies()) or len(found) >= count)  # type: ignore[func-returns-value]
    return found


@pytest.fixture
def stream(peer: Peer) -> str:
    peer.declare("s", queue_type="stream")
    send(peer, "s", b"1", b"2", b"3")
    return "s"


# Named subscriptions


def test_a_subscription_begins_as_its_first_receiver_says(peer: Peer, stream: str) -> None:
    address = f"/subscriptions/{stream}/work"
    assert receive(peer, Source(address), 2, properties=properties(start="earliest")) == [b"1", b"2"]
    found = peer.session.vhost.subscriptions.get(stream, "work")
    assert (found.kind.value, found.durable, found.consumer_count) == ("shared", True, 1)


def test_receivers_of_a_subscription_share_it_and_it_goes_on_where_they_were(
    world: World, peer: Peer, stream: str
) -> None:
    address = f"/subscriptions/{stream}/work"
    assert receive(peer, Source(address), 2, properties=properties(start="earliest")) == [b"1", b"2"]
    peer.send(Disposition(True, 0, 0, True, Accepted()))
    other = Peer(world)
    assert receive(other, Source(address), 1) == [b"3"]
    peer.send(Detach(1, True))
    other.credit(0, 5)
    assert arrived(other, 1) == [b"2"]
    other.send(Disposition(True, 0, 5, True, Accepted()))
    other.send(Detach(0, True))
    send(other, "s", b"4")
    assert receive(other, Source(address), 1) == [b"4"]


@pytest.mark.parametrize("kind", ["exclusive", "failover", "key_shared"])
def test_a_subscription_has_each_kind(world: World, peer: Peer, stream: str, kind: str) -> None:
    address = f"/subscriptions/{stream}/{kind}"
    named = properties(kind=kind, start="earliest", durable=False)
    assert receive(peer, Source(address), 3, properties=named) == [b"1", b"2", b"3"]
    other = Peer(world)
    other.attach(Source(address), properties=named)
    until(world, lambda: True)
    refused = [one.error.condition for one in other.got(Detach)]
    assert refused == (["amqp:resource-locked"] if kind == "exclusive" else [])
    for one in (peer, other):
        one.session.lost()
    assert kind not in world.broker.vhost("/").subscriptions.of(stream)


def test_keys_go_to_one_receiver_each(world: World, peer: Peer) -> None:
    peer.declare("s", queue_type="stream")
    named = properties(kind="key_shared", start="earliest")
    other = Peer(world)
    other.attach(Target("q"))  # its receiver has another name: names decide who gets which keys
    for one in (peer, other):
        one.credit(one.attach(Source("/subscriptions/s/keys"), properties=named), 100)
        until(world, lambda: bool(peer.session.vhost.subscriptions.of("s")))
        one.got()
    producer = Peer(world)
    for key in ("a", "b", "c", "d", "e", "f", "g", "h"):
        send(producer, "s", key.encode(), key.encode(), key=key)
    got: list[list[bytes]] = [[], []]

    def all_came() -> bool:
        for found, one in zip(got, (peer, other), strict=True):
            found += one.bodies()
        return sum(map(len, got)) == 16

    until(world, all_came)
    assert set(got[0]).isdisjoint(got[1])
    assert got[0] and got[1]


@pytest.mark.parametrize(
    ("source", "named", "condition"),
    [
        (Source("/subscriptions/s/n"), properties(kind="other"), "amqp:invalid-field"),
        (Source("/subscriptions/s/n"), properties(start="never"), "amqp:invalid-field"),
        (Source("/subscriptions/s/n"), properties(durable=1), "amqp:invalid-field"),
        (Source("/subscriptions/s/n"), properties(nack_min_ms=-1), "amqp:invalid-field"),
        (Source("/subscriptions/s/n"), properties(max_deliveries=0), "amqp:invalid-field"),
        (Source("/subscriptions/s/n"), properties(dead_letter=1), "amqp:invalid-field"),
        (Source("/subscriptions/s/n"), properties(dead_letter="none"), "amqp:not-found"),
        (Source("/subscriptions/s/n"), properties(unknown=1), "amqp:invalid-field"),
        (Source("/subscriptions/q/n"), None, "amqp:invalid-field"),
        (Source("/subscriptions/none/n"), None, "amqp:not-found"),
        (Source("/subscriptions/s/" + "n" * 201), None, "amqp:invalid-field"),
        (filtered("/subscriptions/s/n", replay="-1h"), None, "amqp:not-implemented"),
        (filtered("s", replay="-1h"), None, "amqp:not-implemented"),
        (filtered("q", backfill="-1h"), None, "amqp:not-implemented"),
        (filtered("q", cursor="c"), None, "amqp:not-implemented"),
        (filtered("q", replay="soon"), None, "amqp:invalid-field"),
        (filtered("topic://t", replay="-1h"), None, "amqp:not-implemented"),
        (filtered("topic://t", backfill="soon"), None, "amqp:precondition-failed"),
        (Target("/subscriptions/s/n"), None, "amqp:invalid-field"),
    ],
)
def test_an_impossible_place_is_refused(
    peer: Peer, stream: str, source: Any, named: dict[Symbol, Any] | None, condition: str
) -> None:
    peer.attach(source, properties=named)
    found: list[str] = []

    def refused() -> bool:
        found.extend(one.error.condition for one in peer.got(Detach))
        return bool(found)

    until(peer.world, refused)
    assert found == [condition]


# Moments


def test_a_queue_is_read_again_from_a_moment_on(peer: Peer) -> None:
    send(peer, "q", b"1", b"2")
    assert receive(peer, Source("q"), 2) == [b"1", b"2"]
    peer.send(Disposition(True, 0, 1, True, Accepted()))
    assert peer.ready("q") == 0
    assert receive(peer, filtered("q", replay="-1h"), 2) == [b"1", b"2"]
    send(peer, "q", b"3")
    assert receive(peer, filtered("q", replay=Timestamp(0)), 3) == [b"1", b"2", b"3"]


def test_a_receiver_of_a_topic_gets_what_came_before(peer: Peer) -> None:
    before = peer.attach(Source("topic://a.b"))
    send(peer, "topic://a.b", b"1", b"2")
    peer.send(Detach(before, True))
    assert receive(peer, filtered("topic://a.b", backfill="-1h"), 2) == [b"1", b"2"]


def test_a_durable_subscription_gets_what_came_before_once(world: World, peer: Peer) -> None:
    before = peer.attach(Source("topic://a.b"))
    send(peer, "topic://a.b", b"1", b"2")
    peer.send(Detach(before, True))
    source = filtered("topic://a.b", 2, backfill="-1h")
    handle = 50
    for expected in ([b"1", b"2"], [b"3"]):
        peer.send(Attach("sub", handle, True, source=source, target=Target()))
        peer.credit(handle, 5)
        assert arrived(peer, len(expected)) == expected
        peer.send(Disposition(True, 0, 10, True, Accepted()), Detach(handle, False))
        peer.got()
        handle += 1
        if expected == [b"1", b"2"]:
            send(peer, "topic://a.b", b"3")


def test_a_reader_of_a_stream_goes_on_where_its_name_was(peer: Peer, stream: str) -> None:
    offset = Described(Symbol("rabbitmq:stream-offset-spec"), "first")
    source = filtered(stream, cursor="c")
    source.filter[Symbol("offset")] = offset  # type: ignore[index]
    assert receive(peer, source, 2) == [b"1", b"2"]
    handle = peer._handles - 1
    peer.send(Disposition(True, 0, 0, True, Accepted()), Detach(handle, True))
    peer.got()
    assert receive(peer, filtered(stream, cursor="c"), 2) == [b"2", b"3"]
