"""Users, vhosts, permissions and limits as an administrator changes them: durable, and in force at once."""

from __future__ import annotations

import base64
import hashlib

import pytest

from penstock.log_core.maintenance.retention import Retention
from penstock.router.authentication.passwords import (
    exported_hash,
    hash_password,
    imported_hash,
    rabbitmq_hash,
    verify_password,
)
from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Permission, TopicPermission
from penstock.router.errors import AccessRefused, InvalidParameter, InvalidRegex, LimitReached, NotFound
from penstock.router.messages.retained import RetainedMessage
from penstock.router.names import ENC_AMQP091, join_key_block
from tests.support.members import Member
from tests.unit.router.conftest import World


def test_a_user_is_made_changed_and_deleted(world: World) -> None:
    admin = world.broker.administration
    assert admin.put_user("ann", "sha256:abc", ("monitoring",))
    assert not admin.put_user("ann", "sha256:abc", ("monitoring",))
    admin.set_permission("ann", "/", Permission("^a", "", ""))
    admin.set_topic_permission("ann", "/", "amq.topic", TopicPermission("^a"))
    admin.set_user_limits("ann", {"max-channels": 5})
    admin.put_user("ann", "sha256:def", ("policymaker",))
    world.restart()
    admin, users = world.broker.administration, world.broker.users
    assert users.stored("ann") == "sha256:def" and users.limits("ann") == {"max-channels": 5}
    assert users.identity("ann") == Identity("ann", frozenset({"policymaker"}))
    member = Member(world, "ann")
    world.broker.connections.enter(member)
    admin.put_user("ann", "", ("administrator",))
    assert member.told == 1 and not member.closed
    assert admin.delete_user("ann")
    assert member.closed == ["user 'ann' is deleted"]
    world.restart()
    assert world.broker.users.identity("ann") is None
    assert not [row for row in world.broker.authorizer.permissions() if row[0] == "ann"]
    assert not list(world.broker.authorizer.topic_permissions())
    with pytest.raises(NotFound, match="no user 'ann'"):
        world.broker.administration.delete_user("ann")


def test_permissions_need_their_user_and_their_vhost(world: World) -> None:
    admin = world.broker.administration
    admin.put_user("ann", "")
    for user, vhost, missing in (("bob", "/", "user 'bob'"), ("ann", "nope", "vhost 'nope'")):
        with pytest.raises(NotFound, match=f"no {missing}"):
            admin.set_permission(user, vhost, Permission())
        with pytest.raises(NotFound, match=f"no {missing}"):
            admin.clear_permission(user, vhost)
        with pytest.raises(NotFound, match=f"no {missing}"):
            admin.set_topic_permission(user, vhost, "amq.topic", TopicPermission())
        with pytest.raises(NotFound, match=f"no {missing}"):
            admin.clear_topic_permission(user, vhost)
    with pytest.raises(InvalidRegex):
        admin.set_permission("ann", "/", Permission("("))
    assert admin.set_permission("ann", "/", Permission())
    assert admin.clear_permission("ann", "/") and not admin.clear_permission("ann", "/")
    assert admin.set_topic_permission("ann", "/", "amq.topic", TopicPermission())
    assert admin.clear_topic_permission("ann", "/", "amq.topic")


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_names_have_a_length(world: World, name: str) -> None:
    with pytest.raises(InvalidParameter, match="1 to 255 bytes"):
        world.broker.administration.put_user(name, "")
    with pytest.raises(InvalidParameter, match="1 to 255 bytes"):
        world.broker.administration.put_vhost(name)


def test_a_vhost_may_keep_its_traffic_for_another_time(world: World) -> None:
    admin = world.broker.administration
    admin.put_vhost("v")
    usual = world.log.retention_of(world.broker.vhost("/").lp)
    lp = world.broker.vhost("v").lp
    assert world.log.retention_of(lp) == usual
    admin.set_vhost_limits("v", {"traffic-retention-seconds": 60, "traffic-retention-bytes": -1})
    assert world.log.retention_of(lp) == Retention(usual.keep_bytes, 60)
    world.restart()
    assert world.log.retention_of(lp) == Retention(usual.keep_bytes, 60)
    assert world.log.retention_of(0) == usual
    admin = world.broker.administration
    admin.set_vhost_limits("v", {"traffic-retention-bytes": 0})
    assert world.log.retention_of(lp) == Retention(0, 60)
    admin.clear_vhost_limits("v", "traffic-retention-seconds")
    assert world.log.retention_of(lp) == Retention(0, usual.keep_s)
    admin.delete_vhost("v")
    assert world.log.retention_of(lp) == usual


def test_a_vhost_keeps_what_is_said_of_it(world: World) -> None:
    admin = world.broker.administration
    assert admin.put_vhost("v", description="for tests", tags=["a", "b"], default_queue_type="quorum")
    assert not admin.put_vhost("v") and not admin.put_vhost("v", tags=("a", "b"))
    admin.put_vhost("v", description="changed")
    admin.set_vhost_limits("v", {"max-queues": 1, "max-connections": 2})
    admin.clear_vhost_limits("v", "max-connections")
    world.restart()
    vhost = world.broker.vhost("v")
    assert (vhost.metadata.description, vhost.metadata.tags) == ("changed", ("a", "b"))
    assert vhost.metadata.default_queue_type == "quorum" and vhost.limits == {"max-queues": 1}
    world.broker.administration.put_vhost("v", default_queue_type="undefined")
    assert vhost.metadata.default_queue_type == ""
    with pytest.raises(InvalidParameter, match="Unsupported queue type 'lazy'"):
        admin.put_vhost("w", default_queue_type="lazy")
    assert "w" not in world.broker.vhosts


def test_the_default_queue_type_is_that_of_durable_shared_queues(world: World) -> None:
    world.broker.administration.put_vhost("/", default_queue_type="quorum")
    assert world.queue("q", durable=True).arguments["x-queue-type"] == "quorum"
    assert world.queue("q", durable=True, arguments={"x-queue-type": "quorum"})
    assert world.queue("c", durable=True, arguments={"x-queue-type": "classic"})
    for options in ({}, {"durable": True, "exclusive": True}, {"durable": True, "auto_delete": True}):
        queue = world.queue(f"n{len(options)}{options.get('exclusive')}", **options)
        assert "x-queue-type" not in queue.arguments


def test_a_deleted_vhost_leaves_nothing(world: World) -> None:
    admin = world.broker.administration
    admin.put_vhost("v")
    admin.put_user("guest", "")
    admin.set_permission("guest", "v", Permission())
    before = {table: world.rows(table) for table in ("queue", "exchange", "binding", "feed", "retained")}
    vhost = world.broker.vhost("v")
    member = Member(world, "guest")
    member.vhost = vhost
    world.broker.connections.enter(member)
    actor = world.actor
    for name in ("x", "y"):
        vhost.declare_exchange(name, "direct", actor, durable=True, auto_delete=name == "y")
    vhost.declare_queue("q", actor, durable=True)
    vhost.declare_queue("e", actor, exclusive=True)
    vhost.bind_queue("q", "x", "k", actor)
    vhost.bind_exchange("x", "y", "k", actor)
    vhost.session_queue("c", durable=True)
    vhost.subscribe("c", "a/#", 1, world.guest)
    vhost.retained.set(RetainedMessage(b"a", 2, b"", b"x", 0, 0, 0, 0))
    table = vhost.publisher(world.guest, ENC_AMQP091)
    for exchange, key in (("x", "k"), ("", "q")):
        assert vhost.publish(world.guest, ENC_AMQP091, join_key_block(exchange, key)).route.routed
    assert admin.delete_vhost("v")
    assert member.closed == ["vhost 'v' is deleted"]
    assert isinstance(table.route(join_key_block("", "q")).error, AccessRefused)
    # The broker itself finds nothing there either.
    assert isinstance(vhost.route(None, ENC_AMQP091, join_key_block("x", "k")).error, NotFound)
    assert before == {table: world.rows(table) for table in before}
    world.restart()
    assert list(world.broker.vhosts) == ["/"]
    assert [row[:2] for row in world.broker.authorizer.permissions()] == [("guest", "/")]
    world.broker.administration.put_vhost("v")
    assert not world.broker.vhost("v").queues
    with pytest.raises(NotFound, match="no vhost 'w'"):
        world.broker.administration.delete_vhost("w")


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"max-bytes": 1}, "Unrecognised limit 'max-bytes'"),
        ({"max-connections": "5"}, "max-connections should be a number, actually was '5'"),
        ({"max-connections": True}, "should be a number"),
        ({"max-connections": 1 << 60}, "should be a number"),
    ],
)
def test_a_limit_is_a_known_number(world: World, limits: dict[str, object], why: str) -> None:
    admin = world.broker.administration
    admin.put_user("ann", "")
    with pytest.raises(InvalidParameter, match=why):
        admin.set_vhost_limits("/", limits)
    with pytest.raises(InvalidParameter, match=why):
        admin.set_user_limits("ann", limits)
    with pytest.raises(InvalidParameter, match="max-channels"):
        admin.set_vhost_limits("/", {"max-channels": 1})
    with pytest.raises(NotFound):
        admin.set_user_limits("bob", {})
    assert not world.vhost.limits and not world.broker.users.limits("ann")


def test_connections_are_limited_per_vhost_and_per_user(world: World) -> None:
    admin, connections = world.broker.administration, world.broker.connections
    admin.put_user("ann", "")
    admin.set_vhost_limits("/", {"max-connections": 2})
    admin.set_user_limits("ann", {"max-connections": 1})
    first = Member(world, "ann")
    connections.enter(first)
    with pytest.raises(LimitReached) as refused:
        connections.enter(Member(world, "ann"))
    assert (refused.value.limit, refused.value.most) == ("user-connections", 1)
    connections.enter(Member(world, "guest"))
    with pytest.raises(LimitReached) as refused:
        connections.enter(Member(world, "guest"))
    assert (refused.value.limit, refused.value.most) == ("vhost-connections", 2)
    connections.leave(first)
    connections.enter(first)
    admin.clear_vhost_limits("/")
    admin.clear_user_limits("ann", "max-connections")
    connections.enter(Member(world, "ann"))
    assert len(connections) == 3 and len(connections.of(user="ann", vhost="/")) == 2
    admin.set_vhost_limits("/", {"max-connections": -1})
    connections.enter(Member(world, "ann"))


def test_channels_are_limited_per_user(world: World) -> None:
    admin, connections = world.broker.administration, world.broker.connections
    admin.put_user("ann", "")
    for channels in (2, 1):
        member = Member(world, "ann")
        member.channel_count = channels
        connections.enter(member)
    connections.check_channel("ann")
    admin.set_user_limits("ann", {"max-channels": 4})
    connections.check_channel("ann")
    admin.set_user_limits("ann", {"max-channels": 3})
    with pytest.raises(LimitReached) as refused:
        connections.check_channel("ann")
    assert (refused.value.limit, refused.value.most) == ("user-channels", 3)
    connections.check_channel("guest")


def test_new_queues_are_limited_per_vhost(world: World) -> None:
    world.vhost.session_queue("c", durable=False)
    world.queue("q")
    world.broker.administration.set_vhost_limits("/", {"max-queues": 2})
    world.queue("q")
    with pytest.raises(LimitReached) as refused:
        world.queue("r")
    assert (refused.value.limit, refused.value.most, refused.value.name) == ("vhost-queues", 2, "r")
    world.vhost.delete_session("c")
    world.queue("r")


def test_hashes_go_out_as_they_came_in(world: World) -> None:
    for kind, size in (("sha256", 32), ("sha512", 64), ("md5", 16)):
        exported = base64.b64encode(b"salt" + hashlib.new(kind, b"salt" + b"secret").digest()).decode()
        assert len(base64.b64decode(exported)) == 4 + size
        algorithm = f"rabbit_password_hashing_{kind}"
        stored = rabbitmq_hash(exported, algorithm)
        assert verify_password(stored, b"secret") and not verify_password(stored, b"Secret")
        assert stored.startswith(f"{kind}:") and exported_hash(stored)[1] == algorithm
        assert rabbitmq_hash(*exported_hash(stored)) == stored
        for wrong in ("rabbit_password_hashing_sha1", "sha256", "rabbit_password_hashing_" + "x" * 5):
            with pytest.raises(ValueError, match="hashing_algorithm"):
                rabbitmq_hash(exported, wrong)
    with pytest.raises(ValueError, match="a password_hash is"):
        rabbitmq_hash(exported, "rabbit_password_hashing_sha256")
    own = hash_password(b"x")
    assert imported_hash(*exported_hash(own)) == own
    exported, algorithm = exported_hash(own)
    without = exported.partition(";")[0]
    for damaged in (exported[1:], exported[:-1], f"{exported}:", "30" + exported[2:], without[:-2]):
        with pytest.raises(ValueError):
            imported_hash(damaged, algorithm)
    assert imported_hash(without, algorithm), "of before there was SCRAM"
