"""One channel, the session's side: what its methods share, the order of its replies, its end.

    open ── error ──> closing ── close-ok ──> gone            we closed it: everything but the answer is
    ignored
      └──── channel.close ──> answered in its order, gone     the client closed it

Owns its consumers and the meaning of "" as a queue name. Per message nothing happens here: that is
`_channel.pyx`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.protocols.amqp.channel.reply_order import ReplyOrder
from penstock.protocols.amqp.channel.timeouts import Timeouts
from penstock.protocols.amqp.codec._channel import Channel as Core
from penstock.protocols.amqp.codec._channel import Consumer
from penstock.protocols.amqp.codec.errors import AmqpError, answer, soft
from penstock.protocols.amqp.codec.methods import Index, encode
from penstock.protocols.headers.firehose import Place, delivered
from penstock.protocols.net.connection_info import Totals
from penstock.protocols.properties.values import Value
from penstock.router.errors import AccessRefused
from penstock.router.publishing.refused_numbers import RefusedNumbers

if TYPE_CHECKING:
    from penstock.protocols.amqp.channel.direct_reply import ReplyConsumer
    from penstock.protocols.amqp.channel.transaction import Transaction
    from penstock.protocols.amqp.session.session import Session
    from penstock.router.authorization.identity import Actor
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Channel", "channel_totals"]


def channel_totals(core: Core) -> Totals:
    """The messages that the channel moved since it was opened."""
    return Totals(
        published=core.published,
        awaiting_confirm=core.published_seq,
        confirmed=core.confirmed_seq,
        dropped=core.dropped,
        returned=core.returned,
        delivered=core.delivered,
        delivered_auto=core.delivered_auto,
        redelivered=core.redelivered,
        got=core.got,
        got_auto=core.got_auto,
        get_empty=core.get_empty,
        acknowledged=core.acked,
    )


class Channel:
    """See the module."""

    def __init__(self, session: Session, number: int) -> None:
        self.session = session
        self.number = number
        self.core = Core(number, session.out, session.frame_max, self, session.dirty)
        """Tags, confirms and content under way, in C."""
        self.core.sink = session.sink
        self.gate = ReplyOrder()
        self.consumers: dict[str, Consumer] = {}
        """By tag; a consumer stands here from its consume to its cancel."""
        self.replies: ReplyConsumer | None = None
        """The consumer of direct replies."""
        self.transaction: Transaction | None = None
        """Since tx.select: what was published and not committed."""
        self.unsent = RefusedNumbers()
        """Numbered messages that were refused."""
        self.prefetch = 0
        """Of consumers that will be made; 0 = no limit."""
        self._held_cancels: list[str] | None = None
        self.last_queue = ""
        """The queue that "" stands for."""
        self.timeouts = Timeouts()
        self.turn_firehose()

    @property
    def vhost(self) -> Vhost:
        return self.session.vhost

    @property
    def actor(self) -> Actor:
        return self.session.actor

    # The firehose

    def turn_firehose(self) -> None:
        """Tell of deliveries, or not, as the vhost's firehose is on or off."""
        self.core.tap = (lambda *what: delivered(self.place(), *what)) if self.vhost.firehose.is_on else None

    def place(self) -> Place:
        """Where the firehose saw a message."""
        return Place(self.vhost, self.session.name(), self.number, self.actor.identity.username)

    # Replies

    def reply(self, name: str, *values: Value, lsn: int = 0, nowait: bool = False) -> None:
        """Send the method in its order, when `lsn` is on disk. With `nowait` nothing is sent."""
        if not nowait:
            self.then(lambda: self.send(name, *values), lsn)

    def then(self, action: Callable[[], None], lsn: int = 0) -> None:
        """Do `action` when every reply before it left and `lsn` is on disk."""

        def done() -> bool:
            action()
            return True

        self.submit(done, lsn)

    def submit(self, action: Callable[[], bool], lsn: int = 0) -> None:
        """The same for an action that may take its time: see `ReplyOrder`."""
        self.gate.submit(lsn, action, self.session.synced_lsn)
        if self.gate.waiting:
            self.session.gated(self)

    def after(self, begin: Callable[[Callable[[bool], None]], None], action: Callable[[], None]) -> None:
        """Do `action` in its order, but not before what `begin` starts now has called what it is given.

        With False that failed: the channel is closed instead.
        """
        ready = waited = failed = False

        def done(ok: bool) -> None:
            nonlocal ready, failed
            ready, failed = True, not ok
            if waited:
                leave()
                self.go_on()

        def leave() -> bool:
            nonlocal waited
            if ready:
                if failed and not self.core.closing:
                    self.fail(soft(541, "what was published before cannot be read"), (0, 0))
                elif not self.core.closing:
                    action()
                return True
            waited = True
            return False

        begin(done)
        self.submit(leave)

    def go_on(self) -> None:
        """An action that took its time is done."""
        self.gate.go_on(self.session.synced_lsn)
        self.session.unstall()
        if self.gate.waiting:
            self.session.gated(self)

    def send(self, name: str, *values: Value) -> None:
        """Encode the method now."""
        self.session.out.write(encode(name, self.number, *values))
        self.session.dirty()

    # Names

    def queue_name(self, name: str) -> str:
        """The queue that a method means: "" is the one declared last on this channel."""
        if name:
            return name
        if not self.last_queue:
            raise soft(404, "no previously declared queue")
        return self.last_queue

    # Consumers

    def consumer_cancelled(self, consumer: Consumer, _reason: str) -> None:
        """The queue let go of a consumer: tell the client, if it wants to know."""
        tag = consumer.tag.decode("utf-8", "surrogateescape")
        if self.consumers.get(tag) is consumer:
            del self.consumers[tag]
            if not self.session.client_can("consumer_cancel_notify"):
                return
            if self._held_cancels is None:
                self.reply("basic.cancel", tag, True)
            else:
                self._held_cancels.append(tag)

    @contextmanager
    def answering_first(self) -> Iterator[None]:
        """Consumers of this channel that are cancelled within are told of it after its answer.

        A client that waits for the answer expects nothing else; RabbitMQ tells it in this order too.
        """
        held: list[str] = []
        self._held_cancels = held
        try:
            yield
        finally:
            self._held_cancels = None
            for tag in held:
                self.reply("basic.cancel", tag, True)

    def revoke_consumers(self) -> None:
        """Cancel the consumers whose queue the user may not read from any more; what they have stays theirs.

        As when the queue is deleted; a client that does not want to know of that loses the channel.
        """
        identity, vhost = self.actor.identity, self.vhost.name
        for consumer in list(self.consumers.values()):
            name = consumer.queue.name
            # One that is not attached yet is asked about when it is.
            if not consumer.attached or self.session.broker.authorizer.allow(identity, vhost, "read", name):
                continue
            self.detach(consumer)
            if not self.session.client_can("consumer_cancel_notify"):
                refused = AccessRefused("queue", name, vhost, identity.username, "read")
                self.fail(answer(refused), (60, 20))
                return
            self.consumer_cancelled(consumer, "the user may not read from the queue any more")

    def detach(self, consumer: Consumer) -> None:
        """Its queue gives it nothing more."""
        if consumer.attached:
            consumer.attached = False
            consumer.queue.detach(consumer)

    def end_replies(self) -> None:
        """Take no direct replies any more."""
        if self.replies is not None:
            self.replies.end()
            self.replies = None

    def wake_consumers(self) -> None:
        """There may be credit or room again."""
        for consumer in self.consumers.values():
            if consumer.attached:
                consumer.queue.credit_gained(consumer)
        if self.replies is not None:
            self.replies.wake()

    # The end

    def shut(self) -> None:
        """Give back everything: consumers first, so that nothing comes back to them."""
        self.core.closing = True
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            self.detach(consumer)
        self.core.requeue_all()
        self.end_replies()
        if self.transaction is not None:
            self.transaction.forget()
        self.session.codec.release(self.core)

    def fail(self, error: AmqpError, index: Index) -> None:
        """Close the channel because of `error`; channel.close leaves after the replies that are due."""
        self.shut()
        class_id, method_id = error.index or index
        self.reply("channel.close", error.code, error.reply_text, class_id, method_id)

    def close(self) -> None:
        """The client closed it."""
        self.shut()

        def answer() -> None:
            self.send("channel.close-ok")
            self.session.forget(self)

        self.then(answer)
