"""Leases keep segments from deletion and from being rewritten, for their time and up to their bound."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.log_core.log import Log
from penstock.log_core.maintenance.leases import Leases
from tests.support.logs import KIB, durable_feed, fill, keep_house, open_log

NOBODY = (1 << 64) - 1


@pytest.fixture
def now() -> list[float]:
    return [1_000.0]


@pytest.fixture
def log(tmp_path: Path, now: list[float]) -> Iterator[Log]:
    log = open_log(tmp_path, clock=lambda: now[0], checkpoint_bytes=64 * KIB)
    yield log
    log.close_sync()


def tended(log: Log) -> int:
    """Let the log delete what it may; its first LSN."""
    log.low_water = lambda: NOBODY
    for _ in range(5):
        keep_house(log)
    first: int = log.statistics()["first_lsn"]
    return first


def tend_until(log: Log, condition: Callable[[int], bool]) -> int:
    """The same, until the first LSN is as it must be: deleting takes its time, in a thread."""
    ends = time.monotonic() + 60
    while not condition(first := tended(log)):
        assert time.monotonic() < ends, log.statistics()
    return first


def test_leased_records_are_kept_until_the_lease_is_released(log: Log) -> None:
    feed = durable_feed(log)
    lsns = fill(log, feed, 300 * KIB)
    assert log.leases.acquire("reader", "guest", lsns[10], 60)
    assert tended(log) <= lsns[10]
    log.leases.acquire("reader", "guest", lsns[-1], 60)
    moved = tend_until(log, lambda first: first > lsns[10])
    assert log.leases.release("reader")
    fill(log, feed, 300 * KIB)
    tend_until(log, lambda first: first > moved)
    assert not log.leases.release("reader")


def test_a_lease_that_is_not_renewed_ends(log: Log, now: list[float]) -> None:
    lsns = fill(log, durable_feed(log), 300 * KIB)
    log.leases.acquire("reader", "guest", lsns[0], 60)
    assert tended(log) <= lsns[0]
    now[0] += 59
    log.leases.acquire("reader", "guest", lsns[0], 60)
    now[0] += 59
    assert tended(log) <= lsns[0]
    now[0] += 2
    tend_until(log, lambda first: first > lsns[0])
    assert list(log.leases) == []


def test_leases_keep_so_many_bytes_at_most(log: Log) -> None:
    log.options = dataclasses.replace(log.options, lease_bytes=150 * KIB)
    feed = durable_feed(log)
    lsns = fill(log, feed, 600 * KIB)
    log.leases.acquire("reader", "guest", lsns[0], 60)

    def kept() -> int:
        return sum(segment.end for segment in log._segments.live[:-1])

    def is_bounded(first: int) -> bool:
        if first > lsns[0] and kept() <= 150 * KIB:
            return True
        # Only what two checkpoints cover is deleted, and those come as the log grows.
        fill(log, feed, 32 * KIB)
        return False

    tend_until(log, is_bounded)
    assert 64 * KIB < kept()


def test_a_held_segment_is_not_rewritten(log: Log) -> None:
    feed = durable_feed(log)
    lsns = fill(log, feed, 300 * KIB)
    log.mark_needs = lambda needs, done: done()
    log.leases.acquire("reader", "guest", lsns[0], 60)
    log.low_water = lambda: 0
    for _ in range(10):
        keep_house(log)
    assert log.statistics()["segments_sealed"] == 0
    log.leases.release("reader")
    while not log.statistics()["segments_sealed"]:
        keep_house(log)


def test_there_are_only_so_many(now: list[float]) -> None:
    leases = Leases(lambda: now[0])
    assert all(leases.acquire(f"r{index}", "u", 1, 10) for index in range(1000))
    assert not leases.acquire("another", "u", 1, 10)
    assert leases.acquire("r7", "u", 2, 20), "renewing goes on"
    now[0] += 11
    assert leases.acquire("another", "u", 1, 10)
    assert [hold.name for hold in leases] == ["another", "r7"]
