"""The tick: one turn per loop iteration, in its order, and nobody's failure stops the others."""

from __future__ import annotations

import time

import pytest

from penstock.log_core.batch._appender import Appender
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.reading._tail import Cache
from penstock.log_core.wal._unwritten import Unwritten
from penstock.protocols.net._stream import Stream
from penstock.subscriptions.tick._tick import QUICK_EACH_S, WRITE_WITHIN_S, Sink
from penstock.subscriptions.tick.tick import Tick
from tests.support.queues import Loop


class FakeUnwritten(Unwritten):
    def __init__(self, seen: list[str]) -> None:
        super().__init__(Appender(), Cache(0, 0))
        self.seen = seen
        self.dirty: list[Feed] = []

    def anything(self) -> bool:
        return bool(self.dirty)

    def publish(self) -> None:
        self.seen.append("publish")

    def take_dirty(self) -> list[Feed]:
        dirty, self.dirty = self.dirty, []
        return dirty


class FakeLog:
    def __init__(self, seen: list[str]) -> None:
        self.seen = seen
        self.unwritten = FakeUnwritten(seen)
        self.awaited = False

    def flush(self) -> None:
        self.seen.append("flush")


class FakeQueue:
    fast_path = _limits = _getters = None

    def __init__(self, tick: Tick, seen: list[str], name: str, again: int = 0) -> None:
        self.tick, self.seen, self.name, self.again = tick, seen, name, again

    def fed(self, feed: Feed) -> None:
        self.seen.append(f"fed {self.name}")
        self.tick.ready(self)

    def pump(self) -> None:
        self.seen.append(f"pump {self.name}")
        if self.again:
            self.again -= 1
            self.tick.ready(self)


class FakeConnection(Sink):
    def __init__(self, seen: list[str], name: str) -> None:
        self.seen, self.name = seen, name

    def flush(self) -> None:
        self.seen.append(f"send {self.name}")
        if self.name == "broken":
            raise RuntimeError(self.name)


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
def fake_log(seen: list[str]) -> FakeLog:
    return FakeLog(seen)


@pytest.fixture
def tick(fake_log: FakeLog, loop: Loop) -> Tick:
    return Tick(fake_log, loop)


def test_a_turn_writes_wakes_pumps_and_sends_in_this_order(
    tick: Tick, fake_log: FakeLog, loop: Loop, seen: list[str]
) -> None:
    feed = Feed(1)
    feed.waiters[FakeQueue(tick, seen, "a")] = None
    fake_log.unwritten.dirty = [feed]
    tick.dirty_connection(FakeConnection(seen, "c"))
    tick.schedule()
    tick.schedule()
    loop.settle()
    assert seen == ["flush", "fed a", "pump a", "send c"]
    assert feed.waiters == {}


def test_a_lone_read_has_a_turn_of_its_own_and_the_next_ones_share_theirs(
    tick: Tick, loop: Loop, seen: list[str]
) -> None:
    assert tick.begin_read(loop.time())
    tick.ready(FakeQueue(tick, seen, "a"))
    tick.schedule()
    tick.run_alone(Sink())
    assert seen == ["publish", "pump a", "flush"]
    assert loop.turn() == 0, "nothing was scheduled besides"
    assert not tick.begin_read(loop.time()), "the same millisecond"
    tick.ready(FakeQueue(tick, seen, "b"))
    loop.settle()
    assert seen[3:] == ["flush", "pump b"]
    loop.advance(QUICK_EACH_S)
    tick.schedule()
    assert not tick.begin_read(loop.time()), "a turn is coming anyway"
    loop.settle()
    assert tick.begin_read(loop.time())
    tick.run_alone(Sink())


def test_past_the_time_nothing_is_handed_out_and_later_all_of_it_is(
    tick: Tick, fake_log: FakeLog, loop: Loop, seen: list[str]
) -> None:
    now = time.perf_counter()
    tick.serve_until(now - 1)
    assert tick.held
    feed = Feed(1)
    feed.waiters[FakeQueue(tick, seen, "a")] = None
    fake_log.unwritten.dirty = [feed]
    tick.ready(FakeQueue(tick, seen, "b"))
    tick.dirty_connection(FakeConnection(seen, "c"))
    loop.settle()
    assert seen == ["flush", "send c"]
    tick.serve_until(now + 60)
    assert not tick.held
    loop.settle()
    assert seen[2:] == ["flush", "fed a", "pump b", "pump a"]


def test_a_turn_of_its_own_sends_before_it_writes_and_again_what_the_write_made_due(
    tick: Tick, fake_log: FakeLog, loop: Loop, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(1)
    feed.waiters[FakeQueue(tick, seen, "a")] = None
    fake_log.unwritten.dirty = [feed]
    consumer, publisher = FakeConnection(seen, "consumer"), FakeConnection(seen, "publisher")

    def flush() -> None:
        seen.append("flush")
        tick.dirty_connection(publisher)

    monkeypatch.setattr(fake_log, "flush", flush)
    assert tick.begin_read(loop.time())
    tick.dirty_connection(consumer)
    tick.run_alone(Sink())
    assert seen == ["publish", "fed a", "pump a", "send consumer", "flush", "send publisher"]
    assert feed.waiters == {}
    assert loop.turn() == 0


def test_a_lone_message_is_written_even_if_its_consumers_fail(
    tick: Tick, fake_log: FakeLog, loop: Loop, seen: list[str]
) -> None:
    class Broken(FakeQueue):
        def fed(self, feed: Feed) -> None:
            raise RuntimeError("broken queue")

    feed = Feed(1)
    feed.waiters[Broken(tick, seen, "a")] = None
    fake_log.unwritten.dirty = [feed]
    assert tick.begin_read(loop.time())
    with pytest.raises(RuntimeError):
        tick.run_alone(Sink())
    assert seen == ["publish", "flush"]


def test_writes_that_nobody_waits_for_are_grouped_within_milliseconds(
    tick: Tick, fake_log: FakeLog, loop: Loop, seen: list[str]
) -> None:
    feed = Feed(1)
    for _ in range(2):
        fake_log.unwritten.dirty = [feed]
        assert tick.begin_read(loop.time())
        tick.run_alone(Stream(loop, tick, 1))
        loop.advance(QUICK_EACH_S)
    assert seen == ["publish", "publish"]
    fake_log.awaited = True
    fake_log.unwritten.dirty = [feed]
    assert tick.begin_read(loop.time())
    tick.run_alone(Stream(loop, tick, 1))
    assert seen == ["publish", "publish", "publish", "flush"]
    loop.advance(WRITE_WITHIN_S)
    assert seen == ["publish", "publish", "publish", "flush", "flush"]


def test_a_read_that_brought_nothing_leaves_the_turn_to_the_next_one(
    tick: Tick, loop: Loop, seen: list[str]
) -> None:
    assert tick.begin_read(loop.time())
    tick.run_alone(Sink())
    assert seen == []
    assert tick.begin_read(loop.time()), "the acknowledgement did not take its turn"
    tick.ready(FakeQueue(tick, seen, "a"))
    tick.run_alone(Sink())
    assert seen == ["publish", "pump a", "flush"]
    assert not tick.begin_read(loop.time())


def test_answers_of_a_read_that_brought_nothing_else_are_sent(
    tick: Tick, loop: Loop, seen: list[str]
) -> None:
    reader = FakeConnection(seen, "reader")

    class Reader(Sink):
        waits = True

        def answer(self) -> None:
            if self.waits:
                self.waits = False
                tick.dirty_connection(reader)

    assert tick.begin_read(loop.time())
    tick.run_alone(Reader())
    assert seen == ["publish", "send reader", "flush"]


def test_a_reader_whose_answers_fail_ends_no_turns_but_its_own(
    tick: Tick, loop: Loop, seen: list[str]
) -> None:
    class Broken(Sink):
        def answer(self) -> None:
            raise RuntimeError("broken reader")

    assert tick.begin_read(loop.time())
    with pytest.raises(RuntimeError, match="broken reader"):
        tick.run_alone(Broken())
    tick.ready(FakeQueue(tick, seen, "a"))
    loop.settle()
    assert seen == ["flush", "pump a"]


def test_work_that_is_left_makes_a_turn_of_its_own(tick: Tick, loop: Loop, seen: list[str]) -> None:
    tick.ready(FakeQueue(tick, seen, "a", again=2))
    assert loop.turn() == 1
    assert seen == ["flush", "pump a"]
    loop.settle()
    assert seen.count("pump a") == 3


def test_a_failing_queue_or_connection_stops_nobody(
    tick: Tick, loop: Loop, seen: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(FakeQueue):
        def pump(self) -> None:
            raise RuntimeError("broken queue")

    tick.ready(Broken(tick, seen, "b"))
    tick.ready(FakeQueue(tick, seen, "a"))
    tick.dirty_connection(FakeConnection(seen, "broken"))
    tick.dirty_connection(FakeConnection(seen, "c"))
    loop.settle()
    assert seen == ["flush", "pump a", "send c", "send broken"]
    assert "broken queue" in caplog.text


def test_a_connection_is_flushed_once_however_often_it_was_dirtied(
    tick: Tick, loop: Loop, seen: list[str]
) -> None:
    connection = FakeConnection(seen, "c")
    tick.dirty_connection(connection)
    tick.dirty_connection(connection)
    loop.settle()
    assert seen == ["flush", "send c"]


class FakeTransport:
    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.seen.append(f"write {data.decode()}")


class NarrowStream(Stream):
    """Room for one byte, which a queue takes as soon as it is told that there is room again."""

    def __init__(self, loop: Loop, tick: Tick, seen: list[str], queue: FakeQueue) -> None:
        super().__init__(loop, tick, 1)
        self.tick, self.seen, self.queue = tick, seen, queue

    def writable_again(self) -> None:
        self.seen.append("room again")
        if self.queue.name == "broken":
            raise RuntimeError(self.queue.name)
        self.tick.ready(self.queue)


@pytest.mark.parametrize("name", ["a", "broken"])
def test_a_connection_without_capacity_is_told_in_the_next_turn_before_the_queues(
    name: str, tick: Tick, loop: Loop, seen: list[str]
) -> None:
    stream = NarrowStream(loop, tick, seen, FakeQueue(tick, seen, name))
    stream.attach(FakeTransport(seen))
    stream.out.write(b"1")
    assert stream.output_capacity() == 0
    stream.dirty()
    assert loop.turn() == 1
    assert seen == ["flush", "write 1"], "not in the middle of this turn"
    tick.ready(FakeQueue(tick, seen, "b"))
    assert loop.turn() == 1
    assert seen[2:] == ["flush", "room again", "pump b", *(["pump a"] if name == "a" else [])]
    assert loop.settle() == 0, "and once"


def test_periodic_calls_keep_their_pace_and_stop(tick: Tick, loop: Loop) -> None:
    times: list[float] = []
    periodic = tick.every(1.0, lambda: times.append(loop.time()))
    for _ in range(5):
        loop.advance(0.5)
    assert times == [1.0, 2.0]
    loop.advance(3.0)
    assert times == [1.0, 2.0, 5.5]  # what was missed is skipped
    periodic.cancel()
    tick.every(1.0, lambda: times.append(-1.0))
    tick.close()
    loop.advance(5.0)
    assert times == [1.0, 2.0, 5.5]


def test_a_turn_ends_after_its_time_and_the_next_goes_on_with_the_rest(
    fake_log: FakeLog, loop: Loop, seen: list[str]
) -> None:
    now = 0.0

    def clock() -> float:
        return now

    class Slow(FakeQueue):
        def pump(self) -> None:
            nonlocal now
            now += 0.001
            super().pump()

    tick = Tick(fake_log, loop, clock=clock)
    names = [str(i) for i in range(20)]
    for name in names:
        tick.ready(Slow(tick, seen, name))
    loop.turn()
    assert 5 <= len(seen) - 1 <= 8  # looked at the clock after 8
    loop.settle()
    assert [line for line in seen if line != "flush"] == [f"pump {name}" for name in names]
