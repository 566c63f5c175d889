"""Information about an AMQP connection; see `penstock.protocols.net.connection_info`."""

from __future__ import annotations

from penstock.protocols.amqp.channel.channel import Channel, channel_totals
from penstock.protocols.amqp.codec._channel import Consumer
from penstock.protocols.amqp.session.session import Session
from penstock.protocols.amqp.session.state import State
from penstock.protocols.net.connection_info import ChannelInfo, ConnectionInfo, ConsumerInfo, WindowInfo
from penstock.subscriptions.dispatch.strategies import Kind

__all__ = ["connection_facts", "windows"]


def connection_facts(session: Session) -> ConnectionInfo | None:
    """The facts of a connection that is in its vhost; None of others."""
    if session.state is not State.RUNNING:
        return None
    return ConnectionInfo(
        protocol="AMQP 0-9-1",
        user=session.actor.identity.username,
        vhost=session.vhost.name,
        state="flow" if session.blocked else "running",
        client_properties=session.client_properties,
        mechanism=session.mechanism,
        timeout_s=session.heartbeat_s,
        frame_max=session.frame_max,
        channel_max=session.channel_max,
        totals=session.totals(),
        channels=[_channel(one) for one in session.channels()],
    )


def windows(session: Session) -> list[WindowInfo]:
    """Of the consumers that have unsettled deliveries."""
    if session.state is not State.RUNNING:
        return []
    return [
        _window(channel, tag, one)
        for channel in session.channels()
        for tag, one in channel.consumers.items()
        if one.in_flight
    ]


def _window(channel: Channel, tag: str, consumer: Consumer) -> WindowInfo:
    core, held = channel.core, consumer.in_flight
    return WindowInfo(
        tag=tag,
        channel=channel.number,
        queue=consumer.queue,
        unacknowledged=held,
        most=consumer.limit or core.limit,
        is_full=0 < consumer.limit <= held or 0 < core.limit <= core.outstanding,
        settled=core.first_tag,
        got=consumer.served,
    )


def _channel(channel: Channel) -> ChannelInfo:
    core = channel.core
    return ChannelInfo(
        number=channel.number,
        confirm=core.confirming,
        transactional=core.transactional,
        prefetch=channel.prefetch,
        global_prefetch=core.limit,
        unacknowledged=core.unacked_count,
        unconfirmed=core.unconfirmed,
        uncommitted=0 if channel.transaction is None else channel.transaction.count,
        totals=channel_totals(core),
        consumers=[_consumer(tag, one) for tag, one in channel.consumers.items()],
    )


def _consumer(tag: str, consumer: Consumer) -> ConsumerInfo:
    queue = consumer.queue
    single = queue.kind in (Kind.SINGLE, Kind.PREFERRED)
    return ConsumerInfo(
        tag=tag,
        queue=queue.name,
        ack_required=not consumer.no_ack,
        prefetch=consumer.limit,
        exclusive=queue.is_sole,
        active=consumer.attached and (not single or queue.active is consumer),
        single=single,
        arguments={"x-priority": consumer.priority} if consumer.priority else {},
    )
