"""Direct reply-to: requests, replies, and who gets them."""

from __future__ import annotations

import pytest
from pamqp import commands
from pamqp.commands import Basic

from penstock.protocols.amqp.channel.direct_reply import BACKLOG_MAX
from penstock.router.names import join_key_block
from tests.support.amqp_session import Client, World

NAME = "amq.rabbitmq.reply-to"


@pytest.fixture
def asker(client: Client) -> Client:
    """Waits for replies on channel 1; queue "q" is there."""
    client.call(1, commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk)
    client.call(1, Basic.Consume(queue=NAME, consumer_tag="r", no_ack=True), Basic.ConsumeOk)
    return client


def ask(asker: Client, answerer: Client) -> str:
    """The address that an answerer gets with a request."""
    asker.publish("", "q", b"request", reply_to=NAME)
    answerer.send(1, Basic.Get(queue="q", no_ack=True))
    _, header, _ = answerer.message(1, Basic.GetOk)
    address = header.properties.reply_to
    assert isinstance(address, str) and address.startswith(NAME + ".")
    return address


def test_a_reply_reaches_its_requester_and_no_log(asker: Client, world: World) -> None:
    answerer = world.client()
    address = ask(asker, answerer)
    before = world.log.appender.next_lsn
    answerer.publish("", address, b"reply", correlation_id="7")
    method, header, body = asker.message(1, Basic.Deliver)
    assert (method.consumer_tag, method.delivery_tag, method.redelivered) == ("r", 1, False)
    assert (method.exchange, method.routing_key, body) == ("", address, b"reply")
    assert header.properties.correlation_id == "7"
    assert world.log.appender.next_lsn == before


def test_large_replies_are_cut_into_frames(asker: Client, world: World) -> None:
    answerer = world.client()
    address = ask(asker, answerer)
    body = bytes(300_000)
    answerer.publish("", address, b"", mandatory=False)
    assert asker.message(1, Basic.Deliver)[2] == b""
    answerer.session.vhost.replies.deliver((join_key_block("", address),), b"\0\0", body)
    assert asker.message(1, Basic.Deliver)[2] == body


def test_addresses_cannot_be_guessed(asker: Client, world: World) -> None:
    addresses = set()
    for number in range(2, 52):
        asker.call(number, commands.Channel.Open(), commands.Channel.OpenOk)
        asker.call(number, Basic.Consume(queue=NAME, no_ack=True), Basic.ConsumeOk)
        channel = asker.session.codec.channel(number)
        assert channel is not None
        addresses.add(channel.owner.replies.name)  # type: ignore[attr-defined]
    tokens = [address.removeprefix(NAME + ".") for address in addresses]
    assert len(addresses) == 50
    assert {len(token) for token in tokens} == {22}
    assert all(len({token[i] for token in tokens}) > 10 for i in range(21))


def test_a_wrong_address_reaches_nobody(asker: Client, world: World) -> None:
    other = world.client()
    address = ask(asker, other)
    other.publish("", address[:-1] + ("A" if address[-1] != "A" else "B"), b"x", mandatory=True)
    other.message(1, Basic.Return)
    asker.nothing()


def test_confirms_and_returns_of_replies(asker: Client, world: World) -> None:
    answerer = world.client()
    address = ask(asker, answerer)
    answerer.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    answerer.publish("", address, b"reply", delivery_mode=2, mandatory=True)
    assert answerer.message(1, Basic.Return)[0].reply_code == 312
    assert answerer.expect(1, Basic.Ack).delivery_tag == 1
    assert asker.bodies() == [b"reply"]


def test_only_for_requests_of_the_same_channel(asker: Client) -> None:
    asker.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    asker.publish("", "q", channel=2, reply_to=NAME)
    close = asker.expect(2, commands.Channel.Close)
    assert close.reply_text == "PRECONDITION_FAILED - fast reply consumer does not exist"


def test_an_address_may_be_passed_on(asker: Client, world: World) -> None:
    answerer = world.client()
    address = ask(asker, answerer)
    answerer.publish("", "q", b"for another", reply_to=address)
    answerer.send(1, Basic.Get(queue="q", no_ack=True))
    assert answerer.message(1, Basic.GetOk)[1].properties.reply_to == address


def test_acknowledgements_are_refused(client: Client) -> None:
    client.send(1, Basic.Consume(queue=NAME))
    close = client.expect(1, commands.Channel.Close)
    assert close.reply_text == "PRECONDITION_FAILED - reply consumer cannot acknowledge"


def test_one_per_channel(asker: Client) -> None:
    asker.send(1, Basic.Consume(queue=NAME, no_ack=True))
    close = asker.expect(1, commands.Channel.Close)
    assert close.reply_text == "PRECONDITION_FAILED - reply consumer already set"


def test_its_tag_is_taken(asker: Client) -> None:
    asker.send(1, Basic.Consume(queue="q", consumer_tag="r"))
    close = asker.expect(0, commands.Connection.Close)
    assert close.reply_text == "NOT_ALLOWED - attempt to reuse consumer tag 'r'"


@pytest.mark.parametrize("how", ["cancel", "close", "lost"])
def test_the_address_ends_with_the_consumer(asker: Client, world: World, how: str) -> None:
    answerer = world.client()
    address = ask(asker, answerer)
    declare = commands.Queue.Declare(queue=address, passive=True)
    assert answerer.call(1, declare, commands.Queue.DeclareOk).consumer_count == 1
    if how == "cancel":
        asker.call(1, Basic.Cancel("r"), Basic.CancelOk)
    elif how == "close":
        asker.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    else:
        asker.session.lost()
        world.clients.remove(asker)
    answerer.publish("", address, b"too late")
    answerer.send(1, declare)
    assert answerer.expect(1, commands.Channel.Close).reply_code == 404
    if how != "lost":
        asker.nothing()


def test_a_requester_that_does_not_read_is_bounded(asker: Client, world: World) -> None:
    answerer = world.client()
    address = join_key_block("", ask(asker, answerer))
    asker.read()
    asker.capacity = 0
    replies = answerer.session.vhost.replies
    body = bytes(1 << 20)
    for _ in range(2 * BACKLOG_MAX >> 20):
        replies.deliver((address,), b"\0\0", body)
    assert asker.out.size == 0
    asker.capacity = 1 << 30
    asker.session.writable()
    assert (BACKLOG_MAX >> 20) - 1 <= len(asker.bodies()) <= BACKLOG_MAX >> 20
