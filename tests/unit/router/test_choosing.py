"""Exchanges that choose one of what is bound: stable, weighted, and at random."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.router.arguments import MessageHeaders
from penstock.router.errors import InvalidBinding, InvalidHash
from penstock.router.names import ENC_AMQP091, join_key_block
from tests.unit.router.conftest import World

KEYS = [f"key-{index}" for index in range(3000)]


def bound(world: World, type_: str, weights: dict[str, str], **options: object) -> None:
    """Exchange x with these queues and the keys they are bound by."""
    world.exchange("x", type_, **options)
    for queue, key in weights.items():
        world.queue(queue, durable=True)
        world.bind(queue, "x", key)


def chosen(world: World, keys: list[str], headers: MessageHeaders | None = None) -> list[str]:
    """The queue that each key is given to; one each."""
    feeds = {}
    for entry in world.vhost.queues.values():
        for slot in entry.slots():
            feeds[slot.feed] = entry.name
    found = []
    for key in keys:
        route = world.vhost.route(world.guest, ENC_AMQP091, join_key_block("x", key), headers)
        assert route.error is None and not route.per_message
        (feed,) = route.target.feeds
        found.append(feeds[feed])
    return found


def test_a_key_goes_to_one_queue_by_weight(world: World) -> None:
    bound(world, "x-consistent-hash", {"a": "1", "b": "2", "c": "3"})
    counts = Counter(chosen(world, KEYS))
    # 500, 1000, 1500; five standard deviations of such a share are below 140.
    assert {name: pytest.approx(count, abs=140) for name, count in counts.items()} == {
        "a": 500, "b": 1000, "c": 1500
    }  # fmt: skip
    assert chosen(world, KEYS) == chosen(world, KEYS)


def test_only_the_share_of_who_comes_or_goes_moves(world: World) -> None:
    bound(world, "x-consistent-hash", {"a": "5", "b": "5", "c": "10"})
    before = chosen(world, KEYS)
    world.queue("d")
    world.bind("d", "x", "10")
    after = chosen(world, KEYS)
    assert all(new in (old, "d") for old, new in zip(before, after, strict=True))
    assert after.count("d") == pytest.approx(1000, abs=140)
    world.vhost.delete_queue("d", world.actor)
    assert chosen(world, KEYS) == before
    world.vhost.unbind_queue("a", "x", "5", world.actor)
    after = chosen(world, KEYS)
    assert all(new == old or old == "a" for old, new in zip(before, after, strict=True))


def test_the_choice_survives_a_restart_and_the_order_of_bindings(world: World) -> None:
    bound(world, "x-consistent-hash", {"a": "1", "b": "7", "c": "3"}, durable=True)
    before = chosen(world, KEYS[:500])
    world.restart()
    assert chosen(world, KEYS[:500]) == before
    world.vhost.unbind_queue("a", "x", "1", world.actor)
    world.bind("a", "x", "1")
    assert chosen(world, KEYS[:500]) == before


def test_weights_of_one_queue_add_up(world: World) -> None:
    bound(world, "x-consistent-hash", {"a": "1", "b": "3"})
    world.bind("a", "x", "2")
    assert Counter(chosen(world, KEYS))["a"] == pytest.approx(1500, abs=140)


def test_routes_by_key_are_kept(world: World) -> None:
    bound(world, "x-consistent-hash", {"a": "1", "b": "1"})
    table = world.vhost.publisher(world.guest, ENC_AMQP091)
    key = join_key_block("x", "k")
    route = table.route(key)
    misses = table.misses
    assert table.route(key) is route and not route.per_message and table.misses == misses


def test_an_exchange_may_be_chosen_too(world: World) -> None:
    world.exchange("x", "x-consistent-hash")
    world.exchange("f", "fanout")
    for name in "ab":
        world.queue(name)
        world.bind(name, "f")
    world.vhost.bind_exchange("f", "x", "1", world.actor)
    route = world.vhost.route(world.guest, ENC_AMQP091, join_key_block("x", "k"))
    assert len(route.target.feeds) == 1 and route.routed  # one fanout slot, both queues in it
    world.publish("x", "k")
    assert world.read(world.vhost.queues["a"].queue) == world.read(world.vhost.queues["b"].queue) == ["x"]


@pytest.mark.parametrize("value", ["text", 5, [], {"deep": [1]}, None])
def test_a_header_is_hashed_whatever_it_is(world: World, value: object) -> None:
    bound(world, "x-consistent-hash", dict.fromkeys("abcd", "1"), arguments={"hash-header": "id"})
    key = join_key_block("x", "k")
    assert world.vhost.publisher(world.guest, ENC_AMQP091).route(key).per_message
    headers = MessageHeaders({} if value is None else {"id": value}, {})
    assert len(set(chosen(world, KEYS[:50], headers))) == 1
    spread = {chosen(world, ["k"], MessageHeaders({"id": f"{index}"}, {}))[0] for index in range(100)}
    assert spread == set("abcd")


def test_a_property_is_hashed(world: World) -> None:
    bound(world, "x-consistent-hash", dict.fromkeys("abcd", "1"), arguments={"hash-property": "message_id"})
    found = [chosen(world, ["k"], MessageHeaders({}, {"message_id": f"{i}"}))[0] for i in range(100)]
    assert set(found) == set("abcd")
    assert found == [chosen(world, ["l"], MessageHeaders({}, {"message_id": f"{i}"}))[0] for i in range(100)]
    assert len(set(chosen(world, KEYS[:50], MessageHeaders({}, {})))) == 1


def test_modulus_shares_evenly_and_needs_no_weights(world: World) -> None:
    bound(world, "x-modulus-hash", {"a": "", "b": "", "c": "x"}, durable=True)
    before = chosen(world, KEYS)
    assert all(count == pytest.approx(1000, abs=140) for count in Counter(before).values())
    world.restart()
    assert chosen(world, KEYS) == before


@pytest.mark.parametrize("type_", ["x-random", "x-local-random"])
def test_random_asks_for_each_message(world: World, type_: str) -> None:
    bound(world, type_, {"a": "", "b": ""})
    assert world.vhost.publisher(world.guest, ENC_AMQP091).route(join_key_block("x", "k")).per_message
    found = Counter(chosen(world, ["k"], MessageHeaders({}, {}))[0] for _ in range(400))
    assert found["a"] + found["b"] == 400 and min(found.values()) > 100


@pytest.mark.parametrize("type_", ["x-consistent-hash", "x-modulus-hash", "x-random"])
def test_with_nothing_bound_it_goes_nowhere(world: World, type_: str) -> None:
    world.exchange("x", type_)
    assert not world.publish("x", "k", headers={})


@pytest.mark.parametrize(
    ("key", "problem"),
    [("", "key_no_integer"), ("x", "key_no_integer"), ("1.5", "key_no_integer"), ("²", "key_no_integer"),
     ("0", "key_not_positive"), ("-3", "key_not_positive"), ("2147483648", "key_too_large")],
)  # fmt: skip
def test_a_weight_is_a_whole_number(world: World, key: str, problem: str) -> None:
    world.exchange("x", "x-consistent-hash")
    world.queue("q")
    with pytest.raises(InvalidBinding) as refused:
        world.bind("q", "x", key)
    assert refused.value.problem == problem
    assert not world.vhost.exchanges["x"].bindings and not world.publish("x", "k")


def test_local_random_has_its_rules(world: World) -> None:
    world.exchange("x", "x-local-random")
    world.queue("q", durable=True, arguments={"x-queue-type": "quorum"})
    for call, problem in (
        (lambda: world.bind("q", "x", "k"), "key_not_empty"),
        (lambda: world.bind("q", "x"), "queue_type"),
        (lambda: world.vhost.bind_exchange("amq.fanout", "x", "", world.actor), "no_queue"),
    ):
        with pytest.raises(InvalidBinding) as refused:
            call()
        assert refused.value.problem == problem


def test_hash_arguments_are_checked_when_it_is_made(world: World) -> None:
    for arguments in ({"hash-property": "reply_to"}, {"hash-property": 5},
                      {"hash-header": "a", "hash-property": "message_id"}):  # fmt: skip
        with pytest.raises(InvalidHash):
            world.exchange("x", "x-consistent-hash", arguments=arguments)
    world.exchange("x", "x-consistent-hash", arguments={"hash-header": "a"})
    world.exchange("x", "x-consistent-hash")
