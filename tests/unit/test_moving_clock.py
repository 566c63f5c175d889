"""The clock of `penstock.testing`: order, what is cancelled, what repeats, what raises."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.moving_clock import MovingClock
from penstock.subscriptions.tick.tick import Periodic


def moving() -> MovingClock:
    clock = MovingClock()
    clock.attach(asyncio.get_running_loop())
    return clock


async def test_due_calls_run_in_the_order_of_their_times() -> None:
    clock, heard = moving(), []
    for delay_s in (3000, 1000, 9000, 2000, 1000.5):
        clock.call_later(delay_s, heard.append, delay_s)
    await clock.advance(999)
    assert heard == []
    await clock.advance(2001)
    assert heard == [1000, 1000.5, 2000, 3000]
    before = clock.time()
    await clock.advance(6000)
    assert heard[-1] == 9000 and clock.time() >= before + 6000


async def test_without_moving_it_is_the_loop_s_clock() -> None:
    clock, called = moving(), asyncio.Event()
    clock.call_later(10_000, lambda: None)
    clock.call_later(0.001, called.set)
    await asyncio.wait_for(called.wait(), 60)
    await clock.advance(9_999.999)
    called.clear()
    clock.call_later(0.001, called.set)  # the rest of a time that was begun before goes by in its time
    await asyncio.wait_for(called.wait(), 60)


async def test_a_call_cancelled_by_one_due_at_the_same_time_does_not_run() -> None:
    clock, heard = moving(), []
    first = clock.call_later(10, heard.append, "first")
    third: Any = None
    clock.call_later(20, lambda: third.cancel())
    third = clock.call_later(30, heard.append, "third")
    first.cancel()
    await clock.advance(100)
    assert heard == []


async def test_calls_scheduled_during_an_advance_run_as_well() -> None:
    clock, heard = moving(), []

    def again(left: int) -> None:
        heard.append(left)
        if left:
            clock.call_later(0, again, left - 1)

    clock.call_later(10, again, 3)
    clock.call_later(10, clock.call_later, 1000, heard.append, "later")
    await clock.advance(10)
    assert heard == [3, 2, 1, 0]
    await clock.advance(1000)
    assert heard[-1] == "later"


async def test_a_periodic_call_runs_once_per_advance_and_continues() -> None:
    clock, heard = moving(), []
    periodic = Periodic(clock, 10.0, lambda: heard.append(clock.time()))
    await clock.advance(3600)
    assert len(heard) == 1
    await clock.advance(10)
    assert len(heard) == 2
    periodic.cancel()
    await clock.advance(3600)
    assert len(heard) == 2


async def test_one_that_raises_is_the_loop_s_matter_and_stops_no_other() -> None:
    clock, heard, told = moving(), [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    clock.call_later(1, lambda: 1 // 0)
    clock.call_later(2, heard.append, "other")
    await clock.advance(5)
    assert heard == ["other"] and [type(one) for one in told] == [ZeroDivisionError]


async def test_in_another_loop_it_goes_on_from_where_it_is() -> None:
    clock, heard = moving(), []
    clock.call_later(10, heard.append, "gone")
    await clock.advance(5)
    before = clock.wall()
    clock.attach(asyncio.get_running_loop())
    await clock.advance(3600)
    assert heard == [] and clock.wall() >= before + 3600
