"""State records: any bytes are refused or taken over, never worse; runs left out are delivered again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log_core.batch._appender import Target
from penstock.log_core.feeds._feed import Feed
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.errors import SubscriptionError
from tests.support.memory_log import MemoryLog


def written(n: int) -> tuple[MemoryLog, Feed]:
    """A log with n records in one feed, at positions 1 to n."""
    log, feed = MemoryLog(), Feed(1)
    for _ in range(n):
        log.appender.append_record(0, Target([feed]), body=b"x")
    log.flush()
    return log, feed


def drained(cursor: Cursor) -> list[int]:
    positions = []
    while cursor.take(1024):
        positions += [record[1] for record in cursor.records()]
    return positions


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_refused_or_give_a_cursor_that_works(data: bytes, versioned: bool) -> None:
    log, feed = written(20)
    cursor = Cursor(log)
    try:
        cursor.restore(b"\x01" + data if versioned else data, lambda number: feed)
    except SubscriptionError:
        return
    assert cursor.ready_count() >= len(set(drained(cursor)) - set(range(1, cursor.mark + 1)))
    cursor.state()


@given(st.data())
def test_a_record_cut_short_is_refused(data: st.DataObject) -> None:
    log, feed = written(20)
    cursor = Cursor(log)
    cursor.join(feed, 1)
    cursor.take(10)
    for seq in (2, 4, 5, 9):
        cursor.settle(seq)
    state = cursor.state()
    cut = data.draw(st.integers(0, len(state) - 1))
    with pytest.raises(SubscriptionError):
        Cursor(log).restore(state[:cut], lambda number: feed)


@given(st.sets(st.integers(1, 40)), st.integers(0, 5))
def test_runs_over_the_limit_are_delivered_again_and_nothing_is_lost(done: set[int], runs_max: int) -> None:
    log, feed = written(40)
    cursor = Cursor(log)
    cursor.join(feed, 1)
    cursor.take(40)
    for seq in done:
        cursor.settle(seq)
    again = Cursor(log)
    again.restore(cursor.state(runs_max), lambda number: feed)
    got = drained(again)
    assert set(range(1, 41)) - done <= set(got)
    assert got == sorted(set(got))
    if runs_max == 0:
        mark = min(set(range(1, 42)) - done) - 1
        assert got == list(range(mark + 1, 41))
