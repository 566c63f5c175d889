"""The edges of routing: circles of bindings and alternates, internal exchanges, auto-delete, cascades."""

from __future__ import annotations

import pytest

from penstock.router.errors import InternalExchange, NotFound
from tests.unit.router.conftest import World


def test_a_circle_of_bindings_delivers_once_and_ends(world: World) -> None:
    for name in "abc":
        world.exchange(name, "fanout")
    for source, destination in ("ab", "bc", "ca", "aa"):
        world.vhost.bind_exchange(destination, source, "", world.actor)
    queue = world.queue("q")
    for exchange in "abc":
        world.bind("q", exchange)
    for exchange in "abc":
        assert world.publish(exchange, "k", exchange)
    assert world.read(queue) == ["a", "b", "c"]


def test_a_circle_of_alternates_ends(world: World) -> None:
    for name, alternate in ("ab", "bc", "ca"):
        world.exchange(name, arguments={"alternate-exchange": alternate})
    world.exchange("self", arguments={"alternate-exchange": "self"})
    assert not world.publish("a", "k") and not world.publish("self", "k")
    queue = world.queue("q")
    world.bind("q", "c", "k")
    assert world.publish("a", "k") and world.publish("b", "k") and not world.publish("a", "other")
    assert world.read(queue) == ["x", "x"]


def test_an_alternate_of_an_exchange_on_the_way_takes_what_finds_nothing_there(world: World) -> None:
    """RabbitMQ: an alternate is asked when its exchange matched nothing, however the message came to it."""
    world.exchange("source", "fanout")
    world.exchange("middle", arguments={"alternate-exchange": "rest"})
    world.exchange("rest", "fanout")
    world.vhost.bind_exchange("middle", "source", "", world.actor)
    queue = world.queue("q")
    world.bind("q", "rest")
    assert world.publish("source", "k")
    direct = world.queue("d")
    world.bind("d", "middle", "k")
    assert world.publish("source", "k", "y")
    assert world.read(queue) == ["x"] and world.read(direct) == ["y"]


def test_an_alternate_may_come_later_and_go(world: World) -> None:
    world.exchange("x", arguments={"alternate-exchange": "later"})
    assert not world.publish("x", "k")
    world.exchange("later", "fanout")
    world.queue("q")
    world.bind("q", "later")
    assert world.publish("x", "k")
    world.vhost.delete_exchange("later", world.actor)
    assert not world.publish("x", "k")


def test_an_internal_exchange_is_reached_by_bindings_and_alternates_only(world: World) -> None:
    world.exchange("in", "fanout", internal=True)
    world.exchange("x", arguments={"alternate-exchange": "in"})
    world.exchange("f", "fanout")
    world.vhost.bind_exchange("in", "f", "", world.actor)
    queue = world.queue("q")
    world.bind("q", "in")
    with pytest.raises(InternalExchange):
        world.publish("in", "k")
    assert world.publish("x", "k") and world.publish("f", "k")
    assert world.read(queue) == ["x", "x"]
    with pytest.raises(InternalExchange):
        world.publish("amq.rabbitmq.trace", "publish.x")


def test_auto_delete_exchanges_go_in_a_row(world: World) -> None:
    for name in "abc":
        world.exchange(name, "fanout", auto_delete=True)
    world.vhost.bind_exchange("b", "a", "", world.actor)
    world.vhost.bind_exchange("c", "b", "", world.actor)
    world.queue("q")
    world.bind("q", "c")
    # Being a destination keeps no exchange, and having had no binding deletes none.
    assert set("abc") <= set(world.vhost.exchanges)
    world.vhost.delete_queue("q", world.actor)
    assert not set("abc") & set(world.vhost.exchanges)
    with pytest.raises(NotFound):
        world.publish("a", "k")


def test_an_auto_delete_exchange_that_was_never_bound_stays(world: World) -> None:
    world.exchange("x", auto_delete=True)
    world.vhost.unbind_exchange("x", "amq.direct", "k", world.actor)
    assert "x" in world.vhost.exchanges


def test_deleting_an_exchange_takes_its_bindings_both_ways(world: World) -> None:
    for name in ("before", "x", "after"):
        world.exchange(name, "fanout", durable=True)
    world.vhost.bind_exchange("x", "before", "", world.actor)
    world.vhost.bind_exchange("after", "x", "", world.actor)
    world.queue("q", durable=True)
    world.bind("q", "after")
    assert world.publish("before", "k") and world.rows("binding") == 3
    world.vhost.delete_exchange("x", world.actor)
    assert not world.publish("before", "k") and world.rows("binding") == 1
    world.exchange("x", "fanout", durable=True)
    assert not world.publish("before", "k")
