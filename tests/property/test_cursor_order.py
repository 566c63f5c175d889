"""A cursor with priorities and a byte limit against a sorted list, over random histories with restarts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.errors import SubscriptionError
from penstock.log_core.batch._appender import Target
from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.feeds._feed import Feed
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.cursor._window import set_ring_kept
from tests.support.examples import histories
from tests.support.memory_log import MemoryLog


@dataclass
class Place:
    """A message, as the model has it."""

    pos: int
    level: int
    size: int
    ends_ms: int | None
    counted: int = 0
    """The bytes that a byte limit counts for it: its size, or 0 when the size was unknown."""
    count: int = 0
    redelivered: bool = False
    written: bool = False


class OrderMachine(RuleBasedStateMachine):
    """Ready places sorted by (level, position); what is out, by its seq."""

    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryLog()
        self.feeds = [Feed(1, self.log), Feed(2, self.log)]
        self.ready: list[Place] = []
        self.out: dict[int, Place] = {}
        self.ring_kept = set_ring_kept(16)

    def teardown(self) -> None:
        set_ring_kept(self.ring_kept)

    @initialize(priority_max=st.sampled_from([0, 1, 3, 255]), sized=st.booleans())
    def begin(self, priority_max: int, sized: bool) -> None:
        self.priority_max, self.sized = priority_max, sized
        self.cursor = self.fresh()
        for feed in self.feeds:
            self.cursor.join(feed)

    def fresh(self) -> Cursor:
        cursor = Cursor(self.log)
        cursor.prioritise(self.priority_max)
        if self.sized:
            cursor.limit_bytes(1000)
        return cursor

    @rule(
        feeds=st.sets(st.integers(0, 1), min_size=1),
        priority=st.sampled_from([0, 1, 2, 3, 4, 200, 255]),
        size=st.integers(0, 50),
        ttl_ms=st.sampled_from([0, 0, 50]),
        n=st.integers(1, 4),
        told=st.booleans(),
    )
    def publish(self, feeds: set[int], priority: int, size: int, ttl_ms: int, n: int, told: bool) -> None:
        target = Target([self.feeds[number] for number in feeds])
        for _ in range(n):
            if told:
                self.cursor.expect(size)
            pos = self.log.appender.append_record(
                0, target, b"key", b"props", b"x" * size, PERSISTENT, priority, ttl_ms=ttl_ms
            )
            level = self.priority_max - min(priority, self.priority_max)
            ends_ms = self.log.ms + ttl_ms if ttl_ms else None
            self.ready.append(Place(pos, level, size, ends_ms, counted=size))

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(ms=st.sampled_from([1, 60]))
    def advance(self, ms: int) -> None:
        self.log.flush()
        self.log.ms += ms

    @rule()
    def gather(self) -> None:
        """The counted bytes equal the sizes that were read."""
        self.log.flush()
        while True:
            self.cursor.gather()
            if not self.load():
                break
        if self.sized:
            assert self.cursor.ready_bytes >= sum(place.counted for place in self.alive())
        else:
            assert self.cursor.ready_bytes == 0

    def load(self) -> bool:
        if self.cursor.cold:
            self.log.load(self.cursor.cold)
            return True
        return False

    def alive(self) -> list[Place]:
        return [place for place in self.ready if place.ends_ms is None or place.ends_ms > self.log.ms]

    @rule(n=st.integers(1, 12))
    def take(self, n: int) -> None:
        got, sizes = [], []
        while True:
            self.cursor.take(n - len(got))
            got += self.cursor.records()
            sizes += self.cursor.sizes()
            if len(got) == n or not self.load():
                break
        known = [place for place in self.alive() if place.pos <= self.log.written_lsn]
        wanted = sorted(known, key=lambda place: (place.level, place.pos))[:n]
        assert [(pos, count, again) for _, pos, _, count, again in got] == [
            (place.pos, place.count, place.redelivered) for place in wanted
        ]
        if self.sized:
            assert sizes == [place.counted for place in wanted]
        for (seq, *_), place in zip(got, wanted, strict=True):
            self.ready.remove(place)
            self.out[seq] = place

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        for seq in data.draw(st.sets(st.sampled_from(sorted(self.out)))) if self.out else ():
            self.cursor.settle(seq)
            del self.out[seq]

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        for seq in data.draw(st.sets(st.sampled_from(sorted(self.out)))) if self.out else ():
            assert self.cursor.requeue(seq)
            place = self.out.pop(seq)
            place.count += 1
            place.redelivered = True
            self.ready.append(place)

    @rule(n=st.integers(1, 6), took=st.integers(0, 3))
    def put_back(self, n: int, took: int) -> None:
        self.take(n)
        taken = [record[0] for record in self.cursor.records()][took:]
        assert self.cursor.put_back(0, 1, took) == len(taken)
        self.ready += [self.out.pop(seq) for seq in taken]

    @rule()
    def purge(self) -> None:
        self.cursor.purge()
        self.ready.clear()
        assert self.cursor.ready_bytes == 0

    @rule(back=st.integers(0, 10))
    def purge_the_oldest(self, back: int) -> None:
        before = max(self.log.appender.next_lsn - back, 1)
        self.cursor.purge(before)
        self.ready = [place for place in self.ready if place.pos >= before]
        self.gather()

    @rule(back=st.integers(0, 10), most=st.integers(1, 4))
    def take_the_oldest(self, back: int, most: int) -> None:
        """Expired messages may be among them, or may have gone when the cursor read them."""
        self.gather()
        before = max(self.log.appender.next_lsn - back, 1)
        looked_at = {place.pos: place for place in self.ready if place.pos <= self.cursor.frontier}
        seqs = self.cursor.take_before(before, most)
        for seq in seqs:
            place = looked_at[self.cursor.position(seq)]
            assert place.pos < before
            self.ready.remove(place)
            self.out[seq] = place
        left = [place for place in self.alive() if place.pos < before and place.pos in looked_at]
        assert len(seqs) == most or not left

    @rule()
    def count_bytes_or_not(self) -> None:
        """A policy comes or goes while nothing is out; what was looked at and left memory counts for 0."""
        self.log.flush()
        if not self.out:
            self.sized = not self.sized
            for place in self.ready:
                gone = place.pos <= self.cursor.frontier and self.log.cache.get(place.pos) is None
                place.counted = 0 if gone else place.size
            self.cursor.limit_bytes(1000 if self.sized else -1)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.log.flush()
        state = self.cursor.state(10**6, clean)
        self.cursor = self.fresh()
        last = self.log.written_lsn
        assert (
            self.cursor.restore(state, {1: self.feeds[0], 2: self.feeds[1]}.get, 0 if clean else last) == []
        )
        for place in self.out.values():
            place.count += clean
            place.redelivered |= clean
        self.ready += self.out.values()
        self.out.clear()
        for place in self.ready:
            place.counted = place.size
        if not clean:
            for place in self.ready:
                place.redelivered |= place.pos <= last

    @invariant()
    def counts_agree(self) -> None:
        assert self.cursor.outstanding == len(self.out)
        assert self.cursor.ready_count() >= len(self.alive())


TestCursorOrder = OrderMachine.TestCase
TestCursorOrder.settings = settings(max_examples=histories(100), stateful_step_count=30, deadline=None)


@given(
    sizes=st.lists(st.integers(0, 300), max_size=40), takes=st.lists(st.tuples(st.booleans(), st.booleans()))
)
@settings(max_examples=histories(100), deadline=None)
def test_bytes_are_exact_when_nothing_expires(sizes: list[int], takes: list[tuple[bool, bool]]) -> None:
    log = MemoryLog()
    feed = Feed(1, log)
    cursor = Cursor(log)
    cursor.limit_bytes(10**6)
    cursor.join(feed)
    target = Target([feed])
    ready: dict[int, int] = {}
    for size in sizes:
        cursor.expect(size)
        ready[log.appender.append_record(0, target, b"k", b"pp", b"x" * size, PERSISTENT)] = size
        assert cursor.ready_bytes == sum(ready.values())
    log.flush()
    out: dict[int, tuple[int, int]] = {}
    for take, settle in takes:
        if take:
            cursor.take(1)
            for seq, pos, *_ in cursor.records():
                out[seq] = (pos, ready.pop(pos))
        elif out:
            seq, (pos, size) = out.popitem()
            if settle:
                cursor.settle(seq)
            else:
                cursor.requeue(seq)
                ready[pos] = size
        assert cursor.ready_bytes == sum(ready.values())
        assert cursor.ready_count() == len(ready)


def test_a_cursor_that_was_used_cannot_be_sorted() -> None:
    log = MemoryLog()
    feed = Feed(1, log)
    cursor = Cursor(log)
    cursor.join(feed)
    log.appender.append_record(0, Target([feed]), body=b"x")
    log.flush()
    cursor.take(1)
    with pytest.raises(SubscriptionError, match="cannot be sorted"):
        cursor.prioritise(3)
