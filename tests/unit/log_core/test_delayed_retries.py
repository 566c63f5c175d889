"""Delayed records that are due while the disk does not answer for them, or that are damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.delayed import retries as unread
from penstock.log_core.delayed.delays import DueRecord
from penstock.log_core.log import Log
from penstock.log_core.reading import reader as reader_module
from penstock.log_core.segments.segment import Segment
from tests.support.logs import (
    BROKEN,
    KIB,
    durable_feed,
    fill,
    held_readers,
    keep_house,
    open_log,
    settle,
    wait,
)

DUE_IN_MS = 1000


class Disk:
    """Reads of some segments of a log fail while they are in `broken`."""

    def __init__(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken: set[int] = set()
        real: Callable[..., Any] = log.reader.read

        def read(segment: Segment, *arguments: Any) -> Any:
            if segment.number in self.broken:
                raise BROKEN
            return real(segment, *arguments)

        monkeypatch.setattr(log.reader, "read", read)


class World:
    """Delayed records `no 0`, `no 1`, ..., each in a segment of its own that is no longer in memory."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.path = path
        self.monkeypatch = monkeypatch
        self.log = open_log(path)
        self.due = self.log.wall_ms() + DUE_IN_MS
        self.now = self.due
        feed = durable_feed(self.log)
        self.places = []
        for i in range(count):
            self.places.append(self.log.delays.add(self.due, b"k", b"", b"no %d" % i, flags=PERSISTENT))
            self.log.flush()
            settle(self.log)
            self.log.file_full()
        fill(self.log, feed, 200 * KIB)
        settle(self.log)
        self.disk = Disk(self.log, monkeypatch)
        self.published: list[bytes] = []

    def segment(self, place: int) -> Segment:
        found = self.log.segment_of(place)
        assert found is not None
        return found

    def take(self) -> list[DueRecord]:
        called: list[bool] = []
        while True:
            taken = self.log.delays.take(self.now, 100, 1 << 20, lambda: called.append(True))
            if taken or not self.log.delays.reading:
                return taken
            wait(self.log, lambda: bool(called))
            called.clear()

    def publish_due(self) -> list[bytes]:
        """Publish the messages that are due now."""
        came: list[bytes] = []
        while taken := self.take():
            with self.log.unit():
                came += [one.record.body for one in taken if one.record is not None]
                self.log.delays.done(taken)
            self.log.flush()
        self.published += came
        return came

    def reopen(self) -> None:
        self.log.close_sync()
        self.log = open_log(self.path)
        self.disk = Disk(self.log, self.monkeypatch)


def test_one_that_cannot_be_read_stays_and_the_others_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, monkeypatch, 3)
    world.disk.broken = {world.segment(world.places[1]).number}
    assert world.publish_due() == [b"no 0", b"no 2"]
    assert len(world.log.delays.retries) == world.log.delays.waiting == 1
    tried, waits = world.now, []
    for _ in range(8):
        again = world.log.delays.next_due()
        assert again is not None
        waits.append((again - tried) // 1000)
        world.now = again - 1
        assert world.publish_due() == [] and world.log.delays.next_due() == again
        world.now = tried = again
        assert world.publish_due() == []
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert caplog.text.count("cannot be read now: it stays") == 9, "one line for each time"
    assert caplog.text.count("cannot be read now: Input/output error") == 1
    assert len(world.log.damages) == 1, "the health check has it"
    world.disk.broken.clear()
    world.now += 60_000
    assert world.publish_due() == [b"no 1"]
    assert "could not be read came" in caplog.text
    statistics = world.log.statistics()
    assert (statistics["delayed"], statistics["delayed_retrying"], statistics["delayed_lost"]) == (0, 0, 0)
    assert world.log.delays.next_due() is None and not world.log.tables.keys("delay.late")
    world.reopen()
    assert world.publish_due() == []
    world.log.close_sync()


def test_a_restart_knows_it_and_the_log_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, 2)
    world.disk.broken = {world.segment(world.places[0]).number}
    assert world.publish_due() == [b"no 1"]
    world.log.low_water = lambda: world.log.appender.next_lsn
    path = world.segment(world.places[0]).path
    keep_house(world.log)
    assert path.exists()
    world.reopen()
    world.disk.broken = {world.segment(world.places[0]).number}
    assert world.publish_due() == [] and world.log.delays.waiting == 1
    world.reopen()
    assert world.publish_due() == [b"no 0"]
    assert world.publish_due() == []
    world.reopen()
    assert world.publish_due() == []
    world.log.close_sync()


def test_one_that_cannot_be_read_can_be_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, 2)
    world.disk.broken = {world.segment(world.places[0]).number}
    assert world.publish_due() == [b"no 1"]
    assert world.log.delays.cancel(world.due, world.places[0])
    assert not world.log.delays.cancel(world.due, world.places[0])
    world.now += 1000
    assert world.publish_due() == []
    assert len(world.log.delays.retries) == world.log.delays.waiting == 0
    assert not world.log.tables.keys("delay.late") and not world.log.tables.keys("delay.cancelled")
    world.log.close_sync()


def test_of_very_many_the_others_wait_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a disk that answers nothing does not move all that is due into memory."""
    monkeypatch.setattr(unread, "UNREAD_MAX", 2)
    world = World(tmp_path, monkeypatch, 2)
    world.disk.broken = {world.segment(place).number for place in world.places}
    assert world.publish_due() == []
    world.log.delays.add(world.now + 1, b"k", b"", b"later", flags=PERSISTENT)
    world.log.flush()
    world.now += 2
    assert world.publish_due() == [] and world.log.delays.next_due() == world.due + 1000
    world.disk.broken.clear()
    world.now = world.due + 1000
    assert world.publish_due() == [b"no 0", b"no 1", b"later"]
    world.log.close_sync()


def test_a_clock_that_is_set_back_does_not_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, 1)
    world.disk.broken = {world.segment(world.places[0]).number}
    world.now = world.due + 10**9
    assert world.publish_due() == []
    world.disk.broken.clear()
    world.now = world.due
    assert world.publish_due() == [b"no 0"]
    world.log.close_sync()


def test_a_damaged_one_is_lost_and_counted_and_the_others_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, monkeypatch, 3)
    segment = world.segment(world.places[1])
    with segment.path.open("r+b") as file:
        raw = file.read()
        file.seek(raw.index(b"no 1"))
        file.write(b"?")
    assert world.publish_due() == [b"no 0", b"no 2"]
    statistics = world.log.statistics()
    assert (statistics["delayed"], statistics["delayed_retrying"], statistics["delayed_lost"]) == (0, 0, 1)
    assert [damage.path for damage in world.log.damages.found()] == [segment.path]
    assert "1 delayed records are damaged" in caplog.text
    world.reopen()
    assert world.publish_due() == []
    world.log.close_sync()


def test_moving_goes_on_when_the_disk_answers_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, 1)
    segment = world.segment(world.places[0])
    assert segment.indexed
    world.disk.broken = {segment.number}
    mover = world.log.delays.mover
    mover.move(segment)
    wait(world.log, lambda: mover._again is not None)
    mover.look([segment])
    wait(world.log, lambda: mover._again is not None)
    world.disk.broken.clear()
    mover.look([segment])
    wait(world.log, lambda: mover._moving is None)
    assert mover.moved == 1 and segment.delayed_last == (0, 0)
    assert world.publish_due() == [b"no 0"]
    assert world.publish_due() == []
    world.log.close_sync()


def test_an_index_that_cannot_be_read_now_is_read_from_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, 1)
    world.reopen()
    segment = world.segment(world.places[0])
    asked: list[Segment] = []

    def broken(_folder: object, segment: Segment, *_: object) -> bytes:
        asked.append(segment)
        raise BROKEN

    monkeypatch.setattr(reader_module, "entries_behind", broken)
    assert world.publish_due() == [b"no 0"] and asked == [segment]
    assert [damage.path.suffix for damage in world.log.damages.found()] == [".tix"]
    world.log.close_sync()


def find(world: World, place: int) -> tuple[bytes | None, bool]:
    """The result of `find`: the body of the record, and whether the disk answered."""
    told: list[tuple[bytes | None, bool]] = []
    world.log.delays.find(
        world.due, place, lambda record, answered: told.append((record.body if record else None, answered))
    )
    wait(world.log, lambda: bool(told))
    return told[0]


def test_one_is_looked_for_by_a_thread_and_cancelled_without_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch, 3)
    world.reopen()
    assert len(world.log.delays._stored) == 3 and not len(world.log.delays._near)
    told: list[bool] = []
    with held_readers(world.log):
        world.log.delays.find(world.due, world.places[0], lambda record, _: told.append(record is not None))
        assert world.log.delays.cancel(world.due, world.places[1])
        assert not world.log.delays.cancel(world.due, world.places[1])
        assert told == []
    wait(world.log, lambda: bool(told))
    assert told == [True]
    assert find(world, world.places[1]) == (None, True)
    assert find(world, world.places[2]) == (b"no 2", True)
    assert find(world, world.places[2] + 10**6) == (None, True)
    world.disk.broken = {world.segment(world.places[2]).number}
    assert find(world, world.places[2]) == (None, False)
    monkeypatch.setattr(reader_module, "entries_behind", fails)
    monkeypatch.setattr(reader_module, "scan_closed", fails)
    assert find(world, world.places[2]) == (None, False)
    monkeypatch.undo()
    assert world.publish_due() == [b"no 0", b"no 2"]
    world.log.close_sync()


def fails(*_: object, **__: object) -> None:
    raise BROKEN
