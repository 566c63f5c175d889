"""Declaring, deleting and binding queues; exclusive, auto-delete and server-named ones; unbinding."""

from __future__ import annotations

import gc
import re
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from penstock.router.errors import (
    DefaultExchange,
    Inequivalent,
    InUse,
    InvalidArgument,
    InvalidPattern,
    InvalidProperty,
    NotEmpty,
    NotFound,
    ReservedName,
    ResourceLocked,
    RoutingError,
    ServerNameRefused,
    UnknownType,
)
from penstock.subscriptions.cursor._cursor import Cursor
from tests.support.limits import LIMIT_S
from tests.unit.router.conftest import World


class Consumer:
    """A consumer that takes nothing."""

    priority = 0

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def credit(self) -> int:
        return 0

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        return 0

    def cancelled(self, reason: str) -> None:
        self.reasons.append(reason)


def test_a_server_named_queue_has_a_name_like_rabbitmqs(world: World) -> None:
    declared = world.vhost.declare_queue("", world.actor)
    assert re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", declared.name)
    assert world.vhost.queue(declared.name, world.actor) is declared.queue
    assert world.vhost.declare_queue("", world.actor).name != declared.name


def test_declaring_again_tells_what_is_in_it(world: World) -> None:
    world.queue("q", arguments={"x-y": 1})
    world.publish("", "q")
    world.publish("", "q")
    world.log.flush()
    queue = world.vhost.queue("q", world.actor)
    queue.attach(Consumer())
    again = world.vhost.declare_queue("q", world.actor, arguments={"x-y": 2})
    assert (again.name, again.message_count, again.consumer_count) == ("q", 2, 1)
    assert again.queue is queue
    passive = world.vhost.declare_queue("q", world.actor, passive=True, durable=True)
    assert passive.queue is queue


@pytest.mark.parametrize(
    ("options", "changed", "argument", "received", "current"),
    [
        ({"durable": True}, {"durable": False}, "durable", False, True),
        ({}, {"auto_delete": True}, "auto_delete", True, False),
        ({}, {"arguments": {"x-message-ttl": 5}}, "x-message-ttl", 5, None),
        ({"arguments": {"x-message-ttl": 5}}, {"arguments": {"x-message-ttl": 6}}, "x-message-ttl", 6, 5),
        ({"arguments": {"x-max-length": 1}}, {"arguments": {}}, "x-max-length", None, 1),
        ({"durable": True}, {"arguments": {"x-queue-type": "quorum"}}, "x-queue-type", "quorum", None),
    ],
)
def test_an_inequivalent_declaration_names_the_argument(
    world: World,
    options: dict[str, object],
    changed: dict[str, object],
    argument: str,
    received: object,
    current: object,
) -> None:
    world.queue("q", **options)
    with pytest.raises(Inequivalent) as refused:
        world.queue("q", **{**options, **changed})
    error = refused.value
    assert (error.kind, error.name, error.vhost) == ("queue", "q", "/")
    assert (error.argument, error.received, error.current) == (argument, received, current)


def test_arguments_that_mean_nothing_to_the_queue_type_are_not_compared(world: World) -> None:
    queue = world.queue("q")
    assert world.queue("q", arguments={"x-dead-letter-strategy": "at-least-once", "x-max-age": "1D"}) is queue


def test_naming_the_default_queue_type_is_equivalent(world: World) -> None:
    world.queue("q", durable=True)
    world.queue("q", durable=True, arguments={"x-queue-type": "classic"})
    world.queue("r", durable=True, arguments={"x-queue-type": "quorum"})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"x-message-ttl": -1}, "value_negative"),
        ({"x-message-ttl": "a"}, "expected_integer"),
        ({"x-message-ttl": True}, "expected_integer"),
        ({"x-message-ttl": 1099511627776}, "value_too_large"),
        ({"x-expires": 0}, "value_zero"),
        ({"x-expires": -1}, "value_negative"),
        ({"x-max-length": -1}, "value_negative"),
        ({"x-max-length-bytes": "a"}, "expected_integer"),
        ({"x-max-priority": 256}, "max_value_exceeded"),
        ({"x-max-priority": -1}, "value_negative"),
        ({"x-overflow": "foo"}, "invalid_overflow"),
        ({"x-overflow": 1}, "unacceptable_type"),
        ({"x-dead-letter-exchange": 5}, "invalid_type"),
        ({"x-dead-letter-routing-key": "k"}, "routing_key_but_no_dlx_defined"),
        ({"x-single-active-consumer": "yes"}, "unacceptable_type"),
        ({"x-queue-mode": "odd"}, "unsupported_mode"),
        ({"x-queue-type": 1}, "unacceptable_type"),
        ({"x-max-age": "1D"}, "not_for_type"),
        ({"x-delivery-limit": "3"}, "expected_integer"),
        ({"x-queue-type": "stream", "x-delivery-limit": 3}, "not_for_type"),
        ({"x-queue-type": "stream", "x-max-priority": 3}, "not_for_type"),
        ({"x-queue-type": "stream", "x-message-ttl": 3}, "not_for_type"),
        ({"x-queue-type": "stream", "x-max-age": "1Q"}, "invalid_max_age"),
        ({"x-cleanup": "compact"}, "not_for_type"),
        ({"x-queue-type": "stream", "x-cleanup": "sometimes"}, "invalid_value"),
        ({"x-queue-type": "stream", "x-cleanup": 1}, "unacceptable_type"),
    ],
)
def test_an_impossible_argument_is_refused_with_its_problem(
    world: World, arguments: dict[str, object], problem: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        world.queue("q", durable=True, arguments=arguments)
    error = refused.value
    assert (error.problem, error.name, error.vhost) == (problem, "q", "/")
    assert error.argument in arguments and error.value == arguments[error.argument]
    assert "q" not in world.vhost.queues


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 0},
        {"x-overflow": "reject-publish-dlx"},
        {"x-dead-letter-exchange": "none", "x-dead-letter-routing-key": "k"},
        {"x-unknown": 1},
        {"x-max-priority": 0},
        {"x-queue-mode": "lazy"},
        {"x-queue-type": "quorum", "x-delivery-limit": 3},
        {"x-queue-type": "stream", "x-max-age": "7D"},
        {"x-queue-type": "stream", "x-cleanup": "compact"},
    ],
)
def test_possible_arguments_are_kept(world: World, arguments: dict[str, object]) -> None:
    assert world.queue("q", durable=True, arguments=arguments).arguments == arguments


def test_quorum_queues_and_streams_are_durable_shared_and_named(world: World) -> None:
    for type_ in ("quorum", "stream"):
        arguments = {"x-queue-type": type_}
        with pytest.raises(ServerNameRefused) as unnamed:
            world.queue("", arguments=arguments)
        assert unnamed.value.queue_type == type_
        for options, prop in (
            ({}, "non-durable"),
            ({"durable": True, "auto_delete": True}, "auto-delete"),
        ):
            with pytest.raises(InvalidProperty) as refused:
                world.queue("q", arguments=arguments, **options)
            assert (refused.value.property, refused.value.name) == (prop, "q")
    with pytest.raises(UnknownType) as unknown:
        world.queue("q", arguments={"x-queue-type": "foo"})
    assert (unknown.value.kind, unknown.value.type) == ("queue", "foo")


def test_messages_live_as_long_as_their_queue_and_they_themselves_allow(world: World) -> None:
    short = world.queue("short", durable=True, arguments={"x-message-ttl": 1000})
    long = world.queue("long", durable=True, arguments={"x-message-ttl": 60_000})
    at_once = world.queue("at once", arguments={"x-message-ttl": 0})
    plain = world.queue("plain")
    for name in ("short", "long", "at once", "plain"):
        world.bind(name, "amq.fanout")
    world.publish("amq.fanout", "", "1")
    world.log.flush()
    world.clock.now += 1.0
    world.publish("amq.fanout", "", "2")
    assert world.read(short) == ["2"]
    assert world.read(at_once) == []  # no consumer waited for it
    assert world.read(long) == world.read(plain) == ["1", "2"]
    world.publish("", "short", "3")
    world.log.flush()
    world.clock.now += 1.0
    world.restart()
    assert world.read(world.vhost.queues["short"].queue) == []


def test_reserved_names_and_missing_queues(world: World) -> None:
    with pytest.raises(ReservedName) as reserved:
        world.queue("amq.foo")
    assert reserved.value.kind == "queue"
    for name in ("none", ""):
        with pytest.raises(NotFound) as missing:
            world.queue(name, passive=True)
        assert (missing.value.kind, missing.value.name) == ("queue", name)
    with pytest.raises(NotFound):
        world.vhost.queue("none", world.actor)
    deleted = world.vhost.delete_queue("none", world.actor)
    assert (deleted.message_count, deleted.lsn) == (0, 0)


def test_an_exclusive_queue_is_locked_for_other_connections(world: World) -> None:
    world.queue("q", exclusive=True, durable=True)
    assert not world.vhost.queues["q"].durable
    attempts: list[Callable[[], object]] = [
        lambda: world.vhost.declare_queue("q", world.other, exclusive=True),
        lambda: world.vhost.declare_queue("q", world.other, passive=True),
        lambda: world.vhost.queue("q", world.other),
        lambda: world.vhost.delete_queue("q", world.other),
        lambda: world.vhost.bind_queue("q", "amq.direct", "k", world.other),
        lambda: world.vhost.unbind_queue("q", "amq.direct", "k", world.other),
        # Its own connection, but not as it was declared.
        lambda: world.vhost.declare_queue("q", world.actor),
    ]
    for attempt in attempts:
        with pytest.raises(ResourceLocked) as locked:
            attempt()
        assert (locked.value.name, locked.value.vhost) == ("q", "/")
    # Publishing is open to everybody; its own connection may do all.
    assert world.publish("", "q")
    world.vhost.declare_queue("q", world.actor, exclusive=True, durable=True)
    world.queue("r")
    with pytest.raises(ResourceLocked):
        world.vhost.declare_queue("r", world.actor, exclusive=True)


def test_exclusive_queues_go_with_their_connection(world: World) -> None:
    world.queue("q", exclusive=True)
    world.queue("r")
    world.bind("q", "amq.fanout")
    consumer = Consumer()
    world.vhost.queue("q", world.actor).attach(consumer)
    world.vhost.connection_closed(world.other.owner)
    assert "q" in world.vhost.queues
    world.vhost.connection_closed(world.actor.owner)
    assert world.vhost.queues.keys() == {"r"}
    assert len(consumer.reasons) == 1
    assert not world.publish("amq.fanout", "")
    assert not world.publish("", "q")
    assert not world.log.feeds
    world.vhost.connection_closed(world.actor.owner)


def test_an_auto_delete_queue_goes_with_its_last_consumer(world: World) -> None:
    queue = world.queue("q", auto_delete=True)
    first, second = Consumer(), Consumer()
    queue.attach(first)
    queue.attach(second)
    queue.detach(first)
    assert "q" in world.vhost.queues
    queue.detach(second)
    assert "q" not in world.vhost.queues
    # One that never had a consumer stays.
    world.queue("r", auto_delete=True)
    assert "r" in world.vhost.queues


def test_if_unused_and_if_empty(world: World) -> None:
    queue = world.queue("q")
    world.publish("", "q")
    world.log.flush()
    with pytest.raises(NotEmpty) as filled:
        world.vhost.delete_queue("q", world.actor, if_empty=True)
    assert filled.value.name == "q"
    consumer = Consumer()
    queue.attach(consumer)
    with pytest.raises(InUse) as used:
        world.vhost.delete_queue("q", world.actor, if_unused=True)
    assert (used.value.kind, used.value.name) == ("queue", "q")
    assert world.vhost.delete_queue("q", world.actor).message_count == 1
    assert len(consumer.reasons) == 1


def test_a_deleted_queue_gets_nothing_and_a_new_one_of_that_name_starts_empty(world: World) -> None:
    world.queue("q")
    world.bind("q", "amq.fanout")
    world.publish("", "q", "old")
    world.vhost.delete_queue("q", world.actor)
    assert not world.publish("", "q")
    assert not world.publish("amq.fanout", "")
    queue = world.queue("q")
    assert world.publish("", "q", "new")
    assert world.read(queue) == ["new"]


def test_binding_twice_is_one_binding_and_unbinding_what_is_not_bound_is_fine(world: World) -> None:
    queue = world.queue("q")
    world.bind("q", "amq.topic", "a", {"n": 1})
    world.bind("q", "amq.topic", "a", {"n": 1})
    world.bind("q", "amq.topic", "a", {"n": 2})
    assert len(world.vhost.exchanges["amq.topic"].bindings) == 2
    world.vhost.unbind_queue("q", "amq.topic", "a", world.actor, {"n": 1})
    world.vhost.unbind_queue("q", "amq.topic", "a", world.actor, {"n": 1})
    world.vhost.unbind_queue("q", "none", "a", world.actor)
    world.vhost.unbind_queue("none", "amq.topic", "a", world.actor)
    assert world.publish("amq.topic", "a", "1")
    world.vhost.unbind_queue("q", "amq.topic", "a", world.actor, {"n": 2})
    assert not world.publish("amq.topic", "a", "2")
    assert world.read(queue) == ["1"]


def test_binding_needs_both_ends(world: World) -> None:
    world.queue("q")
    for queue, exchange, kind in (("q", "none", "exchange"), ("none", "amq.topic", "queue")):
        with pytest.raises(NotFound) as missing:
            world.bind(queue, exchange)
        assert missing.value.kind == kind
    for attempt in (world.vhost.bind_queue, world.vhost.unbind_queue):
        with pytest.raises(DefaultExchange):
            attempt("q", "", "k", world.actor)


def test_messages_routed_before_an_unbind_stay(world: World) -> None:
    """The feed of a pattern that nobody is bound by any more is read to its end, then dropped."""
    queue = world.queue("q")
    world.bind("q", "amq.direct", "k")
    world.publish("amq.direct", "k", "1")
    world.vhost.unbind_queue("q", "amq.direct", "k", world.actor)
    assert not world.publish("amq.direct", "k", "2")
    world.bind("q", "amq.direct", "k")
    world.publish("amq.direct", "k", "3")
    assert len(world.log.feeds) == 2
    assert world.read(queue) == ["1", "3"]
    queue.persist()
    queue.purge()
    assert len(world.log.feeds) == 1


def test_leaving_a_pattern_that_others_keep_and_coming_back(world: World) -> None:
    queue = world.queue("q")
    keeper = world.queue("keeper")
    for name in ("q", "keeper"):
        world.bind(name, "amq.direct", "k")
    world.publish("amq.direct", "k", "1")
    world.vhost.unbind_queue("q", "amq.direct", "k", world.actor)
    world.bind("q", "amq.direct", "k")
    world.vhost.unbind_queue("q", "amq.direct", "k", world.actor)
    world.publish("amq.direct", "k", "2")
    world.bind("q", "amq.direct", "k")
    world.publish("amq.direct", "k", "3")
    assert world.read(queue) == ["1", "3"]
    assert world.read(keeper) == ["1", "2", "3"]
    for name in ("q", "keeper"):
        world.vhost.delete_queue(name, world.actor)
    assert not world.log.feeds


def test_a_pattern_of_too_many_words_is_refused_and_leaves_nothing(world: World) -> None:
    world.queue("q")
    with pytest.raises(InvalidPattern):
        world.bind("q", "amq.topic", "." * 200)
    assert not world.vhost.exchanges["amq.topic"].bindings
    assert not world.vhost.queues["q"].bindings


def test_every_refusal_is_a_routing_error_that_names_the_thing(world: World) -> None:
    with pytest.raises(RoutingError, match="queue 'none' in vhost '/'"):
        world.vhost.queue("none", world.actor)


def test_other_rules_take_hold_of_a_live_queue(world: World) -> None:
    """As a policy does that comes, and goes again."""
    queue = world.queue("q", arguments={"x-max-length": 3})
    entry = world.vhost.queues["q"]
    for body in "abcd":
        world.publish("", "q", body)
    world.loop.settle()
    world.vhost.apply(entry, {"x-max-length": 2})
    world.loop.settle()
    assert queue.ready_count == 2
    world.vhost.apply(entry, entry.arguments)
    world.publish("", "q", "e")
    world.loop.settle()
    assert world.read(queue) == ["c", "d", "e"]
    assert world.vhost.declare_queue("q", world.actor, arguments={"x-max-length": 3}).queue is queue


def test_an_idle_durable_queue_costs_less_than_a_kibibyte(tmp_path: Path) -> None:
    """In a process of its own: dicts that other tests left larger would be counted, too."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(_bytes_per_queue, tmp_path).result(LIMIT_S) < 1024


def _bytes_per_queue(folder: Path) -> float:
    """As a start finds them; while they are declared, the open part of the log is in memory too."""
    world = World(folder)

    def started() -> int:
        world.close()
        gc.collect()
        tracemalloc.start()
        try:
            world._open()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    count = 20_000  # a start has other things besides them: some 250 KB more or less by chance
    without = started()
    for i in range(count):
        world.queue(f"queue-{i:06}", durable=True)
    try:
        return (started() - without) / count
    finally:
        world.close()
