"""The cursor kernel against the plain reference, over random histories with restarts.

Records go to random sets of three feeds; the tail cache is so small that takes meet records that are not
in memory. After every step the kernel's counts equal the reference's.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.log_core.batch._appender import Target
from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.feeds._feed import Feed
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.cursor._window import set_ring_kept
from tests.reference.cursor import Record, ReferenceCursor
from tests.support.examples import histories
from tests.support.memory_log import MemoryLog

feed_numbers = st.integers(0, 2)
tags = st.integers(0, 3)


class CursorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryLog()
        self.feeds = [Feed(number, self.log) for number in (1, 2, 3)]
        self.positions: list[list[int]] = [[], [], []]
        self.records: dict[int, Record] = {}
        self.cursor = Cursor(self.log)
        self.reference = ReferenceCursor(self.records)
        self.seqs: dict[int, int] = {}  # the reference's seq -> the kernel's
        self.restarted = False
        self.ring_kept = set_ring_kept(16)

    def teardown(self) -> None:
        set_ring_kept(self.ring_kept)

    @initialize(number=feed_numbers, tag=tags)
    def first(self, number: int, tag: int) -> None:
        self.join(number, tag, None)

    # Publishing

    @rule(
        numbers=st.sets(feed_numbers, min_size=1),
        n=st.integers(1, 5),
        ttl=st.sampled_from([0, 0, 0, 1, 50, 200]),
        persistent=st.booleans(),
    )
    def push(self, numbers: set[int], n: int, ttl: int, persistent: bool) -> None:
        target = Target([self.feeds[number] for number in numbers])
        for _ in range(n):
            lsn = self.log.appender.append_record(
                0, target, body=b"x" * 100, flags=PERSISTENT if persistent else 0, ttl_ms=ttl
            )
            # A record says 1 for a time to live of 0, which would be none.
            expires = self.log.ms + (ttl if ttl > 1 else 0) if ttl else None
            self.records[lsn] = Record(persistent, self.log.ms, expires)
            for number in numbers:
                self.positions[number].append(lsn)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(ms=st.sampled_from([1, 60]))
    def advance(self, ms: int) -> None:
        self.log.flush()  # a batch has one time, that of its first record
        self.log.ms += ms

    @rule(number=feed_numbers)
    def roll_and_spill(self, number: int) -> None:
        """A new segment; what one feed has in the older ones leaves memory."""
        self.log.roll()
        self.log.spill(self.feeds[number])

    # Memberships

    @rule(number=feed_numbers, tag=tags, back=st.none() | st.integers(0, 30))
    def join(self, number: int, tag: int, back: int | None) -> None:
        next_lsn = self.log.appender.next_lsn
        from_pos = None if back is None else max(1, next_lsn - back)
        self.cursor.join(self.feeds[number], from_pos, tag)
        self.reference.join(self.positions[number], from_pos, tag, next_lsn)

    @rule(number=feed_numbers, tag=tags)
    def leave(self, number: int, tag: int) -> None:
        self.cursor.leave(self.feeds[number], tag)
        self.reference.leave(self.positions[number], tag, self.log.appender.next_lsn)

    @rule()
    def reap(self) -> None:
        before = self.cursor.member_count
        gone = self.cursor.reap()
        assert self.cursor.member_count == before - len(gone)

    # Delivery

    @rule(n=st.integers(1, 12))
    def take(self, n: int) -> None:
        expected = self.reference.take(n, self.log.written_lsn, self.log.ms)
        got: list[tuple[int, int, int, int, bool]] = []
        while True:
            self.cursor.take(n - len(got))
            got += self.cursor.records()
            key = self.cursor.run_key()
            if key is not None:
                feed = self.positions[key[0] - 1]
                assert [record[1] for record in self.cursor.records()] == feed[key[1] : key[1] + key[2]]
            if self.cursor.cold:
                assert self.cursor.cold <= self.log.written_lsn
                self.log.load(self.cursor.cold)
            elif self.cursor.cold_feed is not None:
                self.log.load_feed_now(self.cursor.cold_feed, self.cursor.cold_index)
            else:
                break
        assert [
            (pos, self.cursor.match_tags(match), count, again) for _, pos, match, count, again in got
        ] == [(pos, tags, count, again) for _, pos, tags, count, again in expected]
        for (theirs, *_), (ours, *_) in zip(expected, got, strict=True):
            assert self.seqs.setdefault(theirs, ours) == ours

    @precondition(lambda self: self.reference.outstanding())
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        for seq in data.draw(st.lists(st.sampled_from(self.reference.outstanding()), max_size=6)):
            self.cursor.settle(self.seqs[seq])
            self.reference.settle(seq)

    @precondition(lambda self: self.reference.outstanding())
    @rule(data=st.data(), count=st.integers(0, 30), before=st.integers(0, 3))
    def settle_run(self, data: st.DataObject, count: int, before: int) -> None:
        """Of these some may be settled, given back, or not there yet."""
        first = max(self.seqs[data.draw(st.sampled_from(self.reference.outstanding()))] - before, 1)
        for theirs, ours in self.seqs.items():
            if first <= ours < first + count:
                self.reference.settle(theirs)
        self.cursor.settle_run(first, count)

    @precondition(lambda self: self.reference.outstanding())
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        for seq in data.draw(st.lists(st.sampled_from(self.reference.outstanding()), max_size=6)):
            assert self.cursor.requeue(self.seqs[seq]) == (seq in self.reference.outstanding())
            self.reference.requeue(seq)

    @precondition(lambda self: self.reference.outstanding())
    @rule(data=st.data(), note=st.binary(min_size=1, max_size=5))
    def release(self, data: st.DataObject, note: bytes) -> None:
        """With a note, or without one."""
        for seq in data.draw(st.lists(st.sampled_from(self.reference.outstanding()), max_size=6)):
            if note[0] & 1:
                assert self.cursor.note(self.seqs[seq], note)
                self.reference.note(seq, note)
            assert self.cursor.release(self.seqs[seq]) == (seq in self.reference.outstanding())
            self.reference.release(seq)

    @rule()
    def requeue_all(self) -> None:
        out = self.reference.outstanding()
        assert self.cursor.requeue_all() == len(out)
        for seq in out:
            self.reference.requeue(seq)

    @rule(n=st.integers(10, 40), keep=st.sets(st.integers(0, 40), max_size=3))
    def flow(self, n: int, keep: set[int]) -> None:
        """Many pass, few of them stay: the ring sets stragglers aside."""
        self.push({0}, n, 0, True)
        self.log.flush()
        for _ in range(n):
            self.take(4)
            for seq in self.reference.outstanding():
                if seq not in keep and seq % 7:
                    self.cursor.settle(self.seqs[seq])
                    self.reference.settle(seq)

    @rule(n=st.integers(1, 8), first=st.integers(0, 3), step=st.integers(1, 3), took=st.integers(0, 3))
    def put_back(self, n: int, first: int, step: int, took: int) -> None:
        self.take(n)
        taken = self.cursor.records()
        ours = {mine: theirs for theirs, mine in self.seqs.items()}
        back = [ours[record[0]] for record in taken[first::step][took:]]
        assert self.cursor.put_back(first, step, took) == len(back)
        for seq in back:
            self.reference.put_back(seq)

    @rule(first=st.integers(0, 3), step=st.integers(1, 3))
    def settle_taken(self, first: int, step: int) -> None:
        self.take(5)
        ours = {mine: theirs for theirs, mine in self.seqs.items()}
        for record in self.cursor.records()[first::step]:
            self.reference.settle(ours[record[0]])
        self.cursor.settle_taken(first, step)

    @rule()
    def purge(self) -> None:
        assert self.cursor.purge() == self.reference.purge(self.log.appender.next_lsn)

    @rule(back=st.integers(0, 20))
    def purge_the_oldest(self, back: int) -> None:
        before = max(self.log.appender.next_lsn - back, 1)
        assert self.cursor.purge(before) == self.reference.purge(before)

    @rule(back=st.integers(0, 20))
    def take_the_oldest_of_what_came_back(self, back: int) -> None:
        before = max(self.log.appender.next_lsn - back, 1)
        taken = self.cursor.take_before(before, 1000)
        for ours, theirs in zip(taken, self.reference.take_before(before), strict=True):
            assert self.seqs.setdefault(theirs, ours) == ours

    @rule()
    def skip_transient(self) -> None:
        self.log.flush()
        self.cursor.skip_transient_until = self.log.appender.next_lsn
        self.reference.skip_transient_until = self.log.appender.next_lsn

    @rule(back=st.integers(0, 20))
    def keep_what_was_sent(self, back: int) -> None:
        until = max(self.log.appender.next_lsn - back, 0)
        self.cursor.sent_until = self.reference.sent_until = until

    @rule(ttl_ms=st.sampled_from([-1, -1, 0, 100]))
    def limit_age(self, ttl_ms: int) -> None:
        self.cursor.rules.ttl_ms = self.reference.ttl_ms = ttl_ms

    @rule(awaited=st.booleans())
    def await_more(self, awaited: bool) -> None:
        """A consumer begins to wait, or ends."""
        self.cursor.awaited = self.reference.awaited = awaited

    # Restarts

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.log.flush()
        state = self.cursor.state(10**6, clean)
        last = self.log.written_lsn
        fresh = Cursor(self.log)
        by_id = {feed.id: feed for feed in self.feeds}
        assert fresh.restore(state, by_id.get, 0 if clean else last) == []
        assert fresh.state(10**6) == (state if clean else fresh.state(10**6))
        fresh.skip_transient_until = self.cursor.skip_transient_until
        fresh.sent_until = self.cursor.sent_until
        fresh.rules.ttl_ms = self.cursor.rules.ttl_ms
        self.cursor = fresh
        self.reference = self.reference.restart(clean=clean, last_lsn=last)
        self.seqs.clear()
        self.restarted = True

    @invariant()
    def counts_agree(self) -> None:
        known = {pos for feed in self.positions for pos in feed}
        assert {pos: note for pos in known if (note := self.cursor.note_of(pos))} == self.reference.notes
        assert self.cursor.ready_count() == self.reference.ready_count()
        assert self.cursor.outstanding == len(self.reference.outstanding())
        assert self.cursor.low() <= self.reference.low()
        if not self.restarted:
            assert self.cursor.expired == self.reference.expired
            if self.is_resident():  # after a restart it may be that of a record known to be done
                assert self.cursor.low() == self.reference.low()

    def is_resident(self) -> bool:
        return all(feed.is_resident(index) for feed in self.feeds for index in range(feed.end))


TestCursor = CursorMachine.TestCase
TestCursor.settings = settings(max_examples=histories(100), stateful_step_count=30, deadline=None)
