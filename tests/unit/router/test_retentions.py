"""Traffic retention by policy: how long what went through an exchange or queue can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty

import pytest

from penstock.router.authentication.users import AuthOptions
from penstock.router.broker import BrokerOptions
from penstock.router.queues.backfill import ARGUMENT
from tests.unit.router.conftest import World

HOUR = 3600
DAY = 24 * HOUR
BODY = "." * 60_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "data", BrokerOptions(auth=AuthOptions(default_user="")))
    yield world
    world.close()


def _policy(world: World, pattern: str, apply_to: str, **definition: int) -> None:
    world.broker.administration.put_policy(
        "/",
        pattern,
        pattern=f"^{pattern}$",
        definition={key.replace("_", "-"): value for key, value in definition.items()},
        apply_to=apply_to,
    )


def _turn(world: World, until: Callable[[], bool]) -> None:
    """Let the log's threads and its upkeep go on until `until`."""
    while not until():
        world.log.tend(None)
        world.log.flush()
        world.loop.settle()
        with suppress(Empty):
            callback, arguments = world.calls.get(timeout=0.02)  # of a thread; the loop above is soon again
            callback(*arguments)


def _has_checkpoint(world: World, position: int) -> bool:
    housekeeping = world.log._housekeeping
    if max(housekeeping.checkpoints, default=0) >= position:
        return True
    housekeeping.checkpoint()  # again and again: nothing comes of it while one is being written
    return False


def _roll(world: World) -> None:
    """Fill the active segment, so that what was published lies in closed and indexed ones, behind which
    two checkpoints are."""
    log = world.log
    number = log.segments_from(0)[-1].number
    while log.segments_from(0)[-1].number == number:
        world.publish("amq.direct", "filler", BODY)
        log.flush()
    for _ in range(2):
        world.publish("amq.direct", "filler")
        log.flush()
        position = log.written_lsn
        _turn(world, partial(_has_checkpoint, world, position))
    _turn(world, lambda: all(segment.indexed for segment in log.segments_from(0)[:-1]))


def _later(world: World, seconds: float) -> None:
    """So much time passes, and what was published before lies in segments that are closed."""
    _roll(world)
    world.clock.now += seconds
    _roll(world)


def _replay(world: World, exchange: str, key: str = "k") -> list[str]:
    """The messages that a new queue gets from the whole history of an exchange."""
    queue = world.queue("replayed", durable=True)
    told: list[bool] = []
    bound = world.vhost.bind_queue_since("replayed", exchange, key, world.actor, {ARGUMENT: "pos:1"})
    assert bound.history is not None
    bound.history(told.append)
    _turn(world, lambda: bool(told))
    assert told == [True]
    got = world.read(queue)
    world.vhost.delete_queue("replayed", world.actor)
    return got


def _sealed(world: World) -> int:
    return world.log.statistics()["segments_sealed"]


def _retain(world: World, seconds: int) -> None:
    world.broker.administration.set_vhost_limits("/", {"traffic-retention-seconds": seconds})


def test_an_exchange_is_kept_longer_than_its_vhost(world: World) -> None:
    _retain(world, HOUR)
    _policy(world, "kept", "exchanges", traffic_retention_seconds=7 * DAY)
    for name in ("kept", "other"):
        world.exchange(name, durable=True)
        for n in range(3):
            assert not world.publish(name, "k", f"{name} {n}"), "a retention feed is nobody to route to"
    _later(world, DAY)
    _turn(world, lambda: _sealed(world) > 0)
    for _ in range(2):
        assert _replay(world, "kept") == ["kept 0", "kept 1", "kept 2"]
        assert _replay(world, "other") == []
        world.restart()
    _later(world, 8 * DAY)
    _turn(world, lambda: world.log.retention_feeds.low > 3)
    assert _replay(world, "kept") == []
    _turn(world, lambda: world.log.segments_from(0)[0].number > 1)


def test_an_exchange_is_kept_shorter_than_its_vhost(world: World) -> None:
    _policy(world, "short", "exchanges", traffic_retention_seconds=HOUR)
    for name in ("short", "other"):
        world.exchange(name, durable=True)
    for n in range(30):
        for name in ("short", "other"):
            world.publish(name, "k", f"{name} {n} {BODY}")
        world.log.flush()
    assert len(_replay(world, "short")) == 30
    _later(world, 2 * HOUR)
    before = world.log.statistics()["segment_bytes"]
    assert _replay(world, "short") == []
    _turn(world, lambda: _sealed(world) > 0)
    _turn(world, lambda: world.log.statistics()["segment_bytes"] < before - 30 * len(BODY))
    for _ in range(2):
        # The remaining records are compressed and still found.
        assert [body[:8].split()[0] for body in _replay(world, "other")] == ["other"] * 30
        assert _replay(world, "short") == []
        world.restart()


def test_a_message_is_kept_as_long_as_the_longest_of_what_it_went_through(world: World) -> None:
    _retain(world, DAY)
    _policy(world, "short", "exchanges", traffic_retention_seconds=HOUR)
    _policy(world, "audit", "queues", traffic_retention_seconds=7 * DAY)
    world.exchange("short", durable=True)
    world.queue("audit", durable=True)
    world.queue("plain", durable=True)
    world.publish("short", "k", "to nobody")
    world.bind("plain", "short", "k")
    world.publish("short", "k", "to plain")
    world.bind("audit", "short", "k")  # by the slot that has its feed already
    world.publish("short", "k", "to both")
    for name in ("audit", "plain"):
        world.vhost.queues[name].queue.purge()
    _later(world, 2 * HOUR)
    _turn(world, lambda: world.log.retention_feeds.low > 0)
    assert _replay(world, "short") == ["to both"]
    _later(world, 2 * DAY)
    _turn(world, lambda: _sealed(world) > 0)
    assert _replay(world, "short") == ["to both"]


def test_the_history_is_bounded_by_bytes_too(world: World) -> None:
    _policy(world, "small", "exchanges", traffic_retention_bytes=3 << 20)
    world.exchange("small", durable=True)
    for n in range(100):
        world.publish("small", "k", f"{n} {BODY}")
        world.log.flush()
    _roll(world)
    world.log.tend(None)
    numbers = [int(body.split()[0]) for body in _replay(world, "small")]
    assert numbers == list(range(numbers[0], 100))
    assert 20 <= len(numbers) <= 52, "by segments of a megabyte"


def test_expired_records_stay_gone_and_the_rest_follows_the_new_policy(world: World) -> None:
    _policy(world, "e", "exchanges", traffic_retention_seconds=HOUR)
    world.exchange("e", durable=True)
    world.publish("e", "k", "old")
    _later(world, 2 * HOUR)
    _turn(world, lambda: _replay(world, "e") == [])
    world.publish("e", "k", "new")
    world.broker.administration.delete_policy("/", "e")
    world.publish("e", "k", "newest")
    _later(world, 2 * HOUR)
    world.log.tend(None)
    assert _replay(world, "e") == ["new", "newest"]
    world.restart()
    assert _replay(world, "e") == ["new", "newest"]
    assert len(world.log.retention_feeds) == 1
    _later(world, DAY)
    _turn(world, lambda: len(world.log.retention_feeds) == 0)
    assert world.rows("keeper") == 0 and _replay(world, "e") == []


def test_a_keeper_goes_with_its_vhost(world: World) -> None:
    world.broker.administration.put_vhost("v")
    vhost = world.broker.vhost("v")
    world.broker.administration.put_policy(
        "v", "all", pattern=".*", definition={"traffic-retention-seconds": 7 * DAY}
    )
    vhost.publish(None, 2, b"a/b", body=b"x")
    world.log.flush()
    assert len(world.log.retention_feeds) == 1
    world.broker.administration.delete_vhost("v")
    assert len(world.log.retention_feeds) == 0 and world.rows("keeper") == world.rows("feed_keeps") == 0


def test_a_message_that_all_queues_refuse_is_not_kept(world: World) -> None:
    _policy(world, "e", "exchanges", traffic_retention_seconds=DAY)
    world.exchange("e", durable=True)
    world.queue("full", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    world.bind("full", "e", "k")
    world.publish("e", "k", "refused")
    assert _replay(world, "e") == []
