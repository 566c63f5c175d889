"""Delayed records against a plain model: random delays, cancels, clock changes, stops and crashes.

The log is real, with small segments and an operating system that syncs nothing; a crash is a copy of the
folder as it was after a flush, opened while the old log is thrown away. The model is a list.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.delayed import delays
from penstock.log_core.log import Log
from tests.support.examples import histories
from tests.support.logs import durable_feed, files_made, open_log, settle, wait

SEGMENT = 8 * 1024
DELAYS = st.one_of(st.integers(1, 50), st.integers(1, 5_000), st.just(40), st.integers(10**6, 10**11))


class DelayedRecords(RuleBasedStateMachine):
    """`published` is what came, in order; `model` what must still come: (due, number) -> id."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.runs = 0
        self.now = 1_700_000_000.0
        self.folder = self.root / "0"
        self.log = self.open(self.folder)
        self.feed_id = durable_feed(self.log).id
        self.log.flush()
        self.number = 0
        self.model: dict[int, tuple[int, int]] = {}
        """number -> (due ms, place)"""
        self.fired: list[int] = []
        self.came: dict[int, tuple[int, int]] = {}

    def open(self, folder: Path) -> Log:
        return open_log(folder, clock=lambda: self.now, segment_bytes=SEGMENT, checkpoint_bytes=SEGMENT)

    def teardown(self) -> None:
        self.log.close_sync()
        shutil.rmtree(self.root)

    # Events

    @rule(delay_ms=DELAYS)
    def schedule(self, delay_ms: int) -> None:
        self.add(delay_ms)
        self.log.flush()

    @rule(delays_ms=st.lists(st.integers(1, 100_000), min_size=20, max_size=60))
    def schedule_many(self, delays_ms: list[int]) -> None:
        for delay_ms in delays_ms:
            self.add(delay_ms)
        self.log.flush()

    def add(self, delay_ms: int) -> None:
        due = int(self.now * 1000) + delay_ms
        body = self.number.to_bytes(4, "big") + bytes(self.number % 7 * 40)
        place = self.log.delays.add(due, b"k", b"p", body, flags=PERSISTENT)
        self.model[self.number] = (due, place)
        self.number += 1

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.model:
            number = data.draw(st.sampled_from(sorted(self.model)))
            due, place = self.model[number]
            assert self.log.delays.cancel(due, place)
            assert not self.log.delays.cancel(due, place)
            self.log.flush()
            del self.model[number]

    @rule(number=st.integers(0, 10**6))
    def cancel_what_does_not_wait(self, number: int) -> None:
        told: list[tuple[object, bool]] = []
        due = int(self.now * 1000) + 5
        self.log.delays.find(
            due, number * 2 + 10**9, lambda record, answered: told.append((record, answered))
        )
        wait(self.log, lambda: bool(told))
        assert told == [(None, True)]
        if self.fired and self.fired[-1] not in self.model:
            assert not self.log.delays.cancel(*self.came[self.fired[-1]])

    @rule(seconds=st.one_of(st.floats(0.001, 10), st.floats(10, 200), st.floats(-60, 0), st.just(10.0**8)))
    def clock(self, seconds: float) -> None:
        self.now += seconds

    @rule(count=st.integers(1, 40), nbytes=st.integers(1, 4_000))
    def publish_due(self, count: int, nbytes: int) -> None:
        """One unit; what is expected is the first `count` of the model in the order of (due, place)."""
        taken = self.take(count, nbytes)
        if taken:
            self.apply(taken)
            self.log.flush()

    def take(self, count: int, nbytes: int) -> list[delays.DueRecord]:
        now_ms = int(self.now * 1000)
        called: list[bool] = []
        for _ in range(50):
            called.clear()
            taken = self.log.delays.take(now_ms, count, nbytes, lambda: called.append(True))
            if taken or not (self.log.delays._missing or self.log.delays._refilling):
                return taken
            wait(self.log, lambda: bool(called))
        raise AssertionError("it never gets ready")

    def apply(self, taken: list[delays.DueRecord]) -> None:
        log = self.log
        target = log.target([log.feed(self.feed_id)], True)
        with log.unit():
            for one in taken:
                if not one.cancelled:
                    assert one.record is not None
                    log.appender.append_record(0, target, b"k", b"p", one.record.body, PERSISTENT)
            log.delays.done(taken)
        for one in taken:
            if not one.cancelled:
                assert one.record is not None
                self.note(one, one.record.body)

    def note(self, one: delays.DueRecord, body: bytes) -> None:
        number = int.from_bytes(body[:4], "big")
        assert number in self.model, "twice, or cancelled"
        due, place = self.model.pop(number)
        assert (due, place) == (one.due, one.place)
        assert due <= self.now * 1000, "early"
        assert all(other > (due, place) for other in self.model.values()), "out of order"
        self.fired.append(number)
        self.came[number] = (due, place)

    @rule()
    def fill(self) -> None:
        """Ordinary traffic, so that segments change."""
        log = self.log
        other = log.target([log.feed(self.feed_id)], True)
        for _ in range(10):
            log.appender.append_record(0, other, b"k", b"", bytes(400), 0)
        log.flush()

    @rule()
    def upkeep(self) -> None:
        self.log.low_water = lambda: self.log.appender.next_lsn
        settle(self.log)
        self.log.tend(1 << 40)
        settle(self.log)

    @rule()
    def move(self) -> None:
        """Move segments that only delayed records keep, at any cost."""
        moves, mark = self.log.delays.mover, self.log.delays.mark
        live = self.log._segments.live
        held = [segment for segment in live[:-1] if segment.indexed and segment.delayed_last > mark]
        if held and moves._moving is None:
            moves.move(held[0])
            wait(self.log, lambda: moves._moving is None)
            self.upkeep()
            self.upkeep()

    @rule()
    def restart(self) -> None:
        self.log.close_sync()
        self.log = self.open(self.folder)

    @rule()
    def crash(self) -> None:
        """Flushed records are there; records taken and not done come again."""
        settle(self.log)
        self.crash_with(lambda: None)

    @rule(count=st.integers(1, 20))
    def crash_before_the_unit_is_written(self, count: int) -> None:
        self.log.flush()
        settle(self.log)
        before = dict(self.model), list(self.fired), dict(self.came)

        def publish() -> None:
            taken = self.take(count, 10_000)
            if taken:
                self.apply(taken)

        self.crash_with(publish)
        self.model, self.fired, self.came = before

    def crash_with(self, work: object) -> None:
        assert callable(work)
        self.runs += 1
        copy = self.root / str(self.runs)
        work()
        files_made(self.log)
        for _ in range(2):  # nothing may make or remove files meanwhile
            self.log._upkeep.pool.submit(lambda: None).result()
        shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns("LOCK"))
        self.log.close_sync()
        shutil.rmtree(self.folder)
        self.folder = copy
        self.log = self.open(copy)

    # Invariants

    @invariant()
    def the_next_time_is_not_after_the_first(self) -> None:
        first = min(self.model.values(), default=None)
        if first is not None:
            due = self.log.delays.next_due()
            assert due is not None and due <= first[0]


DelayedRecords.TestCase.settings = settings(
    max_examples=histories(12), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestDelayedRecords = DelayedRecords.TestCase
