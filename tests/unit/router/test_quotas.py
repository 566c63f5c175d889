"""Vhosts over their backlog quota, and the times when they are measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.router.authentication.users import AuthOptions
from penstock.router.authorization.permissions import Permission
from penstock.router.broker import BrokerOptions
from penstock.router.limits import backlog_quotas as quotas
from penstock.router.names import join_key_block
from penstock.router.vhost.vhost import Vhost
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.streams.stream import Stream
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
    assert not world.broker.quotas._checking
    _limit(world, small, 1000)
    assert world.broker.quotas._checking
    world.broker.administration.clear_vhost_limits("small")
    world.loop.advance(2.5)
    assert not world.broker.quotas._checking


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


def _evicting(world: World, vhost: Vhost, quota: int) -> None:
    world.broker.administration.set_vhost_limits(vhost.name, {"max-backlog-bytes-evict": quota})


def _bodies(world: World, vhost: Vhost, queue: str, numbers: range) -> None:
    for number in numbers:
        body = str(number).encode().ljust(SIZE)
        vhost.publish(None, 1, join_key_block("", queue), body=body, flags=2)
        world.log.flush()


def _numbers(world: World, queue: Queue) -> list[int]:
    return [int(body) for body in world.read(queue)]


def test_above_the_quota_that_evicts_the_oldest_of_every_queue_goes(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    small, other = _vhost(world, "small", "q", "r", "empty"), _vhost(world, "other", "q")
    _evicting(world, small, 100 * SIZE)
    for at in range(0, 180, 20):
        _bodies(world, small, "q", range(at, at + 10))
        _bodies(world, small, "r", range(at + 10, at + 20))
        _bodies(world, other, "q", range(at, at + 1))
    assert world.broker.quotas.evicted["small"] == 0
    world.loop.advance(1.1)
    queues = [small.queues[name].queue for name in ("q", "r")]
    left = sum(queue.ready_count for queue in queues)
    assert 90 - 35 <= left <= 90, "nine tenths of the quota, less a segment at most"
    dropped = [queue.dropped for queue in queues]
    assert all(dropped) and sum(dropped) == 180 - left == world.broker.quotas.evicted["small"]
    assert "vhost 'small' holds" in caplog.text and f"{180 - left} went at once" in caplog.text
    numbers = sorted(number for queue in queues for number in _numbers(world, queue))
    assert numbers == list(range(180 - left, 180)), "the newest are there"
    assert _numbers(world, other.queues["q"].queue) == list(range(0, 180, 20))
    caplog.clear()
    world.loop.advance(3)
    assert not caplog.records and world.broker.quotas.evicted["small"] == 180 - left


def test_unsettled_messages_are_not_evicted_and_requeued_ones_are(world: World) -> None:
    small = _vhost(world, "small", "q")
    queue = small.queues["q"].queue
    _bodies(world, small, "q", range(10))
    queue.cursor.take(3)
    out = [seq for seq, *_ in queue.cursor.records()]
    _evicting(world, small, 50 * SIZE)
    _bodies(world, small, "q", range(10, 150))
    world.loop.advance(1.1)
    assert queue.cursor.outstanding == 3 and queue.dropped == 150 - 3 - queue.ready_count > 0
    left = queue.ready_count
    queue.cursor.settle(out[0])
    queue.cursor.requeue(out[1])
    world.loop.advance(1.1)
    assert queue.cursor.outstanding == 1 and queue.ready_count == left
    assert queue.dropped == 148 - left
    queue.cursor.settle(out[2])
    assert _numbers(world, queue) == list(range(150 - left, 150))


@pytest.mark.parametrize("arguments", [{"x-max-priority": 3}, {"x-max-length-bytes": 1 << 30}])
def test_queues_that_sort_or_count_lose_the_oldest_too(world: World, arguments: dict[str, object]) -> None:
    small = _vhost(world, "small")
    queue = small.declare_queue("q", world.actor, durable=True, arguments=arguments).queue
    _evicting(world, small, 50 * SIZE)
    _bodies(world, small, "q", range(150))
    queue.wake()
    world.settle()
    world.loop.advance(1.1)
    world.settle()
    left = queue.ready_count
    assert 0 < left < 50 and queue.dropped == 150 - left
    assert _numbers(world, queue) == list(range(150 - left, 150))


def test_a_stream_and_a_subscription_to_it_lose_the_oldest_too(world: World) -> None:
    small = _vhost(world, "small")
    stream = small.declare_queue("s", world.actor, durable=True, arguments={"x-queue-type": "stream"}).queue
    assert isinstance(stream, Stream)
    _evicting(world, small, 50 * SIZE)
    _bodies(world, small, "s", range(150))
    assert stream.first_offset == 0
    world.loop.advance(1.1)
    assert 100 <= stream.first_offset < 150 and stream.next_offset == 150
    assert stream.dropped == stream.first_offset == world.broker.quotas.evicted["small"]


def test_a_vhost_without_a_limit_of_its_own_has_that_of_the_configuration(tmp_path: Path) -> None:
    quotas = {"max-backlog-bytes": 200 * SIZE, "max-backlog-bytes-evict": 50 * SIZE}
    world = World(tmp_path, BrokerOptions(auth=AuthOptions(default_user=""), backlog_quotas=quotas))
    small, free, large = (_vhost(world, name, "q") for name in ("small", "free", "large"))
    world.broker.administration.set_vhost_limits("free", {"max-backlog-bytes-evict": -1})
    world.broker.administration.set_vhost_limits("large", {"max-backlog-bytes-evict": 90 * SIZE})
    for vhost in (small, free, large):
        _bodies(world, vhost, "q", range(150))
    world.loop.advance(1.1)
    left = {vhost.name: vhost.queues["q"].queue.ready_count for vhost in (small, free, large)}
    assert left["free"] == 150 and left["small"] < 50 < left["large"] < 90
    world.close()
