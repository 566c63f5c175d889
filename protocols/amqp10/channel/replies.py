"""Direct reply-to: a link from no queue, by which the client receives the replies to its requests.

The source is dynamic and has the capability `rabbitmq:volatile-queue`; its address in our attach is what a
request says in `reply-to`, in any protocol. Replies are not in the log, and are delivered at most once: those
that the client takes no longer are kept up to `_BACKLOG_MAX` bytes, and then dropped.

Source: RabbitMQ 4.2's direct reply-to; `router.publishing.direct_replies`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.protocols.amqp10.channel.settled_sender import SettledSender
from penstock.protocols.amqp10.codec.performatives import Attach, Source
from penstock.protocols.amqp10.messages.addresses import queue_address
from penstock.protocols.amqp10.messages.translate import amqp10_from_stored

if TYPE_CHECKING:
    from penstock.protocols.amqp10.channel.channel import Channel

__all__ = ["ReplyLink", "is_for_replies"]

_BACKLOG_MAX: Final = 16 << 20


def is_for_replies(source: object) -> bool:
    """Whether a receiver from `source` wants direct replies."""
    return isinstance(source, Source) and source.dynamic and "rabbitmq:volatile-queue" in source.capabilities


class ReplyLink(SettledSender):
    """See the module."""

    def __init__(self, channel: Channel, attach: Attach) -> None:
        source = attach.source
        assert isinstance(source, Source)
        super().__init__(channel, attach, source)
        self._replies = channel.session.vhost.replies
        self._address = self._replies.register(self._receive)
        source.address = queue_address(self._address)

    def _receive(self, key: bytes, props: bytes, body: bytes, sections: bool) -> None:
        payload = amqp10_from_stored(key, props, body, sections=sections)
        if not self.held or self.held + len(payload) <= _BACKLOG_MAX:
            self.add(payload)

    def detached(self) -> None:
        """The link is over: nobody waits for replies."""
        super().detached()
        self._replies.forget(self._address)
