"""New topics that the same filters match share a route, found without Python; changes are seen at once."""

from __future__ import annotations

import random

import pytest

from penstock.router.authorization.permissions import TopicPermission
from penstock.router.names import ENC_MQTT5
from penstock.router.routes._routes import Route, RouteTable, Topology
from tests.unit.router.conftest import World
from tests.unit.router.test_routes import World as Table


def test_a_new_key_that_matches_the_same_asks_nobody() -> None:
    world, filters = Table(), {b"a": ["f"], b"b": ["f"], b"c": []}
    table = RouteTable(world.topology, 2, world.resolve, matcher=lambda: filters.__getitem__)
    assert table.route(b"a") is table.route(b"b")
    assert table.route(b"c") is not table.route(b"a")
    assert world.asked == [b"a", b"c"]
    world.scope.touch_all()
    table.route(b"b")
    assert world.asked == [b"a", b"c", b"b"]


def test_a_route_through_another_exchange_or_with_an_error_is_of_its_key_alone() -> None:
    world = Table()
    other = Table().scope
    for more in ({"scopes": (world.scope, other)}, {"error": ValueError()}, {"per_message": True}):
        asked: list[bytes] = []

        def resolve(key: bytes, more: dict[str, object] = more, asked: list[bytes] = asked) -> Route:
            asked.append(key)
            made = {"scopes": (world.scope,), "routed": False, "durable": False, "per_message": False, **more}
            return Route(world.resolve(key).target, **made)  # type: ignore[arg-type]

        table = RouteTable(Topology(), 2, resolve, matcher=lambda: lambda key: [])
        table.route(b"a")
        table.route(b"b")
        assert asked == [b"a", b"b"], more


WORDS = ("a", "b", "")


@pytest.mark.parametrize("seed", range(8))
def test_a_table_answers_as_a_resolve_anew_does_whatever_changes(world: World, seed: int) -> None:
    chance = random.Random(seed)
    world.vhost.session_queue("s", durable=False)
    world.exchange("behind", "topic")
    for name in ("one", "two"):
        world.queue(name)

    def topic() -> str:
        return "/".join(chance.choice(WORDS) for _ in range(chance.randint(1, 3)))

    def pattern(words: str, some: str, separator: str) -> str:
        return separator.join(chance.choice((*words, some)) for _ in range(chance.randint(1, 3)))

    def change() -> None:
        match chance.randrange(7):
            case 0:
                world.vhost.subscribe("s", pattern("ab", "+", "/"), chance.randint(1, 9), world.guest)
            case 1:
                kept = world.vhost.sessions.filters("s")
                if kept:
                    world.vhost.unsubscribe("s", chance.choice(kept).topic)
            case 2:
                world.bind(chance.choice(("one", "two")), "amq.topic", pattern("ab", "*", "."))
            case 3:
                world.vhost.bind_exchange("behind", "amq.topic", pattern("ab", "#", "."), world.actor)
            case 4:
                world.bind("one", "behind", pattern("ab", "*", "."))
            case 5:
                rule = TopicPermission(chance.choice((".*", "^a", "")), ".*")
                world.broker.authorizer.set_topic("guest", "/", "amq.topic", rule)
                world.vhost.permissions_changed()
            case 6:
                world.vhost.delete_queue("two", world.actor)
                world.queue("two")

    for _ in range(60):
        change()
        table = world.vhost.publisher(world.guest, ENC_MQTT5)
        for one in {topic() for _ in range(12)}:
            key = one.encode()
            found, anew = table.route(key), world.vhost.route(world.guest, ENC_MQTT5, key)
            assert type(found.error) is type(anew.error), one
            if anew.error is None:
                assert found is anew, one
