"""The route table: what it remembers, when it forgets, and that it stays within its bounds."""

from __future__ import annotations

import gc
import weakref

import pytest

from penstock.log_core.batch._appender import Target
from penstock.router.routes._routes import Route, RouteTable, Scope, Topology, measure

AMQP, MQTT = 1, 2


class World:
    """A resolver that says which keys it was asked for, over one scope."""

    def __init__(self, enc: int = MQTT, **bounds: int) -> None:
        self.topology = Topology()
        self.scope = Scope(self.topology, cells=1 << 24)  # so many that no two patterns share one by chance
        self.asked: list[bytes] = []
        self.table = RouteTable(self.topology, enc, self.resolve, **bounds)

    def resolve(self, key: bytes) -> Route:
        self.asked.append(key)
        return Route(Target((), False), (self.scope,), False, False, False)

    def asks_again(self, key: bytes) -> bool:
        before = len(self.asked)
        self.table.route(key)
        return len(self.asked) > before


def block(exchange: bytes, key: bytes) -> bytes:
    return bytes([len(exchange)]) + exchange + bytes([len(key)]) + key


def test_a_key_is_resolved_once() -> None:
    world = World()
    first = world.table.route(b"a/b")
    world.table.route(b"c")
    assert world.table.route(b"a/b") is first
    assert world.asked == [b"a/b", b"c"]


@pytest.mark.parametrize("key", [b"", b"x" * 7, b"x" * 16, b"x" * 17, b"x" * 255, b"x" * 65535])
def test_keys_of_every_size_are_told_apart(key: bytes) -> None:
    world = World()
    world.table.route(key)
    other = key[:-1] + b"y" if key else b"y"
    assert world.asks_again(other)
    assert not world.asks_again(key)
    assert not world.asks_again(other)


def test_a_key_longer_than_a_key_block_is_refused() -> None:
    with pytest.raises(ValueError, match="65,535"):
        World().table.route(b"x" * 65536)


def test_a_change_for_all_keys_makes_each_resolve_again() -> None:
    world = World()
    world.table.route(b"a/b")
    world.scope.touch_all()
    assert world.asks_again(b"a/b")
    assert not world.asks_again(b"a/b")


def test_a_literal_binding_concerns_its_key_only() -> None:
    world = World()
    for key in (b"a/b", b"a/c", b"a"):
        world.table.route(key)
    world.scope.touch_exact(b"a/b")
    assert [key for key in (b"a/b", b"a/c", b"a") if world.asks_again(key)] == [b"a/b"]


@pytest.mark.parametrize(
    ("prefix", "concerned"),
    [
        (b"", {b"a", b"a/b", b"a/b/c", b"a/b/c/d", b"x/b/c/d"}),
        (b"a", {b"a", b"a/b", b"a/b/c", b"a/b/c/d"}),
        (b"a/b", {b"a/b", b"a/b/c", b"a/b/c/d"}),
        (b"a/b/c", {b"a/b/c", b"a/b/c/d"}),
        (b"a/b/c/d", {b"a/b/c", b"a/b/c/d"}),
    ],
)
def test_a_binding_with_wildcards_concerns_the_keys_below_its_literal_words(
    prefix: bytes, concerned: set[bytes]
) -> None:
    """Three literal words are told apart; beyond them too many keys are resolved again, never too few."""
    world = World()
    keys = [b"a", b"a/b", b"a/b/c", b"a/b/c/d", b"x/b/c/d"]
    for key in keys:
        world.table.route(key)
    world.scope.touch_below(prefix)
    assert {key for key in keys if world.asks_again(key)} == concerned


def test_a_dotted_pattern_concerns_a_slashed_topic_and_an_amqp_key() -> None:
    mqtt, amqp = World(MQTT), World(AMQP)
    for world, key in ((mqtt, b"a/b/c"), (amqp, block(b"amq.topic", b"a.b.c"))):
        world.table.route(key)
        world.scope.touch_below(b"x.y")
        assert not world.asks_again(key)
        world.scope.touch_below(b"a.b")
        assert world.asks_again(key)
        world.scope.touch_below(b"a/b")
        assert world.asks_again(key)


def test_a_malformed_key_block_reads_nothing_past_its_end() -> None:
    world = World(AMQP)
    for key in (b"", b"\xff", b"\x05ab", b"\x02ab", b"\x02ab\xff"):
        world.table.route(key)
        world.scope.touch_all()
        assert world.asks_again(key)


def test_a_new_epoch_makes_the_table_forget_all() -> None:
    world = World()
    world.table.route(b"a")
    world.topology.renew()
    assert world.asks_again(b"a")
    assert world.table.count == 1


def test_a_change_made_by_the_resolver_itself_does_not_make_it_ask_forever() -> None:
    world = World()
    plain = world.resolve

    def resolve(key: bytes) -> Route:
        world.scope.touch_all()
        return plain(key)

    table = RouteTable(world.topology, MQTT, resolve)
    table.route(b"a")
    table.route(b"a")
    assert world.asked == [b"a"]


def test_a_resolver_that_uses_the_table_is_answered() -> None:
    world = World()
    plain = world.resolve

    def resolve(key: bytes) -> Route:
        if len(key) < 200:
            table.route(key + b"x")
        return plain(key)

    table = RouteTable(world.topology, MQTT, resolve)
    table.route(b"x")
    assert len(world.asked) == 200
    assert table.count == 200
    table.route(b"x" * 100)
    assert len(world.asked) == 200


def test_the_number_of_keys_is_bounded_and_used_ones_survive() -> None:
    world = World(limit=100)
    for index in range(1000):
        world.table.route(b"%d" % index)
        world.table.route(b"hot")
        assert world.table.count <= 100
    # `hot` was used in every round; being used by all, it is thinned out at most once per sweep.
    assert world.asked.count(b"hot") <= 20


def test_the_bytes_of_keys_are_bounded() -> None:
    world = World(bytes_limit=10_000)
    for index in range(100):
        world.table.route(b"%d" % index + b"x" * 1000)
        assert world.table.key_bytes <= 10_000


def test_a_key_too_long_for_the_table_is_resolved_each_time() -> None:
    world = World(bytes_limit=100)
    world.table.route(b"x" * 200)
    assert world.asks_again(b"x" * 200)
    assert world.table.count == 0


def test_a_table_lets_go_of_its_routes() -> None:
    world = World()
    seen = weakref.ref(world.table.route(b"a"))
    assert seen() is not None
    world.table.clear()
    gc.collect()
    assert seen() is None
    seen = weakref.ref(world.table.route(b"b"))
    del world
    gc.collect()
    assert seen() is None


def test_ten_thousand_keys_are_found_after_growing() -> None:
    world = World()
    keys = [b"sensor/%d/t" % index for index in range(10_000)]
    assert measure(world.table, keys, 2) > 0
    assert world.table.misses == 10_000 == world.table.count
    assert sorted(world.asked) == sorted(keys)


def test_keys_of_queues_that_are_gone_make_room_before_the_table_grows() -> None:
    """Reply queues: each name is published to once, then its queue goes."""
    world = World()
    for index in range(10_000):
        key = b"reply/%d" % index
        world.table.route(key)
        world.scope.touch_exact(key)
    assert world.table.count <= 64
    assert world.table.key_bytes == sum(
        len(b"reply/%d" % i) for i in range(10_000 - world.table.count, 10_000)
    )
