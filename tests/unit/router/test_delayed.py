"""The router's promises for delayed messages, from any scheduler."""

from __future__ import annotations

import pytest

from penstock.router.authorization.identity import Identity
from penstock.router.names import ENC_AMQP091, join_key_block
from tests.unit.router.conftest import World

KEY = join_key_block("", "q")


def _schedule(world: World, after_s: float, body: bytes = b"body") -> tuple[int, int]:
    """When it is due, and its LSN."""
    due_ms = int((world.clock.now + after_s) * 1000)
    return due_ms, world.broker.delayed.schedule("/", due_ms, ENC_AMQP091, KEY, b"", body)


def _pass(world: World, seconds: float) -> None:
    world.clock.now += seconds
    world.loop.advance(seconds)


def _declare(world: World) -> None:
    world.vhost.declare_queue("q", world.actor, durable=True)
    world.loop.settle()


def test_one_that_is_due_sooner_than_those_that_wait_is_published_sooner(world: World) -> None:
    _declare(world)
    _schedule(world, 0.9)
    _schedule(world, 0.3)
    world.loop.settle()
    _pass(world, 0.35)
    assert world.broker.delayed.published == 1


def test_schedules_and_cancellations_are_written_in_this_turn(world: World) -> None:
    _declare(world)
    due_ms, lsn = _schedule(world, 5)
    world.loop.settle()
    assert world.log.written_lsn >= lsn
    assert world.broker.delayed.cancel(due_ms, lsn)
    world.loop.settle()
    assert world.log.written_lsn == world.log.appender.next_lsn - 1 > lsn


def test_permission_elsewhere_cancels_nothing_here(world: World) -> None:
    _declare(world)
    due_ms, lsn = _schedule(world, 5)
    world.loop.settle()
    told: list[bool] = []
    delayed = world.broker.delayed
    for vhost, key in (("/", join_key_block("", "other")), ("other", KEY)):
        delayed.cancel_published(vhost, key, due_ms, lsn, told.append)
    delayed.cancel_published("/", KEY, due_ms + 1, lsn, told.append)
    assert told == [False, False, False]
    delayed.cancel_published("/", KEY, due_ms, lsn, told.append)
    assert told[3:] == [True]
    _pass(world, 6)
    assert (delayed.published, delayed.statistics()["delayed"]) == (0, 0)


def test_a_user_without_permission_cancels_nothing_by_name(world: World) -> None:
    _declare(world)
    due_ms = int((world.clock.now + 5) * 1000)
    delayed = world.broker.delayed
    delayed.schedule("/", due_ms, ENC_AMQP091, KEY, b"", b"body", name=b"n")
    world.loop.settle()
    assert not delayed.cancel_named(world.vhost, Identity("eve"), b"n")
    assert delayed.cancel_named(world.vhost, world.guest, b"n")


@pytest.mark.parametrize("at", ["put", "delete"])
def test_a_due_message_is_published_once_when_its_progress_cannot_be_stored(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    _declare(world)
    _schedule(world, 5, b"first")
    world.loop.settle()
    _pass(world, 6)
    delayed, log = world.broker.delayed, world.log
    real, faults = getattr(log.tables, at), [RuntimeError("a fault of this test")] * 2

    def fails(table: str, *arguments: bytes) -> int:
        if faults and (table == "delay" or at == "delete"):
            raise faults.pop()
        return int(real(table, *arguments))

    monkeypatch.setattr(log.tables, at, fails)
    # Due before what was published already: they have rows of their own, which are deleted.
    for i in range(3):
        _schedule(world, -3, b"%d" % i)
    _schedule(world, 0, b"last")
    for _ in range(10):
        _pass(world, 1)
    assert faults == [] and "a fault of this test" in caplog.text
    assert (delayed.published, delayed.dropped, log.delays.waiting) == (5, 0, 0)
    assert world.vhost.queues["q"].queue.ready_count == 5
    assert log.delays.next_due() is None and not log.tables.keys("delay.late")
    _schedule(world, 1, b"after")
    _pass(world, 2)
    assert delayed.published == 6
