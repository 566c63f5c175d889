"""From the protocol header to connection.open-ok, and every way it can go wrong."""

from __future__ import annotations

from pathlib import Path

import pamqp.frame
import pytest
from pamqp import commands

from penstock.protocols.amqp.options import AmqpOptions
from penstock.protocols.amqp.session.handshake import HEADER
from penstock.protocols.amqp.session.state import State
from penstock.router.authorization.identity import Identity
from penstock.router.errors import AuthenticationRefused
from tests.support.amqp_session import Client, World


def test_a_client_comes_in(world: World) -> None:
    client = Client(world)
    assert client.session.state is State.RUNNING
    assert client.session.actor.identity == Identity("guest")
    client.nothing()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x01\x01\x08\x00",
        b"\x16\x03\x01\x02\x00",
    ],
)
def test_another_protocol_is_told_ours_and_closed(world: World, sent: bytes) -> None:
    client = Client(world, handshake=False)
    client.raw(sent)
    client.read()
    assert client.frames == [(0, HEADER)]
    assert client.session.ended is not None


def test_the_header_may_come_byte_by_byte(world: World) -> None:
    client = Client(world, handshake=False)
    client.raw(b"AMQP\x01\x01\x00\x09", cut=1)
    start = client.expect(0, commands.Connection.Start)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert set(start.mechanisms.split()) == {"PLAIN", "AMQPLAIN"}
    assert start.server_properties["product"] == "RabbitMQ"


def test_the_server_says_what_it_can(world: World) -> None:
    client = Client(world, handshake=False)
    client.raw(HEADER)
    properties = client.expect(0, commands.Connection.Start).server_properties
    assert properties["capabilities"]["publisher_confirms"] is True  # type: ignore[index,call-overload]
    assert properties["capabilities"]["direct_reply_to"] is True  # type: ignore[index, call-overload]
    assert str(properties["version"]).split(".")[0] == "3"


def test_amqplain_carries_a_table_without_its_size(world: World) -> None:
    client = Client(world, handshake=False)
    client.raw(HEADER)
    response = b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x03p\xffw"
    arguments = (
        b"\x00\x00\x00\x00" + b"\x08AMQPLAIN" + len(response).to_bytes(4, "big") + response + b"\x05en_US"
    )
    payload = b"\x00\x0a\x00\x0b" + arguments
    client.raw(b"\x01\x00\x00" + len(payload).to_bytes(4, "big") + payload + b"\xce")
    assert client.session.login is not None
    assert (client.session.login.user, client.session.login.password) == ("guest", b"p\xffw")


def test_a_refused_login_is_closed_with_403_when_the_client_can_take_it(world: World) -> None:
    client = Client(world, handshake=False)
    client.raw(HEADER)
    client.expect(0, commands.Connection.Start)
    client.send(
        0,
        commands.Connection.StartOk(
            client_properties={"capabilities": {"authentication_failure_close": True}}, response="\0a\0b"
        ),
    )
    client.session.refused(AuthenticationRefused("a", "credentials"))
    close = client.expect(0, commands.Connection.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (403, 0, 0)
    assert close.reply_text == (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile."
    )
    client.send(0, commands.Connection.CloseOk())
    assert client.session.ended is not None


def test_a_refused_login_of_an_old_client_just_ends(world: World) -> None:
    client = Client(world, handshake=False)
    client.raw(HEADER)
    client.expect(0, commands.Connection.Start)
    client.send(0, commands.Connection.StartOk(client_properties={}, response="\0a\0b"))
    client.session.refused(AuthenticationRefused("a", "credentials"))
    assert client.session.dropped is not None
    client.nothing()


@pytest.mark.parametrize("response", ["", "guest", "\0guest", "\0a\0b\0c"])
def test_a_malformed_plain_response_is_a_syntax_error(world: World, response: str) -> None:
    client = Client(world, handshake=False)
    client.raw(HEADER)
    client.expect(0, commands.Connection.Start)
    client.send(0, commands.Connection.StartOk(client_properties={}, response=response))
    assert client.expect(0, commands.Connection.Close).reply_code == 502


def test_nothing_is_legal_while_the_password_is_checked(world: World) -> None:
    client = Client(world, handshake=False)
    client.raw(HEADER)
    client.expect(0, commands.Connection.Start)
    client.send(0, commands.Connection.StartOk(client_properties={}, response="\0a\0b"))
    client.send(0, commands.Connection.TuneOk(0, 131072, 0))
    assert client.expect(0, commands.Connection.Close).reply_code == 503


def test_frames_before_tune_are_small(world: World) -> None:
    client = Client(world, handshake=False)
    client.raw(HEADER)
    client.expect(0, commands.Connection.Start)
    client.raw(b"\x01\x00\x00" + (8193).to_bytes(4, "big"))
    assert client.expect(0, commands.Connection.Close).reply_code == 501


@pytest.mark.parametrize(
    ("channel_max", "frame_max", "text"),
    [
        (
            2048,
            131072,
            "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)",
        ),
        (0, 131072, "negotiated channel_max = 0 is higher than the maximum allowed value (2047)"),
        (
            2047,
            131073,
            "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)",
        ),
        (2047, 0, "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"),
        (2047, 4095, "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"),
    ],
)
def test_tuning_outside_the_limits_is_not_allowed(
    world: World, channel_max: int, frame_max: int, text: str
) -> None:
    client = Client(world, handshake=False)
    client.start()
    client.send(0, commands.Connection.TuneOk(channel_max, frame_max, 0))
    close = client.expect(0, commands.Connection.Close)
    assert (close.reply_code, close.reply_text) == (530, f"NOT_ALLOWED - {text}")


def test_an_unknown_vhost_is_not_allowed(world: World) -> None:
    client = Client(world, handshake=False)
    client.start()
    client.send(0, commands.Connection.TuneOk(2047, 131072, 0))
    close = client.call(0, commands.Connection.Open("nope"), commands.Connection.Close)
    assert (close.reply_code, close.reply_text) == (530, "NOT_ALLOWED - vhost nope not found")
    assert (close.class_id, close.method_id) == (10, 40)


def test_a_client_that_closes_gets_its_answer_and_the_socket(world: World) -> None:
    client = Client(world)
    client.call(0, commands.Connection.Close(200, "bye", 0, 0), commands.Connection.CloseOk)
    assert client.session.ended == "the client closed: 200 bye"


def test_after_our_close_everything_but_the_answer_is_ignored(world: World) -> None:
    client = world.client()
    client.session.shutdown()
    close = client.expect(0, commands.Connection.Close)
    assert close.reply_code == 320
    assert close.reply_text == ("CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
    client.send(1, commands.Queue.Declare(queue="late"))
    client.publish("", "late")
    client.nothing()
    assert "late" not in world.broker.vhost("/").queues
    # Closes that crossed are answered.
    client.call(0, commands.Connection.Close(200, "", 0, 0), commands.Connection.CloseOk)
    client.send(0, commands.Connection.CloseOk())
    assert client.session.state is State.ENDED


def test_a_new_secret_is_acknowledged_while_there_is_such_a_user(world: World) -> None:
    client = Client(world)
    secret = commands.Connection.UpdateSecret(new_secret="fresh", reason="rotation")
    client.call(0, secret, commands.Connection.UpdateSecretOk)
    assert client.session.login is None and "administrator" in client.session.identity.tags
    world.broker.users.delete_user("guest")
    close = client.call(0, secret, commands.Connection.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (530, 10, 70)
    assert close.reply_text == "NOT_ALLOWED - New secret was refused by one of the backends"


def test_the_number_of_open_channels_is_limited(tmp_path: Path) -> None:
    world = World(tmp_path, AmqpOptions(channel_max=2))
    client = Client(world, channel_max=2)
    client.call(7, commands.Channel.Open(), commands.Channel.OpenOk)
    client.call(65535, commands.Channel.Open(), commands.Channel.OpenOk)
    close = client.call(0, commands.Channel.Close(200, "", 0, 0), commands.Connection.Close)
    assert close.reply_code == 504
    client = Client(world, channel_max=2)
    for number in (1, 2):
        client.call(number, commands.Channel.Open(), commands.Channel.OpenOk)
    client.send(3, commands.Channel.Open())
    close = client.expect(0, commands.Connection.Close)
    assert close.reply_text == (
        "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    )
    world.close()


def test_a_heartbeat_needs_no_answer_and_is_for_channel_0(world: World) -> None:
    client = Client(world)
    client.raw(pamqp.frame.marshal(pamqp.heartbeat.Heartbeat(), 0))
    client.nothing()
    client.raw(b"\x08\x00\x01\x00\x00\x00\x00\xce")
    assert client.expect(0, commands.Connection.Close).reply_code == 505


def test_the_server_writes_heartbeats(world: World) -> None:
    client = Client(world)
    client.session.heartbeat()
    assert client.out.take() == b"\x08\x00\x00\x00\x00\x00\x00\xce"
