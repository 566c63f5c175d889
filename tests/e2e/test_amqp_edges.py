"""What RabbitMQ does at the edges of methods that every client has: prefetch, recovery, cancelling, closing,
methods without a reply. Each holds on both brokers.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator

import pytest
from pamqp import commands
from pamqp.base import Frame
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue
from pamqp.commands import Connection as ConnectionMethods

from tests.support.amqp_client import Closed, Connection, Message

WAIT_S = 30.0
PUBLISHING = 9
"""The channel of `Peer.put`."""


class Peer(Connection):
    """A connection with channel 1 open that keeps what is delivered while it waits for something else."""

    def __init__(self, port: int) -> None:
        super().__init__(port, timeout_s=WAIT_S)
        self.delivered: list[Message] = []
        self._published = 0
        self.channel()

    def read(self) -> tuple[int, object]:
        while True:
            channel, frame = super().read()
            if not isinstance(frame, Basic.Deliver):
                return channel, frame
            _, header = super().read()
            size, body = header.body_size, b""  # type: ignore[attr-defined]
            while len(body) < size:
                body += super().read()[1].value  # type: ignore[attr-defined]
            self.delivered.append(Message(frame, header, body))  # type: ignore[arg-type]

    def queue(self, name: str = "", **options: bool) -> str:
        """Declare one of this connection's own."""
        declared = self.call(1, Queue.Declare(queue=name, **{"exclusive": True, **options}))
        assert isinstance(declared, Queue.DeclareOk)
        return declared.queue

    def put(self, queue: str, *bodies: str) -> None:
        """Publish by the default exchange; they are in the queue when this returns."""
        if not self._published:
            self.channel(PUBLISHING)
            self.call(PUBLISHING, Confirm.Select())
        for body in bodies:
            self.publish(PUBLISHING, "", queue, body.encode())
        self._published += len(bodies)
        confirmed = 0
        while confirmed < self._published:
            _, frame = self.read()
            assert isinstance(frame, Basic.Ack)
            confirmed = frame.delivery_tag

    def ready(self, queue: str, channel: int = 1) -> int:
        """How many messages wait."""
        declared = self.call(channel, Queue.Declare(queue=queue, passive=True))
        assert isinstance(declared, Queue.DeclareOk)
        return declared.message_count

    def until_ready(self, queue: str, count: int, channel: int = 1) -> None:
        """Wait until so many messages wait."""
        end = time.monotonic() + WAIT_S
        while (found := self.ready(queue, channel)) != count:
            assert time.monotonic() < end, f"{found} messages wait, not {count}"

    def take(self, count: int) -> list[str]:
        """The bodies of the next deliveries."""
        while len(self.delivered) < count:
            # A method that always has a reply lets deliveries through.
            self.call(1, Channel.Flow(True))
        taken, self.delivered = self.delivered[:count], self.delivered[count:]
        self.last = taken
        return [message.body.decode() for message in taken]

    def consume(self, queue: str, tag: str = "", channel: int = 1, **options: bool) -> None:
        """Consume with acknowledgements."""
        self.call(channel, Basic.Consume(queue=queue, consumer_tag=tag, **options))

    def qos(self, count: int, *, channel: int = 1, shared: bool = False) -> None:
        """basic.qos."""
        self.call(channel, Basic.Qos(0, count, shared))

    def get(self, queue: str, channel: int = 1) -> tuple[str, bool, int] | None:
        """basic.get: body, redelivered and delivery tag, or None."""
        self.send(channel, Basic.Get(queue=queue))
        _, frame = self.read()
        if isinstance(frame, Basic.GetEmpty):
            return None
        assert isinstance(frame, Basic.GetOk)
        self.read()
        _, body = self.read()
        return body.value.decode(), frame.redelivered, frame.delivery_tag  # type: ignore[attr-defined]


@pytest.fixture
def peer(amqp_port: int) -> Iterator[Peer]:
    with Peer(amqp_port) as peer:
        yield peer


@pytest.fixture
def queue(peer: Peer) -> str:
    return peer.queue()


# basic.qos


def test_a_prefetch_of_zero_is_no_limit(peer: Peer, queue: str) -> None:
    peer.qos(1)
    peer.qos(0)
    peer.consume(queue)
    peer.put(queue, *(str(i) for i in range(50)))
    assert peer.take(50) == [str(i) for i in range(50)]


def test_a_prefetch_is_each_new_consumers_own(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcdefghi")
    peer.qos(2)
    peer.consume(queue, "two")
    peer.until_ready(queue, 7)
    peer.qos(3)
    peer.consume(queue, "three")
    peer.until_ready(queue, 4)
    assert sorted(peer.take(5)) == list("abcde")
    per = [message.method.consumer_tag for message in peer.last]  # type: ignore[attr-defined]
    assert (per.count("two"), per.count("three")) == (2, 3)


def test_a_global_prefetch_is_shared_by_the_channels_consumers(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcdef")
    peer.qos(3, shared=True)
    peer.consume(queue, "one")
    peer.consume(queue, "other")
    peer.until_ready(queue, 3)
    peer.take(3)
    peer.send(1, Basic.Ack(1))
    peer.until_ready(queue, 2)


def test_both_prefetches_hold_together(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcdefgh")
    peer.qos(2)
    peer.qos(3, shared=True)
    peer.consume(queue, "one")
    peer.until_ready(queue, 6)
    peer.consume(queue, "other")
    peer.until_ready(queue, 5)


def test_a_global_prefetch_that_grows_or_ends_holds_at_once(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcdefgh")
    peer.qos(1, shared=True)
    peer.consume(queue)
    peer.until_ready(queue, 7)
    peer.qos(3, shared=True)
    peer.until_ready(queue, 5)
    peer.qos(0, shared=True)
    peer.until_ready(queue, 0)
    assert peer.take(8) == list("abcdefgh")


def test_a_global_prefetch_below_what_is_out_waits_for_acknowledgements(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcdef")
    peer.qos(4, shared=True)
    peer.consume(queue)
    assert peer.take(4) == list("abcd")
    peer.qos(2, shared=True)
    peer.send(1, Basic.Ack(2, multiple=True))
    assert peer.ready(queue) == 2, "two are out, and two may be"
    peer.send(1, Basic.Ack(3))
    peer.until_ready(queue, 1)


def test_what_was_got_does_not_count(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abc")
    peer.qos(1)
    assert peer.get(queue) == ("a", False, 1)
    peer.consume(queue)
    peer.until_ready(queue, 1)
    assert peer.take(1) == ["b"]


def test_without_acknowledgements_there_is_no_prefetch(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcde")
    peer.qos(1)
    peer.consume(queue, no_ack=True)
    assert peer.take(5) == list("abcde")
    assert peer.ready(queue) == 0


def test_the_prefetch_of_one_channel_is_not_anothers(peer: Peer, queue: str) -> None:
    peer.channel(2)
    peer.put(queue, *"abcdef")
    peer.qos(1)
    peer.consume(queue, channel=2)
    peer.until_ready(queue, 0)
    assert peer.take(6) == list("abcdef")


# basic.recover


def test_recover_gives_all_of_the_channel_back_in_order(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcd")
    for _ in range(3):
        peer.get(queue)
    peer.send(1, Basic.Ack(2))
    peer.call(1, Basic.Recover(True))
    peer.until_ready(queue, 3)
    got = [peer.get(queue) for _ in range(3)]
    assert [(body, again) for body, again, _ in got if body] == [("a", True), ("c", True), ("d", False)]  # type: ignore[misc]


def test_recover_gives_a_consumer_its_own_again(peer: Peer, queue: str) -> None:
    peer.put(queue, *"ab")
    peer.consume(queue)
    assert peer.take(2) == list("ab")
    peer.call(1, Basic.Recover(True))
    assert peer.take(2) == list("ab")
    assert [m.method.redelivered for m in peer.last] == [True, True]  # type: ignore[attr-defined]
    assert [m.method.delivery_tag for m in peer.last] == [3, 4]  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")
def test_recover_async_has_no_reply(peer: Peer, queue: str) -> None:
    peer.put(queue, "a")
    peer.get(queue)
    peer.send(1, Basic.RecoverAsync(True))
    peer.until_ready(queue, 1)


@pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")
@pytest.mark.parametrize("method", [Basic.Recover, Basic.RecoverAsync])
def test_recover_without_requeue_is_not_implemented(
    peer: Peer, queue: str, method: Callable[[bool], Frame]
) -> None:
    with pytest.raises(Closed) as closed:
        peer.send(1, method(False))
        peer.call(1, Channel.Flow(True))
    assert (closed.value.scope, closed.value.code) == ("connection", 540)


# basic.cancel


def test_what_a_cancelled_consumer_has_stays_out_until_it_is_acknowledged(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abc")
    peer.qos(2)
    peer.consume(queue, "c")
    assert peer.take(2) == list("ab")
    peer.call(1, Basic.Cancel("c"))
    assert peer.ready(queue) == 1
    peer.send(1, Basic.Ack(1), Basic.Nack(2, requeue=True))
    peer.until_ready(queue, 2)
    assert [peer.get(queue), peer.get(queue)] == [("b", True, 3), ("c", False, 4)]


def test_closing_the_channel_gives_back_what_a_cancelled_consumer_had(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abc")
    peer.channel(2)
    peer.consume(queue, "c", channel=2)
    assert peer.take(3) == list("abc")
    peer.call(2, Basic.Cancel("c"))
    peer.call(2, Channel.Close(0, "", 0, 0))
    peer.until_ready(queue, 3)
    assert [peer.get(queue), peer.get(queue), peer.get(queue)] == [
        ("a", True, 1),
        ("b", True, 2),
        ("c", True, 3),
    ]


def test_a_cancelled_tag_can_be_used_again(peer: Peer, queue: str) -> None:
    peer.consume(queue, "c")
    peer.call(1, Basic.Cancel("c"))
    peer.consume(queue, "c")
    peer.put(queue, "a")
    assert peer.take(1) == ["a"]


def test_cancelling_an_unknown_tag_is_fine(peer: Peer) -> None:
    cancelled = peer.call(1, Basic.Cancel("nobody"))
    assert isinstance(cancelled, Basic.CancelOk) and cancelled.consumer_tag == "nobody"


def test_a_tag_used_twice_ends_the_connection(peer: Peer, queue: str) -> None:
    peer.consume(queue, "c")
    with pytest.raises(Closed) as closed:
        peer.consume(queue, "c")
    assert closed.value == Closed(
        "connection", 530, "NOT_ALLOWED - attempt to reuse consumer tag 'c'", 60, 20
    )


def test_one_tag_on_two_channels_is_two_consumers(peer: Peer, queue: str) -> None:
    peer.channel(2)
    peer.consume(queue, "c")
    peer.consume(queue, "c", channel=2)
    declared = peer.call(1, Queue.Declare(queue=queue, passive=True))
    assert isinstance(declared, Queue.DeclareOk) and declared.consumer_count == 2


# Settling


def test_rejected_messages_come_back_at_their_place(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abcd")
    for _ in range(3):
        peer.get(queue)
    peer.send(1, Basic.Reject(2, requeue=True), Basic.Reject(1, requeue=True))
    peer.until_ready(queue, 3)
    assert [peer.get(queue), peer.get(queue), peer.get(queue)] == [
        ("a", True, 4),
        ("b", True, 5),
        ("d", False, 6),
    ]


def test_nack_of_tag_zero_is_all(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abc")
    for _ in range(3):
        peer.get(queue)
    peer.send(1, Basic.Nack(0, multiple=True, requeue=True))
    peer.until_ready(queue, 3)


def test_ack_of_tag_zero_with_nothing_out_is_fine(peer: Peer, queue: str) -> None:
    peer.send(1, Basic.Ack(0, multiple=True))
    assert peer.ready(queue) == 0


def test_a_delivery_of_another_channel_cannot_be_acknowledged(peer: Peer, queue: str) -> None:
    peer.channel(2)
    peer.put(queue, "a")
    peer.get(queue, channel=2)
    with pytest.raises(Closed) as closed:
        peer.send(1, Basic.Ack(1))
        peer.call(1, Channel.Flow(True))
    assert closed.value == Closed("channel", 406, "PRECONDITION_FAILED - unknown delivery tag 1", 60, 80)
    peer.send(2, Basic.Ack(1))
    assert isinstance(peer.call(2, Channel.Flow(True)), Channel.FlowOk)


def test_a_delivery_can_be_acknowledged_once(peer: Peer, queue: str) -> None:
    peer.put(queue, *"ab")
    peer.get(queue)
    peer.get(queue)
    peer.send(1, Basic.Ack(2, multiple=True))
    with pytest.raises(Closed) as closed:
        peer.send(1, Basic.Ack(1))
        peer.call(1, Channel.Flow(True))
    assert (closed.value.scope, closed.value.code) == ("channel", 406)


def test_what_a_deleted_queue_had_delivered_can_be_acknowledged(peer: Peer, queue: str) -> None:
    peer.put(queue, *"ab")
    peer.get(queue)
    deleted = peer.call(1, Queue.Delete(queue=queue))
    assert isinstance(deleted, Queue.DeleteOk) and deleted.message_count == 1
    peer.send(1, Basic.Ack(1))
    assert isinstance(peer.call(1, Channel.Flow(True)), Channel.FlowOk)


def test_purge_leaves_what_is_out(peer: Peer, queue: str) -> None:
    peer.put(queue, *"abc")
    peer.get(queue)
    purged = peer.call(1, Queue.Purge(queue=queue))
    assert isinstance(purged, Queue.PurgeOk) and purged.message_count == 2
    peer.send(1, Basic.Nack(1, requeue=True))
    peer.until_ready(queue, 1)


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


# Declaring


def test_a_passive_declaration_looks_at_nothing_but_the_name(peer: Peer, unique: str) -> None:
    peer.queue(unique)
    passive = Queue.Declare(
        queue=unique, passive=True, durable=True, auto_delete=True, arguments={"x-max-length": 1}
    )
    assert isinstance(peer.call(1, passive), Queue.DeclareOk)
    exchange = Exchange.Declare(exchange="amq.fanout", exchange_type="direct", passive=True, internal=True)
    assert isinstance(peer.call(1, exchange), Exchange.DeclareOk)


def test_the_empty_name_is_the_queue_declared_last(peer: Peer) -> None:
    peer.queue()
    name = peer.queue()
    peer.call(1, Queue.Bind(queue="", exchange="amq.direct", routing_key=""))
    peer.publish(1, "amq.direct", name, b"by its name")
    peer.until_ready(name, 1)
    assert peer.get("") == ("by its name", False, 1)
    peer.consume("", "c")
    peer.publish(1, "", name, b"a")
    assert peer.take(1) == ["a"]
    assert isinstance(peer.call(1, Queue.Purge(queue="")), Queue.PurgeOk)
    assert isinstance(peer.call(1, Queue.Delete(queue="")), Queue.DeleteOk)


def test_a_name_may_have_255_bytes(peer: Peer) -> None:
    name = "q" * 255
    assert peer.queue(name) == name
    peer.put(name, "a")
    assert peer.get(name) == ("a", False, 1)


ARGUMENTS: dict[str, tuple[object, object, str]] = {
    "x-message-ttl": (100_000, 200_000, "signedint"),
    "x-expires": (100_000, 200_000, "signedint"),
    "x-max-length": (1_000, 2_000, "short"),
    "x-max-length-bytes": (2**40, 2**41, "long"),
    "x-max-priority": (5, 6, "byte"),
    "x-overflow": ("drop-head", "reject-publish", "longstr"),
    "x-dead-letter-exchange": ("amq.direct", "amq.fanout", "longstr"),
    "x-dead-letter-routing-key": ("a", "b", "longstr"),
    "x-single-active-consumer": (True, False, "bool"),
}
"""Argument: its value, another one, and what RabbitMQ calls their type: this client sends integers as the
smallest that holds them.
"""


def _said(value: object, type_: str, *, alone: bool) -> str:
    if value is None:
        return "none"
    text = str(value).lower() if type_ == "bool" else str(value)
    return f"the value '{text}' of type '{type_}'" if alone else f"'{text}'"


@pytest.mark.parametrize("other", ["another value", "none", "new"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_is_not_as_declared_is_named(peer: Peer, unique: str, name: str, other: str) -> None:
    first, second, type_ = ARGUMENTS[name]
    # A routing key needs its exchange.
    base = {"x-dead-letter-exchange": "amq.direct"} if name == "x-dead-letter-routing-key" else {}
    current, received = {
        "another value": (first, second),
        "none": (first, None),
        "new": (None, second),
    }[other]

    def declare(value: object) -> None:
        arguments = base if value is None else {**base, name: value}
        peer.call(1, Queue.Declare(queue=unique, exclusive=True, arguments=arguments))  # type: ignore[arg-type]

    declare(current)
    declare(current)
    with pytest.raises(Closed) as closed:
        declare(received)
    assert closed.value == Closed(
        "channel",
        406,
        f"PRECONDITION_FAILED - inequivalent arg '{name}' for queue '{unique}' in vhost '/': received "
        f"{_said(received, type_, alone=current is None)} but current is "
        f"{_said(current, type_, alone=received is None)}",
        50,
        10,
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


# Arguments of consumers and queues that mean little


def test_no_local_is_ignored(peer: Peer) -> None:
    queue = peer.queue()
    peer.call(1, Basic.Consume(queue=queue, consumer_tag="c", no_local=True, no_ack=True))
    peer.put(queue, "from this connection")
    while not peer.delivered:
        peer.sync(1)
    assert peer.delivered[0].body == b"from this connection"


@pytest.mark.parametrize("value", [1, 2])
def test_a_queue_version_is_accepted(peer: Peer, value: int) -> None:
    peer.call(1, Queue.Declare(queue="", exclusive=True, arguments={"x-queue-version": value}))
