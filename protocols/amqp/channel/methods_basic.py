"""Classes basic, confirm, channel and access, as far as they are not the kernel's."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.protocols.amqp.channel import direct_reply, replay, retry, stream
from penstock.protocols.amqp.channel.channel import Channel
from penstock.protocols.amqp.codec._channel import Consumer
from penstock.protocols.amqp.codec.errors import answer, hard, soft
from penstock.protocols.amqp.codec.methods import (
    AccessRequest,
    Cancel,
    CancelOk,
    ConfirmSelect,
    Consume,
    Flow,
    FlowOk,
    Get,
    Qos,
    Recover,
    RecoverAsync,
    encode,
)
from penstock.router.errors import InvalidArgument
from penstock.router.names import server_name
from penstock.router.publishing.direct_replies import REPLY_TO
from penstock.router.queues.arguments import queue_type
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.errors import ConsumerRefused
from penstock.subscriptions.streams.stream import Stream
from penstock.subscriptions.tick._consumer_path import ConsumerFastPath

__all__ = [
    "access_request",
    "cancel",
    "cancel_ok",
    "confirm_select",
    "consume",
    "flow",
    "flow_ok",
    "get",
    "qos",
    "recover",
    "recover_async",
]


def qos(channel: Channel, method: Qos) -> None:
    if method.prefetch_size:
        raise hard(540, f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.core.limit = method.prefetch_count
        channel.core.feed_starved()
    else:
        # RabbitMQ: applied separately to each *new* consumer on the channel.
        channel.prefetch = method.prefetch_count
    channel.reply("basic.qos-ok")


# Consuming


def consume(channel: Channel, method: Consume) -> None:
    if method.consumer_tag in channel.consumers or (
        channel.replies is not None and method.consumer_tag == channel.replies.tag
    ):
        raise hard(530, f"attempt to reuse consumer tag '{method.consumer_tag}'")
    if method.queue == REPLY_TO:
        direct_reply.consume(channel, method)
        return
    vhost = channel.vhost
    name = channel.queue_name(method.queue)
    queue = vhost.queue(name, channel.actor)
    tag = method.consumer_tag or server_name("amq.ctag-")
    priority = method.arguments.get("x-priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidArgument("queue", name, vhost.name, "x-priority", priority, "expected_integer")
    source: stream.Source | replay.Source | None = None
    if isinstance(queue, Stream):
        source = stream.source(channel, queue, method)
    elif stream.OFFSET in method.arguments:
        type_ = queue_type(vhost.queues[name].arguments, name, vhost.name)
        raise InvalidArgument(
            "queue", name, vhost.name, stream.OFFSET, method.arguments[stream.OFFSET], "not_for_type", type_
        )
    elif replay.ARGUMENT in method.arguments:
        source = replay.source(channel, queue, method)
    consumer = Consumer(
        channel.core,
        tag.encode("utf-8", "surrogateescape"),
        queue,
        method.no_ack,
        channel.prefetch,
        max(min(priority, 2**31 - 1), -(2**31)),
        channel.session.output_capacity,
        channel.consumer_cancelled,
    )
    consumer.named = channel.session.name
    if source is None:
        consumer.way = ConsumerFastPath
    channel.consumers[tag] = consumer
    retry.watch(channel, queue)

    def start() -> None:
        if channel.consumers.get(tag) is not consumer:  # cancelled before its consume-ok was due
            if not method.nowait:
                channel.send("basic.consume-ok", tag)
            return
        try:
            # Permissions may have changed since.
            vhost.queue(name, channel.actor)
            if source is not None:
                source.give(consumer)
            consumer.queue.attach(consumer, exclusive=method.exclusive)
        except PenstockError as error:
            del channel.consumers[tag]
            refused = isinstance(error, ConsumerRefused)
            text = f"queue '{queue.name}' in vhost '{vhost.name}' in exclusive use"
            channel.fail(soft(403, text) if refused else answer(error), (60, 20))
            return
        consumer.attached = True
        if not method.nowait:
            channel.send("basic.consume-ok", tag)

    # Not before consume-ok may leave: deliveries follow it.
    if source is None:
        channel.then(start)
    else:
        channel.after(source.find, start)


def cancel(channel: Channel, method: Cancel) -> None:
    consumer = channel.consumers.pop(method.consumer_tag, None)
    if consumer is not None:
        channel.detach(consumer)
    elif channel.replies is not None and channel.replies.tag == method.consumer_tag:
        channel.end_replies()
    channel.reply("basic.cancel-ok", method.consumer_tag, nowait=method.nowait)


def cancel_ok(channel: Channel, method: CancelOk) -> None:
    """The client's answer to a cancel of ours, which is sent with nowait: nothing to do."""


def get(channel: Channel, method: Get) -> None:
    """The message is taken now; its answer leaves in its turn, or when it came from the disk."""
    queue = channel.vhost.queue(channel.queue_name(method.queue), channel.actor)
    if queue.kind is Kind.PREFERRED:
        raise soft(
            405,
            f"cannot obtain access to locked queue '{queue.name}' in vhost '{queue.vhost}'. basic.get "
            "operations are not supported by quorum queues with single active consumer",
        )
    retry.watch(channel, queue)
    answer: bytes | None = None
    waited = False

    def got(cursor: Cursor | None) -> None:
        nonlocal answer
        if channel.core.closing:
            answer = b""  # nobody hears it any more, but what stands behind it is to leave
            if cursor is not None:
                cursor.requeue(cursor.records()[0][0])
        elif cursor is None:
            channel.core.get_empty += 1
            answer = encode("basic.get-empty", channel.number, "")
        else:
            answer = channel.core.encode_get(cursor, method.no_ack, queue.count_ready)
        channel.session.hold_answer(len(answer))
        if waited:
            leave()
            channel.go_on()

    def leave() -> bool:
        nonlocal waited
        if answer is not None:
            channel.session.give_answer(answer)
            return True
        waited = True
        return False

    queue.get(got)
    channel.submit(leave)


def recover_async(channel: Channel, method: RecoverAsync | Recover) -> None:
    if not method.requeue:
        raise hard(540, "requeue=false")
    channel.core.requeue_all()
    channel.core.feed_starved()


def recover(channel: Channel, method: Recover) -> None:
    recover_async(channel, method)
    channel.reply("basic.recover-ok")


# Confirms


def confirm_select(channel: Channel, method: ConfirmSelect) -> None:
    if channel.core.transactional:
        raise soft(406, "cannot switch from tx to confirm mode")
    channel.core.confirm_select()
    channel.reply("confirm.select-ok", nowait=method.nowait)


# Channel and access


def flow(channel: Channel, method: Flow) -> None:
    if not method.active:
        raise hard(540, "active=false")
    channel.reply("channel.flow-ok", True)


def flow_ok(channel: Channel, method: FlowOk) -> None:
    """Never asked for: nothing to do."""


def access_request(channel: Channel, _: AccessRequest) -> None:
    channel.reply("access.request-ok", 1)
