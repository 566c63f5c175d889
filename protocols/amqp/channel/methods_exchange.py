"""Class exchange: declare, delete, bind, unbind. The words of the vhost, answered in the words of AMQP."""

from __future__ import annotations

from penstock.protocols.amqp.channel.channel import Channel
from penstock.protocols.amqp.codec.methods import ExchangeBind, ExchangeDeclare, ExchangeDelete

__all__ = ["bind", "declare", "delete", "unbind"]


def declare(channel: Channel, method: ExchangeDeclare) -> None:
    lsn = channel.vhost.declare_exchange(
        method.exchange,
        method.type,
        channel.actor,
        passive=method.passive,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
    )
    channel.reply("exchange.declare-ok", lsn=lsn, nowait=method.nowait)


def delete(channel: Channel, method: ExchangeDelete) -> None:
    lsn = channel.vhost.delete_exchange(method.exchange, channel.actor, if_unused=method.if_unused)
    channel.reply("exchange.delete-ok", lsn=lsn, nowait=method.nowait)


def bind(channel: Channel, method: ExchangeBind) -> None:
    lsn = channel.vhost.bind_exchange(
        method.destination, method.source, method.routing_key, channel.actor, method.arguments
    )
    channel.reply("exchange.bind-ok", lsn=lsn, nowait=method.nowait)


def unbind(channel: Channel, method: ExchangeBind) -> None:
    lsn = channel.vhost.unbind_exchange(
        method.destination, method.source, method.routing_key, channel.actor, method.arguments
    )
    channel.reply("exchange.unbind-ok", lsn=lsn, nowait=method.nowait)
