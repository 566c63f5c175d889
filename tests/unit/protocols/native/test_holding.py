"""A consumer's unsettled deliveries over seeks, take-overs, timeouts and transactions; one fault per test."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.protocols.native.options import NativeOptions
from penstock.subscriptions.cursor._keys import KeyShares, slot
from penstock.subscriptions.dispatch import key_shared
from penstock.subscriptions.dispatch.assignment import Ring
from tests.reference import native_frames as wire
from tests.support.native_kinds import consumer, keys_at, producer
from tests.support.native_session import PLAIN, Client, World, keyed

MANY = 1 << 20
KEYS = [f"k{i}" for i in range(60)]


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[World]:
    """A gateway whose consumers hold two messages at most."""
    world = World(tmp_path / "narrow", NativeOptions(max_unacked=2))
    yield world
    world.close()


def described(world: World) -> dict[str, int]:
    client = Client(world)
    told: dict[str, int] = client.request("describe", topic="t")["subscriptions"]["s"]
    client.lose()
    return told


def test_deliveries_made_void_by_a_seek_do_not_count_as_unsettled(narrow: World) -> None:
    sender, taker = producer(narrow), consumer(narrow, "shared", "a")
    sender.produce(1, b"0", b"1", b"2")
    for _ in range(2):
        assert taker.bodies() == [b"0", b"1"]
        sender.request("seek", topic="t", subscription="s", to="earliest")
    assert taker.bodies() == [b"0", b"1"]


def test_a_delivery_dropped_by_a_timeout_frees_its_place(narrow: World) -> None:
    """One that is delivered once only, and goes nowhere then."""
    sender = producer(narrow)
    taker = consumer(narrow, "shared", "a", ack_timeout_ms=1000, max_deliveries=1)
    sender.produce(1, b"0", b"1", b"2", b"3")
    assert taker.bodies() == [b"0", b"1"]
    narrow.pass_time(1.1)
    assert taker.bodies() == [b"2", b"3"]


def test_deliveries_acknowledged_in_a_transaction_free_their_places(narrow: World) -> None:
    sender, taker = producer(narrow), consumer(narrow, "shared", "a")
    sender.produce(1, b"0", b"1", b"2")
    assert taker.bodies() == [b"0", b"1"]
    assert "positions" in taker.answer_to(lambda id: wire.transact(id, [], [(7, [(1, 2)])]))
    assert taker.bodies() == [b"2"]


@pytest.mark.parametrize("how", ["acknowledged", "given back", "waits"])
def test_a_transaction_about_what_is_not_out_any_more_does_nothing(world: World, how: str) -> None:
    sender, taker = producer(world), consumer(world, "shared", "a", credit=2)
    sender.produce(1, b"0", b"1")
    taker.take()
    settling = {
        "acknowledged": wire.ack(7, [(2, 2)]),
        "given back": wire.nack(7, [(2, 2)]),
        "waits": wire.nack(7, [(2, 2)], delay_ms=60_000),
    }
    taker.send(settling[how])
    taker.request("open_producer", handle=8, topic="t")
    told = taker.answer_to(lambda id: wire.transact(id, [(8, [(PLAIN, b"no")])], [(7, [(1, 2)])]))
    assert told["code"] == "stale_delivery"
    assert sender.request("describe", topic="t")["messages"] == 2
    assert described(world)["acknowledged"] == (how == "acknowledged")


def test_a_transaction_does_not_publish_to_what_may_refuse(world: World) -> None:
    client = Client(world)
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    assert "code" not in client.request("declare_queue", queue="small", arguments=limits)
    client.request("open_producer", handle=1, exchange="", routing_key="small")
    client.request("open_producer", handle=2, topic="t", create=True)
    sends = [(2, [(PLAIN, b"no")]), (1, [(PLAIN, b"no")])]
    assert client.answer_to(lambda id: wire.transact(id, sends, []))["code"] == "unsupported"
    assert client.request("describe", topic="t")["messages"] == 0


def test_a_pull_is_over_when_its_handle_is_closed(world: World) -> None:
    producer(world)
    taker = consumer(world, "shared", "a", credit=0)
    taker.send(wire.pull(7, 50, 10, 1, 60_000))
    assert taker.take() == []
    taker.request("close", handle=7)
    assert [kind for kind, _, _ in taker.take()] == [0x25]


def test_limits_hold_after_a_seek(world: World) -> None:
    sender = producer(world)
    sender.request("create_topic", topic="dead")
    taker = consumer(world, "shared", "a", max_deliveries=1, dead_letter="dead")
    sender.produce(1, b"0")
    taker.take()
    sender.request("seek", topic="t", subscription="s", to="earliest")
    ((message),) = taker.delivered()
    taker.send(wire.nack(7, [(message["tag"], message["tag"])]))
    assert taker.bodies() == []
    assert sender.request("describe", topic="dead")["messages"] == 1


# Keys


def test_keys_are_free_after_a_seek(world: World) -> None:
    """Of all of them messages were out at the first one, and some are the second one's by now."""
    sender, first = producer(world), consumer(world, "key_shared", "a")
    sender.send(keyed(1, 0, [(key, f"{key}:0".encode()) for key in KEYS]))
    assert len(first.bodies()) == 60
    second = consumer(world, "key_shared", "b")
    sender.request("seek", topic="t", subscription="s", to="earliest")
    mine, others = keys_at(first), keys_at(second)
    assert others and len(mine) + len(others) == 60


def key_of_the_second(names: list[str]) -> str:
    """A key that is the second consumer's among all of these, and without the first."""
    shares = []
    for some in (names, names[1:]):
        shares.append(KeyShares(lambda: None))
        ring = Ring(shares[-1])
        for name in some:
            ring.add(name, names.index(name) + 1)
    return next(key for key in KEYS if all(one.owner_of(slot(key.encode())) == 2 for one in shares))


def test_unsettled_messages_of_a_lost_consumer_come_before_those_that_waited(world: World) -> None:
    """It waits, too: its new owner has no credit yet, and another one has, so that all was looked at."""
    key = key_of_the_second(["a", "b", "f"])
    sender, first = producer(world), consumer(world, "key_shared", "a", credit=2)
    bodies = [f"{key}:{i}".encode() for i in range(8)]
    sender.send(keyed(1, 0, [(key, body) for body in bodies[:2]]))
    assert first.bodies() == bodies[:2]
    owner, other = consumer(world, "key_shared", "b", credit=0), consumer(world, "key_shared", "f")
    sender.send(keyed(1, 2, [(key, body) for body in bodies[2:]]))
    first.lose()
    came: list[bytes] = []
    while len(came) < len(bodies):
        owner.send(wire.credit(7, 1, MANY))
        (body,) = owner.bodies()
        came.append(body)
    assert (came, other.bodies()) == (bodies, [])


def test_messages_that_waited_for_their_key_stop_counting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as parked, of which there may be so many, nor as out."""
    monkeypatch.setattr(key_shared, "PARKED_MAX", 20)
    sender, taker = producer(world), consumer(world, "key_shared", "a", credit=1)
    for n in range(0, 100, 10):
        sender.send(keyed(1, n, [("k", b"k:%d" % i) for i in range(n, n + 10)]))
        for i in range(n, n + 10):
            (message,) = taker.delivered()
            assert message["body"] == b"k:%d" % i
            taker.send(wire.ack(7, [(message["tag"], message["tag"])]) + wire.credit(7, 1, MANY))
    told = described(world)
    assert (told["unacked"], told["backlog"]) == (0, 0)


def test_a_key_of_bytes_is_the_key_of_text(world: World) -> None:
    """As headers of other clients have it: a text (S), or a byte array (x)."""
    sender = producer(world)
    takers = [consumer(world, "key_shared", name) for name in "abc"]
    items = []
    for key in (name.encode() for name in KEYS):
        for kind in (b"S", b"x"):
            table = b"\x05x-key" + kind + struct.pack(">I", len(key)) + key
            items.append((b"\x20\0" + struct.pack(">I", len(table)) + table, key))
    sender.send(wire.produce(1, 0, 2, items))
    for taker in takers:
        bodies = taker.bodies()
        assert bodies and all(bodies.count(body) == 2 for body in bodies)
