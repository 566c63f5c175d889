"""Declaring, deleting and binding exchanges: what RabbitMQ's clients rely on, and each mistake told apart."""

from __future__ import annotations

import pytest

from penstock.router.authorization.identity import Actor, Identity
from penstock.router.authorization.permissions import Permission
from penstock.router.errors import (
    AccessRefused,
    DefaultExchange,
    Inequivalent,
    InUse,
    InvalidArgument,
    NotFound,
    ReservedName,
    SystemExchange,
    UnknownType,
)
from tests.unit.router.conftest import Connection, World


def test_the_predeclared_exchanges_are_there(world: World) -> None:
    assert {name: exchange.type for name, exchange in world.vhost.exchanges.items()} == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.topic": "topic",
        "amq.headers": "headers",
        "amq.match": "headers",
        "amq.rabbitmq.trace": "topic",
    }
    assert world.vhost.exchanges["amq.rabbitmq.trace"].internal
    world.exchange("amq.direct", "direct", durable=True)


def test_declaring_the_same_exchange_again_is_fine_and_unknown_arguments_do_not_count(world: World) -> None:
    world.exchange("x", "topic", durable=True, arguments={"x-y": 1})
    world.exchange("x", "topic", durable=True, arguments={"x-y": 2})
    assert world.vhost.exchanges["x"].arguments == {"x-y": 1}


@pytest.mark.parametrize(
    ("changed", "argument", "received", "current"),
    [
        ({"type_": "fanout"}, "type", "fanout", "direct"),
        ({"durable": True}, "durable", True, False),
        ({"auto_delete": True}, "auto_delete", True, False),
        ({"internal": True}, "internal", True, False),
    ],
)
def test_an_inequivalent_property_is_named(
    world: World, changed: dict[str, object], argument: str, received: object, current: object
) -> None:
    world.exchange("x", "direct")
    with pytest.raises(Inequivalent) as refused:
        world.exchange("x", **{"type_": "direct", **changed})  # type: ignore[arg-type]
    error = refused.value
    assert (error.kind, error.name, error.vhost) == ("exchange", "x", "/")
    assert (error.argument, error.received, error.current) == (argument, received, current)


def test_an_inequivalent_alternate_exchange_is_named(world: World) -> None:
    world.exchange("x")
    with pytest.raises(Inequivalent) as refused:
        world.exchange("x", arguments={"alternate-exchange": "a"})
    error = refused.value
    assert (error.argument, error.received, error.current) == ("alternate-exchange", "a", None)


def test_an_alternate_exchange_is_a_name(world: World) -> None:
    with pytest.raises(InvalidArgument) as refused:
        world.exchange("x", arguments={"alternate-exchange": 5})
    assert (refused.value.kind, refused.value.problem, refused.value.value) == ("exchange", "invalid_type", 5)
    assert "x" not in world.vhost.exchanges


def test_unknown_types_reserved_names_and_the_default_exchange_are_told_apart(world: World) -> None:
    with pytest.raises(UnknownType) as unknown:
        world.exchange("x", "ZZ")
    assert unknown.value.type == "ZZ"
    with pytest.raises(ReservedName):
        world.exchange("amq.foo")
    for passive in (False, True):
        with pytest.raises(DefaultExchange):
            world.exchange("", passive=passive)
    with pytest.raises(DefaultExchange):
        world.vhost.delete_exchange("", world.actor)
    with pytest.raises(SystemExchange):
        world.vhost.delete_exchange("amq.direct", world.actor)


def test_a_passive_declaration_only_asks(world: World) -> None:
    with pytest.raises(NotFound) as missing:
        world.exchange("x", passive=True)
    assert (missing.value.kind, missing.value.name) == ("exchange", "x")
    world.exchange("x", "topic")
    assert world.exchange("x", "fanout", passive=True) == 0


def test_line_ends_are_taken_out_of_names(world: World) -> None:
    world.exchange("x\r\ny")
    assert "xy" in world.vhost.exchanges


def test_deleting_a_missing_exchange_is_fine(world: World) -> None:
    assert world.vhost.delete_exchange("x", world.actor) == 0


def test_if_unused_looks_at_bindings_from_it_only(world: World) -> None:
    world.exchange("x")
    world.exchange("y")
    world.vhost.bind_exchange("y", "x", "k", world.actor)
    with pytest.raises(InUse) as used:
        world.vhost.delete_exchange("x", world.actor, if_unused=True)
    assert (used.value.kind, used.value.name) == ("exchange", "x")
    world.vhost.delete_exchange("y", world.actor, if_unused=True)
    world.vhost.delete_exchange("x", world.actor, if_unused=True)
    assert "x" not in world.vhost.exchanges


def test_deleting_an_exchange_takes_its_bindings_both_ways(world: World) -> None:
    world.queue("q")
    for name in "xyz":
        world.exchange(name, "fanout")
    world.vhost.bind_exchange("y", "x", "", world.actor)
    world.vhost.bind_exchange("z", "y", "", world.actor)
    world.vhost.bind_exchange("y", "y", "", world.actor)
    world.bind("q", "y")
    world.vhost.delete_exchange("y", world.actor)
    assert not world.vhost.exchanges["x"].bindings
    assert not world.vhost.exchanges["z"].incoming
    assert not world.vhost.queues["q"].bindings
    assert not world.publish("x", "k")


def test_an_auto_delete_exchange_goes_with_its_last_binding_and_takes_others_along(world: World) -> None:
    world.queue("q")
    world.exchange("x", "fanout", auto_delete=True)
    world.exchange("y", "fanout", auto_delete=True)
    world.vhost.bind_exchange("y", "x", "", world.actor)
    world.bind("q", "y", "1")
    world.bind("q", "y", "2")
    world.vhost.unbind_queue("q", "y", "1", world.actor)
    assert {"x", "y"} <= world.vhost.exchanges.keys()
    world.vhost.unbind_queue("q", "y", "2", world.actor)
    assert not {"x", "y"} & world.vhost.exchanges.keys()


def test_deleting_a_queue_ends_the_auto_delete_exchanges_it_was_bound_to(world: World) -> None:
    world.queue("q")
    world.exchange("x", "topic", auto_delete=True)
    world.bind("q", "x", "a")
    world.vhost.delete_queue("q", world.actor)
    assert "x" not in world.vhost.exchanges


def test_an_auto_delete_exchange_that_was_never_bound_stays(world: World) -> None:
    world.exchange("x", "topic", auto_delete=True)
    world.queue("q")
    world.vhost.unbind_queue("q", "x", "a", world.actor)
    assert "x" in world.vhost.exchanges


def test_bindings_between_exchanges_need_both_and_no_default_one(world: World) -> None:
    world.exchange("x")
    for ends in (("x", "none"), ("none", "x")):
        with pytest.raises(NotFound) as missing:
            world.vhost.bind_exchange(*ends, "k", world.actor)
        assert (missing.value.kind, missing.value.name) == ("exchange", "none")
        assert world.vhost.unbind_exchange(*ends, "k", world.actor) == 0
    for ends in (("x", ""), ("", "x")):
        with pytest.raises(DefaultExchange):
            world.vhost.bind_exchange(*ends, "k", world.actor)
    assert world.vhost.unbind_exchange("x", "amq.direct", "k", world.actor) == 0


@pytest.mark.parametrize(
    ("call", "kind", "name", "operation"),
    [
        (lambda v, a: v.declare_exchange("x", "direct", a), "exchange", "x", "configure"),
        (lambda v, a: v.declare_exchange("x", "direct", a, passive=True), "exchange", "x", "configure"),
        (
            lambda v, a: v.declare_exchange("c-x", "direct", a, arguments={"alternate-exchange": "y"}),
            "exchange",
            "c-x",
            "read",
        ),
        (
            lambda v, a: v.declare_exchange("cr-x", "direct", a, arguments={"alternate-exchange": "y"}),
            "exchange",
            "y",
            "write",
        ),
        (lambda v, a: v.delete_exchange("x", a), "exchange", "x", "configure"),
        (lambda v, a: v.bind_exchange("x", "y", "", a), "exchange", "x", "write"),
        (lambda v, a: v.bind_exchange("w-x", "y", "", a), "exchange", "y", "read"),
        (lambda v, a: v.declare_queue("q", a), "queue", "q", "configure"),
        (lambda v, a: v.declare_queue("q", a, passive=True), "queue", "q", "configure"),
        (
            lambda v, a: v.declare_queue("c-q", a, arguments={"x-dead-letter-exchange": "y"}),
            "queue",
            "c-q",
            "read",
        ),
        (
            lambda v, a: v.declare_queue("cr-q", a, arguments={"x-dead-letter-exchange": "y"}),
            "exchange",
            "y",
            "write",
        ),
        (lambda v, a: v.delete_queue("q", a), "queue", "q", "configure"),
        (lambda v, a: v.queue("q", a), "queue", "q", "read"),
        (lambda v, a: v.bind_queue("q", "x", "", a), "queue", "q", "write"),
        (lambda v, a: v.bind_queue("w-q", "x", "", a), "exchange", "x", "read"),
        (lambda v, a: v.unbind_queue("q", "x", "", a), "queue", "q", "write"),
    ],
)
def test_each_operation_needs_its_permissions_before_it_looks_anything_up(
    world: World, call: object, kind: str, name: str, operation: str
) -> None:
    """The matrix of permissions: ann may configure c*, write w* (and cw*), read cr*."""
    world.broker.authorizer.set("ann", "/", Permission("^c", "^w", "^cr"))
    ann = Actor(Identity("ann"), Connection())
    with pytest.raises(AccessRefused) as refused:
        call(world.vhost, ann)  # type: ignore[operator]
    error = refused.value
    assert (error.kind, error.name, error.operation, error.user) == (kind, name, operation, "ann")
