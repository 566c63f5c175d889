"""Which vhosts are over their backlog quota, and when they are looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.router import quotas
from penstock.router.names import join_key_block
from penstock.router.permissions import Permission
from penstock.router.vhost import Vhost
from tests.unit.router.conftest import World

SIZE = 30_000
"""Where in a segment something is, is known by marks each 64 KiB."""


def _vhost(world: World, name: str, *names: str) -> Vhost:
    world.broker.administration.put_vhost(name)
    world.broker.authorizer.set("guest", name, Permission())
    vhost = world.broker.vhost(name)
    for queue in names:
        vhost.declare_queue(queue, world.actor, durable=True)
    return vhost


def _publish(world: World, vhost: Vhost, queue: str, count: int) -> None:
    for _ in range(count):
        vhost.publish(None, 1, join_key_block("", queue), body=bytes(SIZE), flags=2)
        world.log.flush()


def _limit(world: World, vhost: Vhost, quota: int) -> None:
    world.broker.administration.set_vhost_limits(vhost.name, {"max-backlog-bytes": quota})


def test_a_vhost_is_full_above_its_quota_and_not_below_nine_tenths_of_it(world: World) -> None:
    small, other = _vhost(world, "small", "q"), _vhost(world, "other", "q")
    heard: list[frozenset[str]] = []
    world.broker.quotas.on_change.append(heard.append)
    _limit(world, small, 20 * SIZE)
    _publish(world, small, "q", 15)
    world.loop.advance(1.1)
    assert not small.full and heard == []
    _publish(world, small, "q", 10)
    world.loop.advance(1.1)
    assert small.full and not other.full and heard == [{"small"}]
    _publish(world, other, "q", 1)
    # Of 25 messages of the same size 19 are left: less than the quota, and more than nine tenths of it.
    queue = small.queues["q"].queue
    assert queue.cursor.take(6) == 6
    queue.cursor.settle_taken()
    world.loop.advance(1.1)
    assert small.full
    assert queue.cursor.take(4) == 4
    queue.cursor.settle_taken()
    world.loop.advance(1.1)
    assert not small.full and heard == [{"small"}, frozenset()]


def test_a_full_vhost_is_not_full_any_more_without_its_quota_and_when_it_is_gone(world: World) -> None:
    small = _vhost(world, "small", "q")
    _publish(world, small, "q", 10)
    _limit(world, small, 1000)
    world.loop.advance(1.1)
    assert small.full
    world.broker.administration.clear_vhost_limits("small", "max-backlog-bytes")
    assert not small.full
    world.loop.advance(5)
    assert not small.full
    _limit(world, small, 1000)
    world.loop.advance(1.1)
    assert small.full
    world.broker.administration.delete_vhost("small")
    assert world.broker.quotas.full == frozenset()


def test_nothing_is_looked_at_without_a_quota(world: World) -> None:
    small = _vhost(world, "small", "q")
    _publish(world, small, "q", 10)
    world.loop.advance(5)
    assert not world.broker.quotas._looking
    _limit(world, small, 1000)
    assert world.broker.quotas._looking
    world.broker.administration.clear_vhost_limits("small")
    world.loop.advance(2.5)
    assert not world.broker.quotas._looking


def test_the_quota_holds_after_a_restart(world: World) -> None:
    small = _vhost(world, "small", "q")
    _publish(world, small, "q", 10)
    _limit(world, small, 1000)
    world.restart()
    world.loop.advance(1.1)
    assert world.broker.vhost("small").full


def test_many_queues_are_asked_in_many_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "_QUEUES_AT_ONCE", 3)
    small = _vhost(world, "small", *(f"q{number}" for number in range(10)))
    _publish(world, small, "q7", 10)
    _limit(world, small, 1000)
    pauses: list[float] = []
    after = world.tick.after

    def counted(delay_s: float, callback: Callable[[], None]) -> object:
        pauses.append(delay_s)
        return after(delay_s, callback)

    monkeypatch.setattr(world.tick, "after", counted)
    world.loop.advance(1.1)
    assert small.full
    assert pauses.count(0) == 3


def test_above_the_quota_that_refuses_nothing_of_clients_is_appended(world: World) -> None:
    small, other = _vhost(world, "small", "q", "r"), _vhost(world, "other", "q")
    key = join_key_block("", "q")
    for vhost in (small, other):
        world.broker.administration.set_vhost_limits(vhost.name, {"max-backlog-bytes-reject": 10 * SIZE})
    _publish(world, small, "q", 15)
    table = small.publisher(world.guest, 1)
    assert not table.route(key).special
    world.loop.advance(1.1)
    assert small.refuses and not small.full and not other.refuses
    before = world.log.appender.next_lsn
    assert table.route(key).special, "routes that are in use are resolved again"
    assert small.publish(world.guest, 1, key, body=b"x").refused
    assert small.publish(world.guest, 1, join_key_block("amq.fanout", ""), body=b"x").refused
    assert world.log.appender.next_lsn == before
    assert not other.publish(world.guest, 1, key, body=b"x").refused
    assert not small.publish(None, 1, key, body=b"x").refused, "dead letters, for example"
    small.queues["q"].queue.purge()
    world.log.flush()
    world.loop.advance(1.1)
    assert not small.refuses and not small.publish(world.guest, 1, key, body=b"x").refused
