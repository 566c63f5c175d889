"""Class queue: declare, bind, unbind, purge, delete."""

from __future__ import annotations

from penstock.protocols.amqp.channel import Channel
from penstock.protocols.amqp.methods import QueueBind, QueueDeclare, QueueDelete, QueuePurge, QueueUnbind
from penstock.router.errors import NotFound
from penstock.router.names import wire
from penstock.router.replies import REPLY_TO, is_reply_key

__all__ = ["bind", "declare", "delete", "purge", "unbind"]


def declare(channel: Channel, method: QueueDeclare) -> None:
    if method.queue == REPLY_TO or is_reply_key(wire(method.queue)):
        # A server asks whether its client still waits for the reply.
        if not channel.vhost.replies.knows(method.queue):
            raise NotFound("queue", method.queue, channel.vhost.name)
        channel.reply("queue.declare-ok", method.queue, 0, 1, nowait=method.nowait)
        return
    declared = channel.vhost.declare_queue(
        method.queue,
        channel.actor,
        passive=method.passive,
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
        arguments=method.arguments,
    )
    channel.last_queue = declared.name
    channel.reply(
        "queue.declare-ok",
        declared.name,
        declared.message_count,
        declared.consumer_count,
        lsn=declared.lsn,
        nowait=method.nowait,
    )


def _ends(channel: Channel, method: QueueBind | QueueUnbind) -> tuple[str, str]:
    """Queue and routing key: with neither given, both are the name of the last declared queue."""
    queue = channel.queue_name(method.queue)
    key = queue if not method.queue and not method.routing_key else method.routing_key
    return queue, key


def bind(channel: Channel, method: QueueBind) -> None:
    queue, key = _ends(channel, method)
    lsn = channel.vhost.bind_queue(queue, method.exchange, key, channel.actor, method.arguments)
    channel.reply("queue.bind-ok", lsn=lsn, nowait=method.nowait)


def unbind(channel: Channel, method: QueueUnbind) -> None:
    queue, key = _ends(channel, method)
    lsn = channel.vhost.unbind_queue(queue, method.exchange, key, channel.actor, method.arguments)
    channel.reply("queue.unbind-ok", lsn=lsn)


def purge(channel: Channel, method: QueuePurge) -> None:
    count = channel.vhost.queue(channel.queue_name(method.queue), channel.actor).purge()
    channel.reply("queue.purge-ok", count, nowait=method.nowait)


def delete(channel: Channel, method: QueueDelete) -> None:
    deleted = channel.vhost.delete_queue(
        channel.queue_name(method.queue), channel.actor, if_unused=method.if_unused, if_empty=method.if_empty
    )
    channel.reply("queue.delete-ok", deleted.message_count, lsn=deleted.lsn, nowait=method.nowait)
