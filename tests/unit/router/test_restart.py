"""Durable objects survive a restart with their messages, and nothing else does."""

from __future__ import annotations

import pytest

from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Permission
from penstock.router.errors import NotFound
from penstock.router.messages.retained import RetainedMessage
from penstock.router.names import ENC_AMQP091, ENC_MQTT5, join_key_block
from tests.unit.router.conftest import World


def test_durable_exchanges_queues_and_bindings_come_back_with_their_messages(world: World) -> None:
    world.exchange("x", "topic", durable=True, arguments={"alternate-exchange": "y", "n": 1})
    world.exchange("y", "fanout", durable=True, internal=True)
    world.queue("q", durable=True, arguments={"x-max-length": 5})
    world.queue("r", durable=True, auto_delete=True)
    world.bind("q", "x", "a.#", {"k": b"\xff"})
    world.bind("q", "x", "*.b")
    world.bind("r", "y")
    world.publish("x", "a.b", "1")
    world.publish("", "q", "2")
    world.publish("x", "nothing.matches.c", "3")
    world.publish("x", "a.b", "transient", flags=0)
    world.restart()
    vhost = world.vhost
    assert vhost.exchanges["x"].arguments == {"alternate-exchange": "y", "n": 1}
    assert (vhost.exchanges["y"].internal, vhost.exchanges["y"].type) == (True, "fanout")
    assert vhost.queues["r"].auto_delete
    assert vhost.queues["q"].arguments == {"x-max-length": 5}
    assert len(vhost.exchanges["x"].bindings) == 2
    world.publish("x", "a.b", "4")
    world.publish("", "q", "5")
    world.publish("x", "nothing", "6")
    assert world.read(vhost.queues["q"].queue) == ["1", "2", "4", "5"]
    assert world.read(vhost.queues["r"].queue) == ["3", "6"]
    world.vhost.unbind_queue("q", "x", "a.#", world.actor, {"k": b"\xff"})
    world.vhost.unbind_queue("q", "x", "*.b", world.actor)
    world.restart()
    assert not world.vhost.exchanges["x"].bindings


def test_a_redeclaration_after_a_restart_is_equivalent(world: World) -> None:
    world.queue("q", durable=True, arguments={"x-message-ttl": 5, "x-dead-letter-exchange": "d"})
    world.exchange("x", "headers", durable=True, auto_delete=True)
    world.restart()
    world.queue("q", durable=True, arguments={"x-message-ttl": 5, "x-dead-letter-exchange": "d"})
    world.exchange("x", "headers", durable=True, auto_delete=True)


def test_transient_things_are_gone_and_what_they_routed_to_durable_queues_is_not(world: World) -> None:
    world.exchange("x", "fanout")
    world.queue("q", durable=True)
    world.queue("t")
    world.queue("e", exclusive=True, durable=True)
    for name in ("q", "t", "e"):
        world.bind(name, "x")
        world.bind(name, "amq.direct", "k")
    world.publish("x", "", "1")
    world.publish("amq.direct", "k", "2")
    world.restart()
    assert world.vhost.queues.keys() == {"q"}
    assert "x" not in world.vhost.exchanges
    queue = world.vhost.queues["q"].queue
    assert world.publish("amq.direct", "k", "3")
    assert world.read(queue) == ["1", "2", "3"]
    # The feed of the transient exchange is read to its end: it goes.
    queue.purge()
    queue.persist()
    world.restart()
    assert len(world.log.feeds) == 1
    assert world.rows("feed") == 1


def test_feeds_keep_their_numbers_and_are_shared_again(world: World) -> None:
    for name in "ab":
        world.queue(name, durable=True)
        world.bind(name, "amq.topic", "k.#")
    key = join_key_block("amq.topic", "k.1")
    before = [feed.id for feed in world.vhost.route(world.guest, ENC_AMQP091, key).target.feeds]
    world.restart()
    route = world.vhost.route(world.guest, ENC_AMQP091, key)
    assert [feed.id for feed in route.target.feeds] == before
    assert route.durable
    for name in "ab":
        world.vhost.delete_queue(name, world.actor)
    assert (world.rows("feed"), world.rows("queue"), world.rows("binding")) == (0, 0, 0)
    world.restart()
    assert not world.log.feeds


def test_a_pattern_bound_again_after_an_unbind_gets_a_feed_of_its_own(world: World) -> None:
    """The first binding's feed is still read; after a restart it is not taken for the second one's."""
    world.queue("q", durable=True)
    world.bind("q", "amq.direct", "k")
    world.publish("amq.direct", "k", "1")
    world.vhost.unbind_queue("q", "amq.direct", "k", world.actor)
    world.restart()
    assert not world.publish("amq.direct", "k", "lost")
    world.bind("q", "amq.direct", "k")
    world.publish("amq.direct", "k", "2")
    world.restart()
    world.publish("amq.direct", "k", "3")
    assert world.read(world.vhost.queues["q"].queue) == ["1", "2", "3"]


def test_bindings_between_durable_exchanges_come_back(world: World) -> None:
    world.exchange("x", "direct", durable=True)
    world.exchange("y", "fanout", durable=True)
    world.exchange("t", "fanout")
    world.vhost.bind_exchange("y", "x", "k", world.actor)
    world.vhost.bind_exchange("t", "x", "k", world.actor)
    world.queue("q", durable=True)
    world.bind("q", "y")
    world.restart()
    assert len(world.vhost.exchanges["x"].bindings) == 1
    assert world.publish("x", "k", "1")
    world.vhost.delete_exchange("y", world.actor)
    world.restart()
    assert not world.vhost.exchanges["x"].bindings
    assert not world.publish("x", "k")


def test_durable_sessions_come_back_with_their_subscriptions_and_tags(world: World) -> None:
    world.vhost.session_queue("client", durable=True)
    world.vhost.session_queue("gone", durable=False)
    for client_id in ("client", "gone"):
        world.vhost.subscribe(client_id, "a/+", 3, world.guest)
    world.vhost.subscribe("client", "a/#", 4, world.guest)
    world.vhost.subscribe("client", "a/#", 5, world.guest)
    assert world.vhost.subscribe("client", "b", 6, world.guest).lsn > 0
    assert world.vhost.unsubscribe("client", "b").lsn > 0
    world.publish_mqtt("a/x", "1")
    world.restart()
    assert world.vhost.sessions.client_ids() == ["client"]
    world.publish_mqtt("a/y", "2")
    assert not world.publish_mqtt("b")
    queue = world.vhost.session("client")
    assert queue is not None
    assert world.read_tags(queue) == [("1", (3, 5)), ("2", (3, 5))]
    assert not world.vhost.subscribe("client", "a/+", 3, world.guest).new
    assert world.vhost.delete_session("client") > 0
    world.restart()
    assert world.vhost.session("client") is None
    assert world.rows("feed") == 0


def test_retained_messages_users_and_permissions_come_back(world: World) -> None:
    world.vhost.retained.set(RetainedMessage(b"a/b", ENC_MQTT5, b"", b"kept", 0, 0, 1, 0))
    world.broker.authorizer.set("ann", "/", Permission("", "", "^x"))
    world.broker.users.set_user("ann", "", ("monitoring",))
    world.broker.administration.put_vhost("other")
    world.restart()
    found = world.vhost.retained.get(b"a/b", 2)
    assert found is not None and found.body == b"kept"
    ann = world.broker.users.identity("ann")
    assert ann == Identity("ann", frozenset({"monitoring"}))
    assert world.broker.authorizer.allow(ann, "/", "read", "xy")
    assert not world.broker.authorizer.allow(ann, "/", "write", "xy")
    assert world.broker.vhosts.keys() == {"/", "other"}
    with pytest.raises(NotFound):
        world.broker.enter(ann, "none")


def test_names_that_are_no_utf8_come_back(world: World) -> None:
    name = b"q\xff\xfe".decode("utf-8", "surrogateescape")
    world.queue(name, durable=True)
    world.bind(name, "amq.direct", name)
    world.publish("", name, "1")
    world.restart()
    world.publish("amq.direct", name, "2")
    world.publish("", name, "3")
    assert world.read(world.vhost.queues[name].queue) == ["1", "2", "3"]


def test_queue_numbers_and_feeds_of_the_deleted_are_not_found_again(world: World) -> None:
    world.queue("q", durable=True)
    world.bind("q", "amq.fanout")
    world.publish("amq.fanout", "", "old")
    world.vhost.delete_queue("q", world.actor)
    world.queue("q", durable=True)
    world.bind("q", "amq.fanout")
    world.restart()
    world.publish("amq.fanout", "", "new")
    assert world.read(world.vhost.queues["q"].queue) == ["new"]


def test_a_membership_that_the_crash_took_is_had_from_the_bindings_position_on(world: World) -> None:
    """The record of the queue's cursor is lost, the binding is not."""
    world.queue("q", durable=True)
    world.publish("amq.direct", "k", "before")
    world.bind("q", "amq.direct", "k")
    world.publish("amq.direct", "k", "after")
    for key in list(world.log.tables.keys("cursor")):
        world.log.tables.delete("cursor", key)
    world.log.close_sync()
    world.broker.users.close()
    world._open()
    assert world.read(world.vhost.queues["q"].queue) == ["after"]
