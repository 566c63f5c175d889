"""Class channel: open and close; and who answers each method of an open channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.amqp.channel import methods_basic, methods_exchange, methods_queue, transaction
from penstock.protocols.amqp.channel.channel import Channel
from penstock.protocols.amqp.codec.errors import Dropped, hard
from penstock.protocols.amqp.codec.methods import KNOWN, Index, decode

if TYPE_CHECKING:
    from penstock.protocols.amqp.session.session import Session

__all__ = ["channel_method"]


def channel_method(
    session: Session, channel: Channel | None, number: int, index: Index, arguments: bytes
) -> None:
    """Answer the method `index` of channel `number`, whose arguments these are; None: it is not open.

    Raises:
        AmqpError: it is refused, or not legal here.
        TableError: its arguments are malformed.

    """
    if index[0] == 10:
        raise hard(503, "unimplemented method")
    if index not in KNOWN:
        raise Dropped(f"method {index[0]}.{index[1]} does not exist")
    if channel is None:
        if index != (20, 10):
            raise hard(504, "expected 'channel.open'")
        decode(index, arguments)
        _open_channel(session, number)
        return
    if channel.core.closing:
        _closing_channel_method(session, channel, index)
        return
    if index == (20, 10):
        raise hard(504, "second 'channel.open' seen")
    if index == (20, 40):
        channel.close()
        return
    handler = _HANDLERS.get(index)
    if handler is None:
        raise hard(503, "unimplemented method")
    handler(channel, decode(index, arguments))


def _open_channel(session: Session, number: int) -> None:
    if session.channel_max and session.codec.channel_count >= session.channel_max:
        raise hard(
            530,
            f"number of channels opened ({session.codec.channel_count}) has reached the negotiated "
            f"channel_max ({session.channel_max})",
            (0, 0),
        )
    session.broker.connections.check_channel(session.identity.username)
    channel = Channel(session, number)
    session.gone.channels_opened += 1
    session.codec.add_channel(channel.core)
    channel.reply("channel.open-ok", b"")


def _closing_channel_method(session: Session, channel: Channel, index: Index) -> None:
    if index == (20, 41):
        session.forget(channel)
    elif index == (20, 40):
        # Both closed at once: each answers the other.
        channel.reply("channel.close-ok")


_HANDLERS: Final[dict[Index, Callable[[Channel, Any], None]]] = {
    (20, 20): methods_basic.flow,
    (20, 21): methods_basic.flow_ok,
    (30, 10): methods_basic.access_request,
    (40, 10): methods_exchange.declare,
    (40, 20): methods_exchange.delete,
    (40, 30): methods_exchange.bind,
    (40, 40): methods_exchange.unbind,
    (50, 10): methods_queue.declare,
    (50, 20): methods_queue.bind,
    (50, 30): methods_queue.purge,
    (50, 40): methods_queue.delete,
    (50, 50): methods_queue.unbind,
    (60, 10): methods_basic.qos,
    (60, 20): methods_basic.consume,
    (60, 30): methods_basic.cancel,
    (60, 31): methods_basic.cancel_ok,
    (60, 70): methods_basic.get,
    (60, 100): methods_basic.recover_async,
    (60, 110): methods_basic.recover,
    (85, 10): methods_basic.confirm_select,
    (90, 10): transaction.select,
    (90, 20): transaction.commit,
    (90, 30): transaction.rollback,
}
"""Methods of an open channel that are not the kernel's; open, close and close-ok are above."""
