"""Class queue: declare, bind, unbind, purge, delete."""

from __future__ import annotations

from penstock.protocols.amqp.channel.channel import Channel
from penstock.protocols.amqp.codec.methods import (
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from penstock.router.errors import NotFound
from penstock.router.names import wire
from penstock.router.publishing.direct_replies import REPLY_TO, is_reply_key

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
    if declared.history is not None:

        def answer() -> None:
            if not method.nowait:
                queue = declared.queue
                channel.send("queue.declare-ok", declared.name, queue.count_ready(), queue.consumer_count)

        channel.after(declared.history, answer)
        return
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
    bound = channel.vhost.bind_queue_since(queue, method.exchange, key, channel.actor, method.arguments)
    if bound.history is None:
        channel.reply("queue.bind-ok", lsn=bound.lsn, nowait=method.nowait)
        return

    def answer() -> None:
        if not method.nowait:
            channel.send("queue.bind-ok")

    channel.after(bound.history, answer)


def unbind(channel: Channel, method: QueueUnbind) -> None:
    queue, key = _ends(channel, method)
    lsn = channel.vhost.unbind_queue(queue, method.exchange, key, channel.actor, method.arguments)
    channel.reply("queue.unbind-ok", lsn=lsn)


def purge(channel: Channel, method: QueuePurge) -> None:
    count = channel.vhost.queue(channel.queue_name(method.queue), channel.actor).purge()
    channel.reply("queue.purge-ok", count, nowait=method.nowait)


def delete(channel: Channel, method: QueueDelete) -> None:
    name = channel.queue_name(method.queue)
    with channel.answering_first():
        deleted = channel.vhost.delete_queue(
            name, channel.actor, if_unused=method.if_unused, if_empty=method.if_empty
        )
        channel.reply("queue.delete-ok", deleted.message_count, lsn=deleted.lsn, nowait=method.nowait)
