"""Exchanges of type `x-recent-history`: fanouts that give the last messages to each new binding.

    x-recent-history-length     how many messages, 20 by default
    x-recent-history-no-store   header of a message, true: it is not kept for later bindings

The messages are in memory, as with RabbitMQ: a restart begins with none. Above `BYTES_MAX` the oldest
leave earlier than the length says. Repeating a binding brings nothing again.

Source: RabbitMQ's rabbit_exchange_type_recent_history (arguments, header and text).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from penstock.log_core.batch._batch import PERSISTENT, SECTIONS, Record
from penstock.router.errors import InvalidLength
from penstock.router.exchanges.exchanges import Exchange
from penstock.router.names import ENC_AMQP091, dotted, join_key_block, split_key_block, text

if TYPE_CHECKING:
    from penstock.router.arguments import Arguments
    from penstock.router.exchanges.entries import QueueEntry
    from penstock.router.vhost.state import VhostState

__all__ = ["BYTES_MAX", "Recent", "check_length", "hand_over"]

BYTES_MAX: Final = 16 << 20
"""Bytes of memory for the messages of one exchange: bodies, properties, and _OVERHEAD each."""
_OVERHEAD: Final = 512
_LENGTH: Final = "x-recent-history-length"
_NO_STORE: Final = "x-recent-history-no-store"


def check_length(arguments: Arguments) -> None:
    """Look at the arguments of such an exchange.

    Raises:
        InvalidLength: there is none of that many.

    """
    length = arguments.get(_LENGTH, 1)
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise InvalidLength(_LENGTH, length)


class Recent:
    """The last messages of one exchange, oldest first."""

    def __init__(self, arguments: Arguments, headers_of: Callable[[Record], Arguments]) -> None:
        """`arguments` passed `check_length`; `headers_of` decodes those of a message."""
        length = arguments.get(_LENGTH, 20)
        assert isinstance(length, int)
        self._most = length
        self._headers_of = headers_of
        self._messages: deque[Record] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Record]:
        return iter(tuple(self._messages))

    def note(self, message: Record) -> None:
        """A message came through the exchange."""
        if _NO_STORE.encode() in message.props and self._headers_of(message).get(_NO_STORE) is True:
            return
        self._messages.append(message)
        self._bytes += _size(message)
        while len(self._messages) > self._most or self._bytes > BYTES_MAX:
            self._bytes -= _size(self._messages.popleft())


def _size(message: Record) -> int:
    return len(message.body) + len(message.props) + len(message.key) + _OVERHEAD


def hand_over(vhost: VhostState, source: Exchange, destination: QueueEntry | Exchange) -> int:
    """Publish what `source` keeps to what was newly bound to it. The LSN to wait for."""
    lsn = 0
    for message in source.recent or ():
        if isinstance(destination, Exchange):
            key = join_key_block(destination.name, _routing_key(message))
        else:
            key = join_key_block("", destination.name)
        route = vhost.publishing.route(None, ENC_AMQP091, key, vhost.headers_of(message))
        if route.error is not None or not route.routed:
            continue
        flags, priority = message.flags & (PERSISTENT | SECTIONS), message.priority
        what = (message.key, message.props, message.body, flags, priority, message.enc, message.ttl)
        published = vhost.publishing.append(route, *what, message.origin)
        if flags & PERSISTENT and route.durable:
            lsn = published.lsn
    if lsn:
        vhost.broker.tick.schedule()
    return lsn


def _routing_key(message: Record) -> str:
    if message.enc != ENC_AMQP091:
        return text(dotted(message.key))
    parts = split_key_block(message.key)
    assert parts is not None  # it was routed by it
    return text(parts[1])
