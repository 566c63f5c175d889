"""Take-overs, cumulative acknowledgements, transactions, seeks, delays and pauses, two or three at a time."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from penstock.sdk.message import properties_block
from tests.reference import native_frames as wire
from tests.support.native_kinds import consumer, producer
from tests.support.native_session import PLAIN, Client, World, keyed

ONE_GETS_ALL = pytest.mark.parametrize("kind", ["exclusive", "failover"])
EACH_KIND = pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
SUBSCRIPTION = {"topic": "t", "subscription": "s"}


def events(client: Client) -> list[str]:
    return [event["event"] for event in client.events()]


def state(client: Client) -> dict[str, Any]:
    told: dict[str, Any] = client.request("describe", topic="t")["subscriptions"]["s"]
    return told


def counts(client: Client) -> tuple[int, int, int]:
    """The numbers of waiting, delivered and settled messages."""
    told = state(client)
    return told["backlog"], told["unacked"], told["acknowledged"]


def commit(client: Client, body: bytes, ranges: list[tuple[int, int]]) -> str | None:
    """Publish it to `out`, and acknowledge; the code of the error."""
    client.request("open_producer", handle=3, topic="out", create=True)  # or it is open
    told = client.answer_to(lambda request: wire.transact(request, [(3, [(PLAIN, body)])], [(7, ranges)]))
    code: str | None = told.get("code")
    return code


def published(world: World) -> list[bytes]:
    """The messages in `out`."""
    client = Client(world)
    client.request("read", handle=1, topic="out", start="earliest")
    client.send(wire.credit(1, 1000, 1 << 20))
    found = client.bodies()
    client.lose()
    return found


def later(client: Client, body: bytes, seconds: float) -> None:
    """Publish it for later."""
    due_ms = int((client.world.clock.now + seconds) * 1000)
    items = [(properties_block("k", None, None, True), body)]
    client.send(wire.frame(0x11, 1, struct.pack(">QBBHIq", 0, 2, 0, 0, 1, due_ms) + wire.records(items)))
    client.take()


# Cumulative acknowledgements and transactions


@ONE_GETS_ALL
def test_a_cumulative_acknowledgement_passes_over_what_a_transaction_settled(world: World, kind: str) -> None:
    sender, taker = producer(world), consumer(world, kind, "a")
    sender.produce(1, *(b"%d" % i for i in range(6)))
    assert len(taker.bodies()) == 6
    assert commit(taker, b"x", [(3, 3), (6, 6)]) is None
    assert counts(sender) == (0, 4, 2)
    taker.send(wire.ack(7, [(0, 4)], cumulative=True))
    assert counts(sender) == (0, 1, 5)
    assert commit(taker, b"never", [(4, 5)]) == "stale_delivery"
    assert counts(sender) == (0, 1, 5)
    taker.lose()
    assert consumer(world, kind, "b").bodies() == [b"4"]
    assert published(world) == [b"x"]


@ONE_GETS_ALL
def test_after_a_kill_only_what_was_settled_by_either_is_done(world: World, kind: str) -> None:
    sender, taker = producer(world), consumer(world, kind, "a")
    sender.produce(1, *(b"%d" % i for i in range(6)))
    taker.take()
    assert commit(taker, b"x", [(4, 5)]) is None
    answer = taker.answer_to(lambda request: wire.ack(7, [(0, 2)], request, cumulative=True))
    assert "code" not in answer
    world.restart(clean=False)
    again = consumer(world, kind, "a").delivered()
    assert [(one["body"], one["redelivered"]) for one in again] == [(b"2", True), (b"5", True)]
    assert published(world) == [b"x"]


@pytest.mark.parametrize("by", ["receipt", "transaction"])
def test_promised_settlements_hold_at_any_number_of_ranges(world: World, by: str) -> None:
    """Records that are written later, for acknowledgements that nobody asks about, say it all as well."""
    sender, taker = producer(world), consumer(world, "shared", "a", credit=10_000)
    sender.produce(1, *(b"%d" % i for i in range(5000)))
    assert len(taker.bodies()) == 5000
    others = [(tag, tag) for tag in range(1, 4999, 2)]
    if by == "receipt":
        assert "code" not in taker.answer_to(lambda request: wire.ack(7, others, request))
    else:
        assert commit(taker, b"x", others) is None
    taker.send(wire.ack(7, [(4999, 4999)]))
    world.pass_time(1)
    world.restart(clean=False)
    again = consumer(world, "shared", "a", credit=10_000).delivered()
    assert [one["body"] for one in again] == [b"%d" % i for i in range(1, 5000, 2)]


def test_a_cumulative_acknowledgement_after_a_take_over_settles_nothing_of_the_new_one(world: World) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0", b"1", b"2")
    first.take()
    second = consumer(world, "failover", "b", priority=1)
    world.pass_time(1.1)
    assert second.bodies() == [b"0", b"1", b"2"]
    first.send(wire.ack(7, [(0, 3)], cumulative=True))
    assert counts(sender) == (0, 3, 0)
    second.send(wire.ack(7, [(0, 2)], cumulative=True))
    assert counts(sender) == (0, 1, 2)


def test_a_transaction_may_end_what_holds_up_a_take_over_and_comes_too_late_after_it(world: World) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0", b"1")
    first.take()
    second = consumer(world, "failover", "b", priority=1)
    assert (events(first), second.bodies()) == (["inactive"], [])
    assert commit(first, b"x", [(1, 2)]) is None
    # Nothing is out, so that it does not wait for the second that it has.
    assert (events(second), events(first)[-1:]) == (["active"], ["inactive"])
    sender.produce(1, b"2", b"3")
    assert (first.bodies(), second.bodies()) == ([], [b"2", b"3"])
    third = consumer(world, "failover", "c", priority=2)
    world.pass_time(1.1)
    assert third.bodies() == [b"2", b"3"]
    assert commit(second, b"never", [(1, 1)]) == "stale_delivery"
    assert counts(sender) == (0, 2, 2)
    assert published(world) == [b"x"]


# Seeks


@EACH_KIND
def test_a_transaction_of_before_a_seek_does_nothing_at_all(world: World, kind: str) -> None:
    sender, taker = producer(world), consumer(world, kind, "a")
    sender.produce(1, b"0", b"1", b"2")
    assert taker.bodies() == [b"0", b"1", b"2"]
    told = sender.request("seek", **SUBSCRIPTION, to="earliest")
    assert "position" in told
    again = taker.delivered()
    assert [one["body"] for one in again] == [b"0", b"1", b"2"]
    assert commit(taker, b"never", [(1, 3)]) == "stale_delivery"
    # One that mixes both is stale as a whole.
    assert commit(taker, b"never", [(3, 4)]) == "stale_delivery"
    assert counts(sender)[1] == 3
    assert commit(taker, b"x", [(again[0]["tag"], again[-1]["tag"])]) is None
    assert counts(sender)[:2] == (0, 0)
    assert published(world) == [b"x"]


@EACH_KIND
@pytest.mark.parametrize("to", ["earliest", "latest"])
def test_a_half_message_that_is_committed_after_a_seek_comes_once(world: World, kind: str, to: str) -> None:
    sender, taker = Client(world), consumer(world, kind, "a")
    sender.request("open_producer", handle=1, topic="t", group="g", check_after_ms=86_400_000)
    sender.produce(1, b"0")
    assert taker.bodies() == [b"0"]
    halves = [sender.prepare(1, body)["transaction"] for body in (b"1", b"never")]
    sender.request("seek", **SUBSCRIPTION, to=to)
    assert taker.bodies() == ([b"0"] if to == "earliest" else [])
    assert "position" in sender.request("decide", transaction=halves[0], commit=True)
    assert taker.bodies() == [b"1"]
    sender.request("decide", transaction=halves[1], commit=False)
    sender.request("seek", **SUBSCRIPTION, to="earliest")
    assert taker.bodies() == [b"0", b"1"]


@EACH_KIND
@pytest.mark.parametrize("to", ["earliest", "latest"])
def test_messages_due_after_a_seek_come_on_time_and_once(world: World, kind: str, to: str) -> None:
    sender, taker = producer(world), consumer(world, kind, "a")
    sender.produce(1, b"0")
    later(sender, b"soon", 2)
    later(sender, b"late", 10)
    assert taker.bodies() == [b"0"]
    sender.request("seek", **SUBSCRIPTION, to=to)
    assert taker.bodies() == ([b"0"] if to == "earliest" else [])
    world.pass_time(1)
    assert taker.bodies() == []
    world.pass_time(3)
    assert taker.bodies() == [b"soon"]
    sender.request("seek", **SUBSCRIPTION, to="earliest")
    assert taker.bodies() == [b"0", b"soon"]
    world.restart(clean=False)
    again = consumer(world, kind, "a")
    assert again.bodies() == [b"0", b"soon"]
    world.pass_time(8)
    assert again.bodies() == [b"late"]
    world.pass_time(20)
    assert again.bodies() == []


def test_after_a_seek_a_key_is_held_by_what_came_after_it_alone(world: World) -> None:
    """Earlier deliveries block no key; messages that came again do, until they are settled."""
    sender, first = producer(world), consumer(world, "key_shared", "a")
    keys = [f"k{i}" for i in range(20)]
    sender.send(keyed(1, 0, [(key, key.encode()) for key in keys]))
    assert len(first.take()) > 0
    sender.request("seek", **SUBSCRIPTION, to="earliest")
    again = first.delivered()
    assert [one["body"] for one in again] == [key.encode() for key in keys]
    second = consumer(world, "key_shared", "b")
    sender.send(keyed(1, 20, [(key, key.encode()) for key in keys]))
    assert second.bodies() == [], "their keys are held"
    new = len(first.bodies())
    assert 0 < new < 20, "some keys are the other's now"
    first.send(wire.ack(7, [(again[0]["tag"], again[-1]["tag"] + new)]))
    assert len(second.bodies()) == 20 - new
    first.lose()
    sender.send(keyed(1, 40, [(key, key.encode()) for key in keys]))
    assert len(second.bodies()) == 20


def test_a_seek_during_a_take_over_begins_with_the_new_one(world: World) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0", b"1", b"2")
    first.send(wire.ack(7, [(1, 1)]))
    first.take()
    second = consumer(world, "failover", "b", priority=1)
    sender.request("seek", **SUBSCRIPTION, to="earliest")
    assert (first.bodies(), second.bodies()) == ([], [b"0", b"1", b"2"])
    assert "void" in events(first)
    assert events(second) == ["void", "active"]
    # Neither the timer of the take-over nor what the former one says late changes anything.
    first.send(wire.ack(7, [(0, 3)], cumulative=True) + wire.nack(7, [(1, 3)]))
    world.pass_time(5)
    assert (events(second), counts(sender)[1]) == ([], 3)
    second.send(wire.ack(7, [(0, 3)], cumulative=True))
    assert counts(sender)[:2] == (0, 0)


# Take-overs


@pytest.mark.parametrize("after_s", [0.0, 0.5, 0.99])
def test_the_active_one_is_lost_during_a_take_over(world: World, after_s: float) -> None:
    """Its successor has all that was not settled at once, in order; the timer that ran is nobody's."""
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, *(b"%d" % i for i in range(5)))
    first.take()
    second = consumer(world, "failover", "b", priority=1)
    sender.produce(1, b"5")
    first.send(wire.ack(7, [(2, 3)]) + wire.nack(7, [(5, 5)]))
    world.pass_time(after_s)
    assert (second.bodies(), events(second)) == ([], [])
    first.lose()
    came = second.delivered()
    assert [(one["body"], one["redelivered"]) for one in came] == [
        (b"0", True),
        (b"3", True),
        (b"4", True),
        (b"5", False),
    ]
    assert events(second) == ["active"]
    world.pass_time(5)
    assert (second.bodies(), events(second)) == ([], [])
    second.send(wire.ack(7, [(0, 10)], cumulative=True))
    assert counts(sender) == (0, 0, 6)


def test_a_consumer_that_leaves_during_a_take_over_gets_nothing(world: World) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0", b"1")
    first.take()
    second = consumer(world, "failover", "b", priority=1)
    third = consumer(world, "failover", "c", priority=2)
    world.pass_time(0.5)
    third.lose()
    world.pass_time(0.6)
    assert second.bodies() == [b"0", b"1"]
    assert events(second)[-1] == "active"
    fourth = consumer(world, "failover", "d", priority=3)
    world.pass_time(0.5)
    second.lose()
    assert (fourth.bodies(), events(fourth)[-1]) == ([b"0", b"1"], "active")
    world.pass_time(5)
    assert (first.bodies(), fourth.bodies(), counts(sender)[1]) == ([], [], 2)


def test_a_kill_during_a_take_over_leaves_all_that_was_not_settled_to_who_comes_back(world: World) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0", b"1", b"2")
    first.take()
    consumer(world, "failover", "b", priority=1)
    first.answer_to(lambda request: wire.ack(7, [(2, 2)], request))
    world.pass_time(0.5)
    world.restart(clean=False)
    sender = producer(world)
    sender.produce(1, b"3")
    second = consumer(world, "failover", "b", priority=1)
    came = second.delivered()
    assert [(one["body"], one["redelivered"]) for one in came] == [
        (b"0", True),
        (b"2", True),
        (b"3", False),
    ]
    assert events(second) == ["active"]
    first = consumer(world, "failover", "a")
    world.pass_time(5)
    assert (first.bodies(), "active" in events(first)) == ([], False)


def test_a_successor_is_served_while_all_unsettled_messages_wait_for_a_retry(world: World) -> None:
    """The end of the second that the former one had is what serves it: nothing else happens."""
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0")
    first.take()
    first.send(wire.nack(7, [(1, 1)], delay_ms=60_000))
    second = consumer(world, "failover", "b", priority=1)
    sender.produce(1, b"1")
    assert (first.bodies(), second.bodies()) == ([], [])
    world.pass_time(1.1)
    assert (first.bodies(), second.bodies()) == ([], [b"1"])
    world.pass_time(60)
    assert (first.bodies(), second.bodies()) == ([], [b"0"])


# Pauses


@pytest.mark.parametrize("resumed_s", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("settles", [False, True])
def test_a_pause_during_a_take_over(world: World, resumed_s: float, settles: bool) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0", b"1")
    first.take()
    second = consumer(world, "failover", "b", priority=1)
    assert "code" not in sender.request("pause", **SUBSCRIPTION)
    sender.produce(1, b"2")
    if settles:
        first.send(wire.ack(7, [(0, 2)], cumulative=True))
    world.pass_time(resumed_s)
    assert (first.bodies(), second.bodies()) == ([], [])
    assert "code" not in sender.request("resume", **SUBSCRIPTION)
    world.pass_time(3)
    assert (first.bodies(), second.bodies()) == ([], [b"2"] if settles else [b"0", b"1", b"2"])
    assert events(second)[-1] == "active"


def test_a_paused_subscription_tells_who_is_active_and_goes_on_with_it_after_a_kill(world: World) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    sender.produce(1, b"0", b"1")
    first.take()
    second = consumer(world, "failover", "b", priority=1)
    sender.request("pause", **SUBSCRIPTION)
    world.pass_time(1.1)
    assert (events(second), "void" in events(first)) == (["active"], True)
    world.restart(clean=False)
    second = consumer(world, "failover", "b", priority=1)
    assert (second.bodies(), events(second)) == ([], ["active"])
    first = consumer(world, "failover", "a")
    assert "code" not in first.request("resume", **SUBSCRIPTION)
    assert (first.bodies(), second.bodies()) == ([], [b"0", b"1"])


def test_an_active_consumer_that_is_paused_stays_active_until_another_takes_over(world: World) -> None:
    sender, first = producer(world), consumer(world, "failover", "a")
    first.request("pause", handle=7)
    sender.produce(1, b"0")
    low = consumer(world, "failover", "b", priority=-1)
    assert (first.bodies(), low.bodies(), events(first)[-1]) == ([], [], "active")
    high = consumer(world, "failover", "c", priority=1)
    assert (high.bodies(), events(high)) == ([b"0"], ["active"])
    high.lose()
    assert (first.bodies(), low.bodies()) == ([], [])
    first.request("resume", handle=7)
    assert first.bodies() == [b"0"]


# Limits of deliveries


def test_take_overs_count_as_deliveries_and_the_last_one_leads_to_the_dead_letter_topic(world: World) -> None:
    limits = {"max_deliveries": 3, "dead_letter": "out"}
    sender, taker = producer(world), consumer(world, "failover", "a", **limits)
    sender.produce(1, b"0")
    for turn in range(3):
        (one,) = taker.delivered()
        assert (one["body"], one["given_back"], one["redelivered"]) == (b"0", turn, turn > 0)
        former, taker = taker, consumer(world, "failover", f"b{turn}", priority=turn + 1, **limits)
        world.pass_time(1.1)
        former.lose()
    assert taker.bodies() == []
    assert counts(sender)[:2] == (0, 0)
    assert published(world) == [b"0"]
