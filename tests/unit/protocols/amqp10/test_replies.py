"""Direct reply-to over AMQP 1.0, and across to AMQP 0-9-1."""

from __future__ import annotations

from pamqp import commands

from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Detach,
    Released,
    Source,
    Target,
    Transfer,
)
from penstock.protocols.amqp10.messages import sections as s
from tests.support.amqp10_session import Peer
from tests.support.amqp_session import World

_REPLY = s.encode_section(s.PROPERTIES, [None, None, None, "a subject", None, "7"]) + s.encode_section(
    s.DATA, b"pong"
)


def _requester(peer: Peer) -> tuple[int, str]:
    """A receiver of replies: its handle, and the address that requests give."""
    handle = peer.attach(
        Source(dynamic=True, expiry_policy="link-detach", capabilities=("rabbitmq:volatile-queue",)),
        snd_settle_mode=1,
    )
    (attach,) = peer.got(Attach)
    assert attach.snd_settle_mode == 1
    address = attach.source.address
    assert address.startswith("/queues/amq.rabbitmq.reply-to.")
    return handle, address


def test_a_reply_comes_as_it_was_sent(world: World, peer: Peer) -> None:
    handle, address = _requester(peer)
    peer.credit(handle, 1)
    replier = Peer(world)
    replier.transfer(replier.attach(Target(address)), _REPLY)
    assert replier.outcomes() == [Accepted()]
    (transfer,) = peer.got(Transfer)
    assert (transfer.handle, transfer.settled) == (handle, True)
    (payload,) = peer.payloads
    message = s.parse_message(payload)
    assert (message.properties[3], message.properties[5], message.data) == ("a subject", "7", b"pong")


def test_a_message_may_name_the_address_of_a_reply_itself(world: World, peer: Peer) -> None:
    handle, address = _requester(peer)
    peer.credit(handle, 1)
    replier = Peer(world)
    replier.transfer(
        replier.attach(Target()),
        s.encode_section(s.PROPERTIES, [None, None, address]) + s.encode_section(s.DATA, b"pong"),
    )
    assert replier.outcomes() == [Accepted()]
    assert peer.bodies() == [b"pong"]


def test_replies_wait_for_credit(world: World, peer: Peer) -> None:
    handle, address = _requester(peer)
    replier = Peer(world)
    sender = replier.attach(Target(address))
    for number in range(3):
        replier.transfer(sender, s.encode_section(s.DATA, b"%d" % number))
    assert peer.bodies() == []
    peer.credit(handle, 2)
    assert peer.bodies() == [b"0", b"1"]


def test_nobody_waits_behind_the_end_of_the_link(world: World, peer: Peer) -> None:
    handle, address = _requester(peer)
    replier = Peer(world)
    sender = replier.attach(Target(address))
    peer.send(Detach(handle, True))
    replier.transfer(sender, _REPLY)
    assert replier.outcomes() == [Released()]
    replier.got()
    late = Peer(world)
    late.attach(Target(address))
    (detach,) = late.got(Detach)
    assert detach.error.condition == "amqp:not-found"


def test_requesters_of_0_9_1_get_replies_without_sections(world: World) -> None:
    client = world.client()
    client.call(
        1, commands.Basic.Consume(queue="amq.rabbitmq.reply-to", no_ack=True), commands.Basic.ConsumeOk
    )
    client.call(1, commands.Queue.Declare(queue="requests"), commands.Queue.DeclareOk)
    client.publish("", "requests", b"ping", reply_to="amq.rabbitmq.reply-to")
    replier = Peer(world)
    replier.credit(replier.attach(Source("requests")), 1)
    replier.got(Transfer)
    (request,) = (s.parse_message(payload) for payload in replier.payloads if payload)
    replier.transfer(replier.attach(Target(request.properties[4])), _REPLY)
    assert replier.outcomes() == [Accepted()]
    client.read()
    _, header, body = client.message(1, commands.Basic.Deliver)
    assert body == b"pong"
    assert header.properties.correlation_id == "7"
    assert not header.properties.headers


def test_repliers_of_0_9_1_reach_requesters(world: World, peer: Peer) -> None:
    handle, address = _requester(peer)
    peer.credit(handle, 1)
    client = world.client()
    client.publish("", address.removeprefix("/queues/"), b"pong")
    assert peer.bodies() == [b"pong"]
