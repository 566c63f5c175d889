"""Class tx: what a channel publishes and acknowledges between two commits happens at once, or not at all.

Published messages are checked when they come, and kept; acknowledgements are planned in the channel's kernel.
A commit routes every message, and only when all of them may be published, and find room, appends them and
the state of the queues whose deliveries were acknowledged as one atomic unit of the log: after a crash all
of it is there or none. commit-ok leaves when the unit is on disk; returned messages leave before it. A
rollback forgets the messages, and what was acknowledged awaits its acknowledgement again.

Everything kept here counts as messages under way of the connection, and is bounded with them.

Source: AMQP 0-9-1 class tx; RabbitMQ's rabbit_channel.
"""

from __future__ import annotations

from penstock.protocols.amqp.channel.channel import Channel
from penstock.protocols.amqp.channel.publish import Message, append, routed
from penstock.protocols.amqp.codec.errors import frame_fault, soft
from penstock.protocols.amqp.codec.methods import TxCommit, TxRollback, TxSelect
from penstock.router.publishing.capacity import Capacity, full

__all__ = ["Transaction", "commit", "rollback", "select"]


class Transaction:
    """The messages that a transactional channel published since its last commit or rollback."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._messages: list[Message] = []
        self._held = 0

    @property
    def count(self) -> int:
        """Messages that wait for the commit."""
        return len(self._messages)

    def publish(self, message: Message) -> None:
        """Keep a message for the commit.

        Raises:
            AmqpError: the connection has too much under way.

        """
        codec = self._channel.session.codec
        if not codec.hold(message.size):
            raise frame_fault("too_much_held", 1, b"", codec.held_max, codec.frame_max)
        self._held += message.size
        self._messages.append(message)

    def forget(self) -> None:
        """Drop the messages."""
        self._channel.session.codec.let_go(self._held)
        self._held = 0
        self._messages = []

    def commit(self) -> int:
        """Do it. The LSN to wait for; 0 when there was nothing that the log knows.

        Raises:
            RoutingError: an exchange refuses a message by now; nothing was done.
            AmqpError: a queue has no room for one; nothing was done.

        """
        channel = self._channel
        routes = [routed(channel, message) for message in self._messages]
        capacity = Capacity()
        for message, way in zip(self._messages, routes, strict=True):
            if (guard := capacity.refusing(way.route, len(message.body))) is not None:
                raise soft(406, f"partial tx completion: {full(guard)}")
        lsn = 0
        with channel.session.log.unit():
            for message, route in zip(self._messages, routes, strict=True):
                lsn = append(channel, message, route).lsn
            for queue in channel.core.settle_planned():
                lsn = max(lsn, queue.promise())
        self.forget()
        channel.core.feed_starved()
        return lsn


def select(channel: Channel, _: TxSelect) -> None:
    if channel.core.confirming:
        raise soft(406, "cannot switch from confirm to tx mode")
    channel.core.tx_select()
    channel.transaction = channel.transaction or Transaction(channel)
    channel.reply("tx.select-ok")


def commit(channel: Channel, _: TxCommit) -> None:
    channel.reply("tx.commit-ok", lsn=_transaction(channel).commit())


def rollback(channel: Channel, _: TxRollback) -> None:
    _transaction(channel).forget()
    channel.core.drop_planned()
    channel.reply("tx.rollback-ok")


def _transaction(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise soft(406, "channel is not transactional")
    return channel.transaction
