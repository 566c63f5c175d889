"""Channels and connections at their edges: what closing gives back, what ends them, methods without a reply.
Each holds on both brokers.
"""

from __future__ import annotations

import struct

import pytest
from pamqp import commands
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue
from pamqp.commands import Connection as ConnectionMethods

from tests.support.amqp_client import Closed
from tests.support.amqp_peer import Peer

# Closing


def test_closing_a_channel_gives_back_in_order_before_what_is_newer(peer: Peer, queue: str) -> None:
    peer.channel(2)
    peer.put(queue, *"abcd")
    peer.qos(3, channel=2)
    peer.consume(queue, channel=2)
    assert peer.take(3) == list("abc")
    peer.call(2, Channel.Close(0, "", 0, 0))
    peer.until_ready(queue, 4)
    got = [peer.get(queue) for _ in range(4)]
    assert [one and one[:2] for one in got] == [("a", True), ("b", True), ("c", True), ("d", False)]


def test_closing_a_connection_gives_back(amqp_port: int, unique: str) -> None:
    with Peer(amqp_port) as other:
        other.queue(unique, exclusive=False)
        other.put(unique, *"ab")
        other.consume(unique)
        assert other.take(2) == list("ab")
    with Peer(amqp_port) as peer:
        peer.until_ready(unique, 2)
        assert peer.get(unique) == ("a", True, 1)
        peer.call(1, Queue.Delete(queue=unique))


def test_a_method_on_a_closed_channel_ends_the_connection(peer: Peer) -> None:
    peer.channel(2)
    peer.call(2, Channel.Close(0, "", 0, 0))
    with pytest.raises(Closed) as closed:
        peer.call(2, Queue.Declare(exclusive=True))
    assert (closed.value.scope, closed.value.code) == ("connection", 504)


def test_after_an_error_everything_on_the_channel_is_ignored_until_close_ok(peer: Peer, queue: str) -> None:
    """In one write, so that it is under way before the client can know of the error."""
    nothing = Queue.Declare(queue="amq.none", passive=True)
    bind = Queue.Bind(queue="amq.none", exchange="amq.none")
    peer.send(1, nothing, bind, Basic.Ack(99), Queue.Delete(queue=queue))
    with pytest.raises(Closed) as closed:
        peer.call(1, Channel.Flow(True))
    assert (closed.value.scope, closed.value.code) == ("channel", 404)
    peer.channel(1)
    assert peer.ready(queue) == 0, "it was not deleted"


# Methods without a reply


def test_nowait_methods_have_no_reply_and_take_effect(peer: Peer, unique: str) -> None:
    peer.send(
        1,
        Exchange.Declare(exchange=unique, exchange_type="fanout", auto_delete=False, nowait=True),
        Exchange.Declare(exchange=f"{unique}.2", exchange_type="fanout", nowait=True),
        Exchange.Bind(destination=f"{unique}.2", source=unique, nowait=True),
        Queue.Declare(queue=unique, exclusive=True, nowait=True),
        Queue.Bind(queue=unique, exchange=f"{unique}.2", nowait=True),
    )
    peer.publish(1, unique, "", b"by both")
    peer.until_ready(unique, 1)
    peer.send(1, Queue.Purge(queue=unique, nowait=True))
    peer.until_ready(unique, 0)
    peer.send(1, Basic.Consume(queue=unique, consumer_tag="c", nowait=True))
    peer.publish(1, unique, "", b"again")
    assert peer.take(1) == ["again"]
    peer.send(
        1,
        Basic.Cancel("c", nowait=True),
        Exchange.Unbind(destination=f"{unique}.2", source=unique, nowait=True),
    )
    peer.publish(1, unique, "", b"to nobody")
    peer.publish(1, "", unique, b"straight")
    peer.until_ready(unique, 1)
    peer.send(
        1,
        Queue.Delete(queue=unique, nowait=True),
        Exchange.Delete(exchange=unique, nowait=True),
        Exchange.Delete(exchange=f"{unique}.2", nowait=True),
        Confirm.Select(nowait=True),
    )
    peer.publish(1, "", "nowhere")
    _, frame = peer.read()
    assert isinstance(frame, Basic.Ack) and frame.delivery_tag == 1
    with pytest.raises(Closed) as closed:
        peer.call(1, Queue.Declare(queue=unique, passive=True))
    assert closed.value.code == 404


def test_an_error_of_a_nowait_method_closes_all_the_same(peer: Peer) -> None:
    with pytest.raises(Closed) as closed:
        peer.send(1, Queue.Bind(queue="amq.none", exchange="amq.fanout", nowait=True))
        peer.call(1, Channel.Flow(True))
    assert (closed.value.scope, closed.value.code, closed.value.class_id, closed.value.method_id) == (
        "channel",
        404,
        50,
        20,
    )


# Connections


def test_a_heartbeat_or_method_on_the_wrong_channel_ends_the_connection(peer: Peer) -> None:
    with pytest.raises(Closed) as closed:
        peer.call(0, Queue.Declare(exclusive=True))
    assert (closed.value.scope, closed.value.code) == ("connection", 504)


def test_a_new_secret_is_accepted(peer: Peer) -> None:
    assert isinstance(
        peer.call(0, ConnectionMethods.UpdateSecret("guest", "a test")), ConnectionMethods.UpdateSecretOk
    )


def test_a_channel_opened_twice_ends_the_connection(peer: Peer) -> None:
    with pytest.raises(Closed) as closed:
        peer.channel(1)
    assert (closed.value.scope, closed.value.code) == ("connection", 504)


def test_flow_on_is_answered_and_off_is_not_implemented(peer: Peer) -> None:
    answered = peer.call(1, commands.Channel.Flow(True))
    assert isinstance(answered, Channel.FlowOk) and answered.active
    with pytest.raises(Closed) as closed:
        peer.call(1, commands.Channel.Flow(False))
    assert (closed.value.scope, closed.value.code) == ("connection", 540)


def test_an_access_request_is_answered_with_ticket_1(peer: Peer) -> None:
    arguments = b"\x05/data" + b"\x1f"  # realm, all five bits
    payload = struct.pack(">HH", 30, 10) + arguments
    peer.send_raw(struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce")
    answer = struct.pack(">HHH", 30, 11, 1)
    assert peer.read_exactly(8 + len(answer)) == struct.pack(">BHI", 1, 1, len(answer)) + answer + b"\xce"
