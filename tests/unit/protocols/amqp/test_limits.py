"""Limits of vhosts and users, and what tags allow, in the words of AMQP."""

from __future__ import annotations

import pytest
from pamqp import commands

from penstock.router.authorization.permissions import Permission
from tests.support.amqp_session import Client, World


@pytest.fixture
def ann(world: World) -> Client:
    """A connection of ann, who may do everything."""
    world.broker.administration.put_user("ann", "")
    world.broker.authorizer.set("ann", "/", Permission())
    return world.client(user="ann")


def refused(world: World, **options: str) -> str:
    """The refusal that one more connection gets."""
    client = Client(world, handshake=False, **options)
    client.start()
    client.send(0, commands.Connection.TuneOk(2047, 131072, 0))
    close = client.call(0, commands.Connection.Open("/"), commands.Connection.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (530, 10, 40)
    return close.reply_text


def test_a_vhost_has_its_number_of_connections(world: World, ann: Client) -> None:
    world.broker.administration.set_vhost_limits("/", {"max-connections": 1})
    assert refused(world) == (
        "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached"
    )
    ann.send(0, commands.Connection.Close(200, "", 0, 0))
    world.client()


def test_a_user_has_its_number_of_connections(world: World, ann: Client) -> None:
    world.broker.administration.set_user_limits("ann", {"max-connections": 1})
    assert refused(world, user="ann") == (
        "NOT_ALLOWED - connection refused for user 'ann': user connection limit (1) is reached"
    )
    ann.session.lost()
    world.client(user="ann")
    world.client()


def test_a_user_has_its_number_of_channels(world: World, ann: Client) -> None:
    world.broker.administration.set_user_limits("ann", {"max-channels": 3})
    other = world.client(user="ann")
    ann.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    other.send(2, commands.Channel.Open())
    close = other.expect(0, commands.Connection.Close)
    assert close.reply_code == 530
    assert close.reply_text == (
        "NOT_ALLOWED - number of channels opened for user 'ann' has reached the maximum allowed user limit "
        "of (3)"
    )
    # Its own channel is free with it; a channel that is closed is too.
    ann.call(3, commands.Channel.Open(), commands.Channel.OpenOk)
    ann.call(3, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    ann.call(3, commands.Channel.Open(), commands.Channel.OpenOk)


def test_a_vhost_has_its_number_of_queues(world: World, ann: Client) -> None:
    world.broker.administration.set_vhost_limits("/", {"max-queues": 1})
    ann.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    ann.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    close = ann.call(1, commands.Queue.Declare(queue="r"), commands.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 50, 10)
    assert close.reply_text == (
        "PRECONDITION_FAILED - cannot declare queue 'r': queue limit in vhost '/' (1) is reached"
    )


def test_only_an_impersonator_may_publish_as_another(world: World, ann: Client) -> None:
    ann.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    world.broker.administration.put_user("ann", "", ("impersonator",))
    ann.publish("", "q", user_id="bob")
    message = ann.call(1, commands.Basic.Get(queue="q", no_ack=True), commands.Basic.GetOk)
    assert message.message_count == 0 and ann.frames.pop(0)[1].properties.user_id == "bob"
    del ann.frames[:]
    # A tag that is taken away holds for connections that are open.
    world.broker.administration.put_user("ann", "", ())
    ann.publish("", "q", user_id="bob")
    close = ann.expect(1, commands.Channel.Close)
    assert close.reply_text == (
        "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'ann'"
    )


def test_a_deleted_users_connections_are_closed(world: World, ann: Client) -> None:
    world.broker.administration.delete_user("ann")
    close = ann.expect(0, commands.Connection.Close)
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - user 'ann' is deleted")
    ann.nothing()


def test_a_deleted_vhosts_connections_are_closed(world: World) -> None:
    admin = world.broker.administration
    admin.put_vhost("v")
    admin.set_permission("guest", "v", Permission())
    client, other = world.client(vhost="v"), world.client()
    client.call(1, commands.Queue.Declare(queue="q", exclusive=True), commands.Queue.DeclareOk)
    admin.delete_vhost("v")
    close = client.expect(0, commands.Connection.Close)
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - vhost 'v' is deleted")
    client.nothing()
    other.nothing()
    client = Client(world, handshake=False)
    client.start()
    client.send(0, commands.Connection.TuneOk(2047, 131072, 0))
    close = client.call(0, commands.Connection.Open("v"), commands.Connection.Close)
    assert close.reply_text == "NOT_ALLOWED - vhost v not found"
