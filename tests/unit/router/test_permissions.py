"""A user's permissions: names per vhost, keys per topic exchange, and the notices of a change."""

from __future__ import annotations

from time import process_time

import pytest

from penstock.router.authorization.identity import Actor, Identity
from penstock.router.authorization.permissions import Authorizer, Permission, TopicPermission
from penstock.router.errors import AccessRefused, InvalidRegex, TopicRefused
from penstock.router.names import ENC_AMQP091, ENC_MQTT5, join_key_block
from tests.support.members import Member
from tests.unit.router.conftest import Connection, World


@pytest.fixture
def authorizer(world: World) -> Authorizer:
    return world.broker.authorizer


def writes(world: World, identity: Identity, key: str, exchange: str = "amq.topic") -> bool:
    """Whether a publish from AMQP is allowed."""
    error = world.vhost.route(identity, ENC_AMQP091, join_key_block(exchange, key)).error
    assert error is None or isinstance(error, AccessRefused)
    return error is None


def publishes(world: World, identity: Identity, topic: str) -> bool:
    """Whether a publish from MQTT is allowed, by the connection's route table and then by the route."""
    route = world.vhost.publisher(identity, ENC_MQTT5).route(topic.encode())
    if route.per_message:
        route = world.vhost.route(identity, ENC_MQTT5, topic.encode())
    return route.error is None


def test_without_a_topic_permission_every_key_may_be_used(world: World, authorizer: Authorizer) -> None:
    assert writes(world, world.guest, "a.b")
    authorizer.set_topic("guest", "/", "amq.topic", TopicPermission("^a\\.", "^r\\."))
    assert writes(world, world.guest, "a.b") and not writes(world, world.guest, "b.a")
    authorizer.clear_topic("guest", "/", "amq.topic")
    assert writes(world, world.guest, "b.a")


def test_an_empty_topic_pattern_matches_the_empty_key_only(world: World, authorizer: Authorizer) -> None:
    authorizer.set_topic("guest", "/", "amq.topic", TopicPermission("", ""))
    assert writes(world, world.guest, "") and not writes(world, world.guest, "a")


def test_topic_permissions_are_about_topic_exchanges_only(world: World, authorizer: Authorizer) -> None:
    for name in ("amq.direct", ""):
        authorizer.set_topic("guest", "/", name, TopicPermission("^x$", "^x$"))
        assert writes(world, world.guest, "y", name)
    world.queue("q")
    world.bind("q", "amq.direct", "y")


def test_a_refusal_names_the_key(world: World, authorizer: Authorizer) -> None:
    authorizer.set_topic("guest", "/", "amq.topic", TopicPermission("^a$", "^r$"))
    world.queue("q")
    world.exchange("x")
    with pytest.raises(TopicRefused) as refused:
        world.publish("amq.topic", "b")
    assert (refused.value.operation, refused.value.key) == ("write", b"b")
    with pytest.raises(TopicRefused) as refused:
        world.bind("q", "amq.topic", "b.#")
    assert (refused.value.operation, refused.value.key) == ("read", b"b.#")
    with pytest.raises(TopicRefused):
        world.vhost.bind_exchange("x", "amq.topic", "b", world.actor)
    world.bind("q", "amq.topic", "r")
    world.vhost.bind_exchange("x", "amq.topic", "r", world.actor)
    with pytest.raises(TopicRefused):
        world.vhost.unbind_queue("q", "amq.topic", "b", world.actor)
    with pytest.raises(TopicRefused):
        world.vhost.unbind_exchange("x", "amq.topic", "b", world.actor)


def test_variables_are_literal_text(world: World, authorizer: Authorizer) -> None:
    ann = Identity("a.*", client_id="(.+")
    authorizer.set("a.*", "/", Permission())
    authorizer.set_topic(
        "a.*", "/", "amq.topic", TopicPermission("^{username}/{vhost}/{client_id}$", "^{client_id}$")
    )
    allow = authorizer.allow_topic
    assert allow(ann, "/", "write", "amq.topic", b"a.*///(.+")
    assert not allow(ann, "/", "write", "amq.topic", b"axx///(.+")
    assert not allow(ann, "/", "write", "amq.topic", b"a.*///xx")
    assert allow(ann, "/", "read", "amq.topic", b"(.+")
    # A name that is no UTF-8 has no literal in a pattern: refused, whatever the key.
    assert not allow(ann.of_client("\udcff"), "/", "read", "amq.topic", b"\xff")


def test_a_client_id_in_a_pattern_makes_the_routes_its_own(world: World, authorizer: Authorizer) -> None:
    one, two = world.guest.of_client("one"), world.guest.of_client("two")
    before = world.vhost.publisher(one, ENC_MQTT5)
    assert before is world.vhost.publisher(two, ENC_MQTT5)
    authorizer.set_topic("guest", "/", "amq.topic", TopicPermission("^{client_id}\\."))
    for client, topic, allowed in ((one, "one/x", True), (one, "two/x", False), (two, "two/x", True)):
        assert publishes(world, client, topic) is allowed
        # A client that took the shared table before is checked for each message.
        assert before.route(topic.encode()).per_message
        assert (world.vhost.publish(client, ENC_MQTT5, topic.encode()).lsn > 0) is allowed
    authorizer.set_topic("guest", "/", "amq.topic", TopicPermission("^one"))
    assert not before.route(b"one/x").per_message and before.route(b"two/x").error is not None


def test_a_filter_is_read_by_its_binding_key(world: World, authorizer: Authorizer) -> None:
    authorizer.set_topic("guest", "/", "amq.topic", TopicPermission(read="^s\\.[^#]*$"))
    world.vhost.session_queue("c", durable=False)
    client = world.guest.of_client("c")
    world.vhost.subscribe("c", "s/+/x", 1, client)
    for topic_filter in ("#", "+/x", "s/#", "s"):
        with pytest.raises(TopicRefused):
            world.vhost.subscribe("c", topic_filter, 1, client)


def test_permissions_survive_a_restart_and_go_with_their_user_and_vhost(world: World) -> None:
    for name in ("ann", "bob"):
        world.broker.authorizer.set(name, "/", Permission("", "", "^x"))
        world.broker.authorizer.set_topic(name, "/", "amq.topic", TopicPermission("^a$", "^b$"))
    world.restart()
    authorizer = world.broker.authorizer
    assert authorizer.forget_user("bob")
    assert not authorizer.forget_user("bob")
    assert list(authorizer.topic_permissions()) == [("ann", "/", "amq.topic", TopicPermission("^a$", "^b$"))]
    assert ("ann", "/", Permission("", "", "^x")) in list(authorizer.permissions())
    assert authorizer.forget_vhost("/")
    assert not list(authorizer.permissions()) and not list(authorizer.topic_permissions())
    assert world.rows("permission") == world.rows("topic_permission") == 0


@pytest.mark.parametrize(
    "pattern", ["(", "[", "(?=a)", "(?<!b)a", "(a)\\1", "((a{100}){100}){100}", "a" * 5000, "\udcff"]
)
def test_an_invalid_pattern_is_refused_and_changes_nothing(world: World, pattern: str) -> None:
    authorizer = world.broker.authorizer
    with pytest.raises(InvalidRegex, match="regular expression"):
        authorizer.set("guest", "/", Permission(configure="^x$", write=pattern))
    with pytest.raises(InvalidRegex):
        authorizer.set_topic("guest", "/", "amq.topic", TopicPermission(read=pattern))
    assert authorizer.allow(world.guest, "/", "configure", "y")
    assert not list(authorizer.topic_permissions())


def test_no_pattern_takes_long(world: World) -> None:
    authorizer = world.broker.authorizer
    authorizer.set("guest", "/", Permission(configure="^(a+)+$"))
    started = process_time()
    assert not authorizer.allow(world.guest, "/", "configure", "a" * 40 + "b")
    # Backtracking takes a day here; RE2 some 60 us.
    assert process_time() - started < 30


def test_only_the_users_connections_in_the_vhost_are_told(world: World) -> None:
    guest, ann, gone = (Member(world, user) for user in ("guest", "ann", "guest"))
    told: list[tuple[str, str]] = []
    world.broker.on_permissions_changed.append(lambda user, vhost: told.append((user, vhost)))
    connections = world.broker.connections
    for member in (guest, ann, gone):
        connections.enter(member)
    connections.leave(gone)
    connections.leave(gone)
    world.broker.authorizer.set("guest", "/", Permission(read=""))
    world.broker.authorizer.set_topic("guest", "/", "amq.topic", TopicPermission())
    assert (guest.told, ann.told, gone.told) == (2, 0, 0)
    assert told == [("guest", "/")] * 2
    assert connections.of(user="ann") == [ann] and connections.of(vhost="/") == [guest, ann]
    assert not connections.of(vhost="other") and list(connections) == [guest, ann]


def test_a_publisher_that_kept_its_routes_is_asked_again(world: World) -> None:
    world.queue("q")
    ann = Actor(Identity("ann"), Connection())
    world.broker.authorizer.set("ann", "/", Permission())
    table = world.vhost.publisher(ann.identity, ENC_AMQP091)
    key = join_key_block("amq.topic", "a")
    assert table.route(key).error is None
    world.broker.authorizer.set_topic("ann", "/", "amq.topic", TopicPermission("^b"))
    assert isinstance(table.route(key).error, TopicRefused)
    world.broker.authorizer.clear_topic("ann", "/")
    assert table.route(key).error is None
