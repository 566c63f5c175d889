"""One consumer from look to look: when it is slow, and since when."""

from __future__ import annotations

from typing import Any, cast

from penstock.protocols.http.management.resources.slow_consumers import Watch
from penstock.protocols.net.connection_info import WindowInfo


def _window(held: int = 2, *, most: int = 2, settled: int = 1, got: int = 2) -> WindowInfo:
    return WindowInfo("c", 1, cast("Any", None), held, most, 0 < most <= held, settled, got)


def test_a_full_consumer_that_gets_nothing_while_messages_wait_is_stuck() -> None:
    watch = Watch(_window(), 5, 10.0)
    assert watch.look(_window(), 5, 11.0) is None
    assert watch.look(_window(), 5, 12.5) == ("stuck", 2.5)
    assert watch.look(_window(), 9, 20.0) == ("stuck", 10.0)
    # It settled one and got another.
    assert watch.look(_window(settled=2, got=3), 8, 21.0) == ("behind", 11.0)
    assert watch.look(_window(settled=2, got=3), 0, 30.0) is None, "nothing waits"


def test_one_that_settles_out_of_order_is_not_stuck() -> None:
    watch = Watch(_window(), 5, 10.0)
    assert watch.look(_window(got=3), 4, 13.0) is None
    assert watch.look(_window(got=4), 3, 16.0) is None


def test_one_that_is_always_full_is_behind_unless_the_backlog_shrinks() -> None:
    looks = [(_window(settled=at, got=at + 2), 10.0 + 3 * at) for at in range(1, 5)]
    grows, shrinks = Watch(_window(), 50, 10.0), Watch(_window(), 50, 10.0)
    assert [grows.look(window, 60, now) for window, now in looks][-1] == ("behind", 12.0)
    assert [shrinks.look(window, 40, now) for window, now in looks] == [None] * 4


def test_one_that_holds_messages_for_a_minute_is_listed_whatever_it_may_have() -> None:
    watch = Watch(_window(7, most=0), 0, 10.0)
    assert watch.look(_window(7, most=0), 0, 69.0) is None
    assert watch.look(_window(8, most=0, got=3), 0, 71.0) == ("unacknowledged", 61.0), "it got one more"
    assert watch.look(_window(7, most=0, settled=2, got=3), 0, 72.0) is None
