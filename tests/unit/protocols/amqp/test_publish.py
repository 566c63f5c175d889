"""Publishes that go through Python: properties taken apart, copies, refusals, headers exchanges."""

from __future__ import annotations

import pamqp.frame
import pytest
from pamqp import commands
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from penstock.protocols.amqp.codec.properties import decode_properties
from tests.support.amqp_session import Client, World


@pytest.fixture
def queue(client: Client) -> str:
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    return "q"


def ready(client: Client, queue: str) -> int:
    client.read()
    return client.session.vhost.queues[queue].queue.ready_count


def test_properties_are_read_as_pamqp_writes_them() -> None:
    written = {
        "content_type": "a",
        "content_encoding": "b",
        "headers": {"c": "one"},
        "delivery_mode": 2,
        "priority": 9,
        "correlation_id": "d",
        "reply_to": "e",
        "expiration": "60",
        "message_id": "f",
        "message_type": "g",
        "user_id": "h",
        "app_id": "i",
    }
    frame = pamqp.frame.marshal(ContentHeader(0, 0, Basic.Properties(**written)), 1)  # type: ignore[arg-type]
    block = frame[7 + 12 : -1]
    read = decode_properties(block)
    assert read == {("type" if name == "message_type" else name): value for name, value in written.items()}


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"expiration": "abc"}, "invalid expiration 'abc': no_integer"),
        ({"expiration": "-1"}, "invalid expiration '-1': {value_negative,-1}"),
        ({"expiration": "12abc"}, "invalid expiration '12abc': {leftover_string,\"abc\"}"),
        ({"expiration": "315360000001"}, "invalid expiration '315360000001': {value_too_large,315360000001}"),
        ({"user_id": "bob"}, "user_id property set to 'bob' but authenticated user was 'guest'"),
        (
            {"headers": {"CC": "q"}},
            'invalid message: {unacceptable_type_in_header,"CC",longstr}',
        ),
        ({"reply_to": "amq.rabbitmq.reply-to"}, "fast reply consumer does not exist"),
    ],
)
def test_properties_that_rabbitmq_refuses_close_the_channel(
    client: Client, queue: str, properties: dict[str, object], text: str
) -> None:
    client.publish("", "q", **properties)
    close = client.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (406, f"PRECONDITION_FAILED - {text}")
    assert (close.class_id, close.method_id) == (60, 40)
    assert ready(client, "q") == 0


def test_the_own_name_as_user_id_is_fine(client: Client, queue: str) -> None:
    client.publish("", "q", user_id="guest")
    assert ready(client, "q") == 1


def test_copies_go_to_their_queues_and_nobody_gets_two(client: Client, queue: str) -> None:
    for name in ("cc", "bcc"):
        client.call(1, commands.Queue.Declare(queue=name), commands.Queue.DeclareOk)
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish("", "q", b"m", headers={"CC": ["cc", "q", 7], "BCC": ["bcc"], "own": "kept"})
    assert client.expect(1, Basic.Ack).delivery_tag == 1
    for name in ("q", "cc", "bcc"):
        assert ready(client, name) == 1
        client.send(1, Basic.Get(queue=name, no_ack=True))
        client.read()
        _, header, body = client.message(1, Basic.GetOk)
        assert body == b"m"
        assert header.properties.headers == {"CC": ["cc", "q", 7], "own": "kept"}


def test_a_headers_exchange_looks_at_each_message(client: Client, queue: str) -> None:
    client.call(
        1, commands.Exchange.Declare(exchange="h", exchange_type="headers"), commands.Exchange.DeclareOk
    )
    client.call(
        1,
        commands.Queue.Bind(queue="q", exchange="h", arguments={"x-match": "all", "a": 1, "b": "two"}),
        commands.Queue.BindOk,
    )
    client.publish("h", "", headers={"a": 1})
    client.publish("h", "")
    assert ready(client, "q") == 0
    client.publish("h", "", headers={"a": 1, "b": "two", "c": None})
    assert ready(client, "q") == 1


def test_a_mandatory_message_no_headers_binding_wants_comes_back(client: Client, queue: str) -> None:
    client.call(
        1, commands.Exchange.Declare(exchange="h", exchange_type="headers"), commands.Exchange.DeclareOk
    )
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish("h", "k", b"back", mandatory=True, headers={"a": 1})
    client.read()
    assert client.message(1, Basic.Return)[2] == b"back"
    assert client.expect(1, Basic.Ack).delivery_tag == 1


def test_a_missing_exchange_closes_the_channel(client: Client) -> None:
    client.publish("none", "k")
    close = client.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (404, "NOT_FOUND - no exchange 'none' in vhost '/'")


def test_messages_of_one_read_before_a_refused_one_are_kept(world: World) -> None:
    client = world.client()
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    stream = b""
    for exchange in ("", "none", ""):
        header = ContentHeader(0, 1, Basic.Properties())
        for part in (Basic.Publish(exchange=exchange, routing_key="q"), header, pamqp.body.ContentBody(b"x")):
            stream += pamqp.frame.marshal(part, 1)
    client.raw(stream)
    assert client.expect(1, commands.Channel.Close).reply_code == 404
    assert ready(client, "q") == 1


def test_a_message_above_the_limit_closes_the_channel_by_what_it_announces(client: Client) -> None:
    most = client.world.options.max_message_bytes
    client.send(1, Basic.Publish(exchange="", routing_key="q"))
    client.send(1, ContentHeader(0, most + 1, Basic.Properties()))
    client.read()
    (close,) = (frame for _, frame in client.frames if isinstance(frame, commands.Channel.Close))
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 40)
    assert close.reply_text == (
        f"PRECONDITION_FAILED - message size {most + 1} is larger than configured max size {most}"
    )
