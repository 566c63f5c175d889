"""Groups without a front end: who may have what of a key, and how another consumer takes over."""

from __future__ import annotations

import itertools
from array import array

import pytest

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.feeds._feed import Feed
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.cursor._keys import slot
from penstock.subscriptions.dispatch import key_shared
from penstock.subscriptions.dispatch.assignment import Range, points_of
from penstock.subscriptions.dispatch.failover import HANDOVER_S
from penstock.subscriptions.dispatch.strategies import Kind, Pause
from penstock.subscriptions.errors import ConsumerRefused
from penstock.subscriptions.queue.group import Group
from tests.support.queues import Consumer, Loop, World


class Taker(Consumer):
    """A consumer of a group, which can be made to fail."""

    def __init__(
        self, queue: Group, name: str, credit: int = 10**9, *, priority: int = 0, fails: str = ""
    ) -> None:
        super().__init__(queue, credit, priority=priority)
        self.name = name
        self.ranges: list[Range] = []
        self.fails = fails
        """The call that raises: "void", "told", "deliver"."""
        self.voided = 0
        self.heard: list[bool] = []

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        assert self.fails != "deliver", "it fails"
        return super().deliver(cursor, first, step)

    def void(self) -> None:
        assert self.fails != "void", "it fails"
        self.voided += 1
        self.held.clear()

    def cancelled(self, reason: str) -> None:
        super().cancelled(reason)
        for seq in self.held:
            self.queue.cursor.requeue(seq)
        self.held.clear()

    def told(self, active: bool) -> None:
        assert self.fails != "told", "it fails"
        self.heard.append(active)

    def slots(self, cursor: Cursor) -> array[int]:
        found = array("H")
        for i in range(len(cursor.records())):
            batch, at = cursor.record(i)
            found.append(slot(batch.record(at).key))
        return found


def _group(world: World, feed: Feed, kind: Kind) -> Group:
    queue = world.queues.create("g", "/", durable=False, kind=kind, cls=Group)
    queue.join(feed)
    assert isinstance(queue, Group)
    return queue


def _send(world: World, feed: Feed, *keys: str) -> list[int]:
    target = world.log.target([feed], False)
    world.tick.schedule()
    found = [
        world.log.appender.append_record(0, target, key.encode(), body=b"body", flags=PERSISTENT)
        for key in keys
    ]
    world.loop.settle()
    return found


# By key


@pytest.mark.parametrize("others", [0, 1])
def test_a_key_waits_for_one_that_is_gone_and_keeps_what_it_has(
    world: World, loop: Loop, feed: Feed, others: int
) -> None:
    """As a session without its connection does. The next consumer has its number, but not its keys."""
    queue = _group(world, feed, Kind.KEY_SHARED)
    stays = [Taker(queue, f"stays {i}", 0) for i in range(others)]
    gone = Taker(queue, "gone")
    for taker in (*stays, gone):
        queue.attach(taker)
    keys = [f"k{i}" for i in range(20)]
    _send(world, feed, *keys)
    had = list(gone.got)
    assert had
    queue.detach(gone)
    heir = Taker(queue, "gone")
    queue.attach(heir)
    later = _send(world, feed, *keys)
    assert heir.got == []
    gone.ack()
    loop.settle()
    assert (
        heir.got == [later[position - had[0]] for position in had]
        if not others
        else len(heir.got) == len(had)
    )


def test_a_key_of_one_that_is_abandoned_waits_for_nobody(world: World, loop: Loop, feed: Feed) -> None:
    queue = _group(world, feed, Kind.KEY_SHARED)
    gone, other = Taker(queue, "gone"), Taker(queue, "other", 0)
    queue.attach(gone)
    _send(world, feed, "k", "k")
    queue.abandon(other)  # it was never there
    queue.attach(other)
    queue.abandon(gone)
    queue.detach(gone)
    other.left = 10
    later = _send(world, feed, "k")
    assert (len(gone.got), other.got) == (2, later)


def test_parked_messages_go_to_the_next_consumer_after_all_have_left(
    world: World, loop: Loop, feed: Feed
) -> None:
    queue = _group(world, feed, Kind.KEY_SHARED)
    full = Taker(queue, "full", 1)
    queue.attach(full)
    sent = _send(world, feed, *["k"] * 5)
    assert full.got == sent[:1]
    queue.detach(full)
    assert queue.cursor.outstanding == 1, "what waited for its key is ready again"
    queue.cursor.requeue(full.held[0])
    heir = Taker(queue, "heir")
    queue.attach(heir)
    loop.settle()
    assert heir.got == sent


def test_no_more_is_parked_than_may_be(
    world: World, loop: Loop, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_shared, "PARKED_MAX", 3)
    queue = _group(world, feed, Kind.KEY_SHARED)
    full, hungry = Taker(queue, "full", 1), Taker(queue, "hungry")
    queue.attach(full)
    sent = _send(world, feed, "k")
    queue.attach(hungry)
    sent += _send(world, feed, *["k"] * 9)
    assert full.got == sent[:1]
    assert queue.cursor.outstanding == 1 + 3
    full.ack()
    loop.settle()
    assert sorted(full.got + hungry.got) == sent[: len(full.got + hungry.got)]
    hungry.ack()
    full.left = 100
    queue.credit_gained()
    loop.settle()
    assert sorted(full.got + hungry.got) == sent


def test_the_slots_of_a_sticky_consumer_that_is_gone_are_free(world: World, loop: Loop, feed: Feed) -> None:
    queue = world.queues.create(
        "g", "/", durable=False, kind=Kind.KEY_SHARED, cls=Group, arguments={"x-sticky": True}
    )
    queue.join(feed)
    assert isinstance(queue, Group)
    gone, stays, heir = (Taker(queue, name) for name in ("gone", "stays", "heir"))
    gone.ranges, stays.ranges, heir.ranges = [(0, 9)], [(10, 65535)], [(0, 9)]
    queue.attach(stays)
    queue.attach(gone)
    with pytest.raises(ConsumerRefused):
        queue.attach(heir)
    queue.detach(gone)
    queue.attach(heir)
    assert queue.consumer_count == 2


def test_it_does_not_matter_who_came_first(world: World, loop: Loop) -> None:
    """Not even for a slot that is a point of two names."""
    points = {name: set(points_of(name)) for name in map(str, range(200))}
    one, other, at = next(
        (a, b, both.pop()) for a, b in itertools.combinations(points, 2) if (both := points[a] & points[b])
    )
    key = next(key for key in map(str, itertools.count()) if slot(key.encode()) == at)
    got = []
    for names in ((one, other), (other, one)):
        feed = world.log.new_feed()
        queue = _group(world, feed, Kind.KEY_SHARED)
        takers = {name: Taker(queue, name) for name in names}
        for taker in takers.values():
            queue.attach(taker)
        _send(world, feed, key)
        got.append(next(name for name, taker in takers.items() if taker.got))
    assert got[0] == got[1]


def test_a_consumer_with_negative_credit_gets_nothing(world: World, loop: Loop, feed: Feed) -> None:
    queue = _group(world, feed, Kind.KEY_SHARED)
    queue.attach(Taker(queue, "a", -1))
    _send(world, feed, "k")
    assert queue.cursor.outstanding == 0


def test_one_whose_output_filled_up_is_asked_for_its_credit_again(
    world: World, loop: Loop, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of other queues: so it learns that it is waited for."""
    group = _group(world, feed, Kind.KEY_SHARED)
    one = Taker(group, "one")
    group.attach(one)
    one.capacity = 2
    asked: list[int] = []

    def credit() -> int:
        asked.append(len(one.got))
        return 0 if one.got else 10

    monkeypatch.setattr(one, "credit", credit)
    positions = _send(world, feed, "a", "b", "c")
    assert (one.got, asked[-1]) == (positions[:2], 2)
    monkeypatch.undo()
    one.capacity = 10
    group.credit_gained()
    loop.settle()
    assert one.got == positions


def test_memory_of_keys_is_freed_without_consumers_and_unsettled_messages(
    world: World, loop: Loop, feed: Feed
) -> None:
    queue = _group(world, feed, Kind.KEY_SHARED)
    taker = Taker(queue, "a")
    queue.attach(taker)
    _send(world, feed, "k")
    sharing = queue._sharing
    assert isinstance(sharing, key_shared.KeyShared)
    taker.ack()
    queue.detach(taker)
    assert sharing._keys is None


def test_one_that_fails_to_take_its_share_leaves_it_to_the_others(
    world: World, loop: Loop, feed: Feed
) -> None:
    queue = _group(world, feed, Kind.KEY_SHARED)
    takers = [
        Taker(queue, name, fails="deliver" if name == "bad" else "") for name in ("bad", "good", "fine")
    ]
    for taker in takers:
        queue.attach(taker)
    sent = _send(world, feed, *map(str, range(60)))
    assert takers[0].reasons == ["the consumer failed"]
    assert sorted(takers[1].got + takers[2].got) == sent
    assert queue.delivered == len(sent)


def test_a_turn_hands_out_no_more_than_its_share(world: World, loop: Loop, feed: Feed) -> None:
    queue = _group(world, feed, Kind.KEY_SHARED)
    taker = Taker(queue, "a", 0)
    queue.attach(taker)
    _send(world, feed, *map(str, range(10)))
    taker.left = 100
    assert (queue.share_out(3), len(taker.got)) == (Pause.MORE, 3)


# Failover


@pytest.mark.parametrize("fails", ["void", "told"])
def test_one_that_fails_while_another_takes_over_is_let_go_of(
    world: World, loop: Loop, feed: Feed, fails: str
) -> None:
    """It does not take part in what it does not know of, and what it had comes to the other one."""
    queue = _group(world, feed, Kind.FAILOVER)
    first, second = Taker(queue, "a"), Taker(queue, "b", priority=1)
    queue.attach(first)
    sent = _send(world, feed, "k", "k")
    assert first.got == sent
    first.fails = fails
    queue.attach(second)
    loop.advance(HANDOVER_S + 0.1)
    assert first.reasons == ["the consumer failed"]
    assert first not in queue.consumers
    loop.settle()
    assert sorted(second.got) == sent
    assert second.heard[-1] is True


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_one_is_active_and_gets_everything_whoever_came_first(
    world: World, loop: Loop, feed: Feed, names: str
) -> None:
    queue = _group(world, feed, Kind.FAILOVER)
    takers = [Taker(queue, name) for name in names]
    for taker in takers:
        queue.attach(taker)
        loop.settle()
    (active,) = [taker for taker in takers if taker.heard[-1:] == [True]]
    sent = _send(world, feed, "k", "k")
    loop.advance(HANDOVER_S + 1)
    assert sorted(position for taker in takers for position in taker.got) == active.got == sent
    assert (active.voided, active.heard[-1]) == (0, True), "the take-over is over"


def test_when_one_fails_as_it_becomes_active_the_next_one_is(world: World, loop: Loop, feed: Feed) -> None:
    queue = _group(world, feed, Kind.FAILOVER)
    others = [Taker(queue, name) for name in "ab"]
    for taker in others:
        queue.attach(taker)
    loop.settle()
    queue.attach(Taker(queue, "deaf", priority=5, fails="told"))
    loop.settle()
    sent = _send(world, feed, "k")
    (active,) = [taker for taker in others if taker.heard[-1]]
    assert active.got == sent


def test_no_timer_is_left_when_it_is_deleted_during_a_take_over(world: World, loop: Loop, feed: Feed) -> None:
    queue = _group(world, feed, Kind.FAILOVER)
    first = Taker(queue, "a")
    queue.attach(first)
    _send(world, feed, "k")
    queue.attach(Taker(queue, "b", priority=1))
    (timer,) = [timer for _, _, timer, call, _ in loop._later if call.__name__ == "_hand_over"]
    queue.delete()
    assert timer.cancelled


def test_one_that_cannot_be_told_that_it_is_active_is_not(world: World, loop: Loop, feed: Feed) -> None:
    queue = _group(world, feed, Kind.FAILOVER)
    deaf, other = Taker(queue, "a", fails="told"), Taker(queue, "b")
    queue.attach(other)
    queue.attach(deaf)
    queue.detach(other)
    assert deaf.reasons == ["the consumer failed"]
    queue.attach(other)
    sent = _send(world, feed, "k")
    assert (deaf.got, other.got, other.heard[-1]) == ([], sent, True)


def test_a_kind_is_changed_while_nobody_consumes(world: World, feed: Feed) -> None:
    queue = _group(world, feed, Kind.FAILOVER)
    queue.become(Kind.SHARED)
    takers = [Taker(queue, name, 1) for name in "ab"]
    for taker in takers:
        queue.attach(taker)
    _send(world, feed, "k", "k")
    assert [len(taker.got) for taker in takers] == [1, 1]
    assert [taker.heard for taker in takers] == [[], []], "none is the active one of several"
