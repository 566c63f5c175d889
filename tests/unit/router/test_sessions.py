"""MQTT sessions: queues outside the names of AMQP, with subscriptions that carry tags."""

from __future__ import annotations

import pytest

from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Permission
from penstock.router.errors import AccessRefused, InvalidPattern, NotFound
from penstock.router.names import ENC_MQTT5
from tests.unit.router.conftest import World


def test_a_session_is_made_once_and_is_no_amqp_queue(world: World) -> None:
    queue = world.vhost.session_queue("client", durable=False)
    assert world.vhost.session_queue("client", durable=True) is queue
    assert world.vhost.session("client") is queue
    assert world.vhost.session("other") is None
    with pytest.raises(NotFound):
        world.vhost.queue("client", world.actor)
    assert not world.publish("", "client")


def test_overlapping_filters_deliver_once_with_all_their_tags(world: World) -> None:
    queue = world.vhost.session_queue("client", durable=False)
    for tag, topic_filter in enumerate(("a/#", "a/+", "b")):
        assert world.vhost.subscribe("client", topic_filter, tag, world.guest).new
    world.publish_mqtt("a/x", "1")
    world.publish_mqtt("b", "2")
    world.publish_mqtt("a/x/y", "3")
    assert world.read_tags(queue) == [("1", (0, 1)), ("2", (2,)), ("3", (0,))]


def test_the_same_filter_again_gets_the_new_tag_from_then_on(world: World) -> None:
    queue = world.vhost.session_queue("client", durable=False)
    world.vhost.subscribe("client", "a", 1, world.guest)
    world.publish_mqtt("a", "1")
    assert not world.vhost.subscribe("client", "a", 2, world.guest).new
    world.publish_mqtt("a", "2")
    assert not world.vhost.subscribe("client", "a", 2, world.guest).new
    world.publish_mqtt("a", "3")
    assert world.read_tags(queue) == [("1", (1,)), ("2", (2,)), ("3", (2,))]


def test_unsubscribing_keeps_what_was_routed(world: World) -> None:
    queue = world.vhost.session_queue("client", durable=False)
    world.vhost.subscribe("client", "a", 0, world.guest)
    world.publish_mqtt("a", "1")
    assert world.vhost.unsubscribe("client", "a").existed
    assert not world.vhost.unsubscribe("client", "a").existed
    assert not world.vhost.unsubscribe("nobody", "a").existed
    assert not world.publish_mqtt("a", "2")
    assert world.read(queue) == ["1"]


def test_sessions_with_one_filter_share_one_feed_but_the_first_which_goes_with_them(world: World) -> None:
    for index in range(100):
        world.vhost.session_queue(f"c{index}", durable=False)
        world.vhost.subscribe(f"c{index}", "a/+", 0, world.guest)
    world.publish_mqtt("a/b", "1")
    assert len(world.log.feeds) == 2
    for client_id in ("c0", "c99"):
        assert world.read(world.vhost.session_queue(client_id, durable=False)) == ["1"]
    for index in range(100):
        world.vhost.delete_session(f"c{index}")
    assert not world.log.feeds
    assert world.vhost.mqtt_exchange.filter(b"a/+") is None
    assert len(world.vhost.sessions) == 0
    assert not world.publish_mqtt("a/b")
    assert world.vhost.delete_session("c0") == 0


def test_subscribing_needs_the_right_to_read(world: World) -> None:
    world.vhost.session_queue("client", durable=False)
    ann = Identity("ann")
    world.broker.authorizer.set("ann", "/", Permission(".*", ".*", ""))
    with pytest.raises(AccessRefused) as refused:
        world.vhost.subscribe("client", "a", 0, ann)
    assert (refused.value.kind, refused.value.name, refused.value.operation) == (
        "exchange",
        "amq.topic",
        "read",
    )
    assert world.vhost.mqtt_exchange.filter(b"a") is None


def test_a_filter_of_too_many_levels_and_a_missing_session_are_refused(world: World) -> None:
    world.vhost.session_queue("client", durable=False)
    with pytest.raises(InvalidPattern):
        world.vhost.subscribe("client", "/" * 200, 0, world.guest)
    with pytest.raises(NotFound):
        world.vhost.subscribe("nobody", "a", 0, world.guest)


def test_subscribing_elsewhere_flushes_no_route(world: World) -> None:
    """Clients that come and go with their own filters leave the routes of others as they are."""
    world.vhost.session_queue("monitor", durable=False)
    table = world.vhost.publisher(world.guest, ENC_MQTT5)
    missed = []
    for word in ("one", "two", "three"):
        world.vhost.subscribe("monitor", f"{word}/+/state", 0, world.guest)
        keys = [f"{word}/{index}/state".encode() for index in range(100)]
        for key in keys:
            assert table.route(key).routed
        misses = table.misses
        for index in range(100, 200):
            world.vhost.session_queue(f"c{index}", durable=True)
            world.vhost.subscribe(f"c{index}", f"{word}/{index}/#", 0, world.guest)
            world.vhost.subscribe(f"c{index}", f"{word}/{index}/command", 1, world.guest)
            world.vhost.delete_session(f"c{index}")
        for key in keys:
            table.route(key)
        missed.append(table.misses - misses)
    # `WORD/+/state` became durable for nobody; only keys that share a cell by chance are resolved again. In
    # one process of twenty that is the cell of WORD itself, and so of all its keys.
    assert min(missed) < 30
