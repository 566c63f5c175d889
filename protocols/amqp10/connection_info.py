"""A connection of AMQP 1.0 as the management API and metrics show it."""

from __future__ import annotations

from penstock.protocols.amqp10.channel.channel import LINKS_MAX, Channel
from penstock.protocols.amqp10.channel.incoming import IncomingLink
from penstock.protocols.amqp10.channel.outgoing import OutgoingLink
from penstock.protocols.amqp10.session.session import Session
from penstock.protocols.amqp10.session.state import State
from penstock.protocols.net.connection_info import ConnectionInfo, ConsumerInfo, SessionInfo, WindowInfo

__all__ = ["connection_facts", "windows"]


def connection_facts(session: Session) -> ConnectionInfo | None:
    """A description; None while nobody is logged in."""
    if session.state is not State.RUNNING:
        return None
    channels = session.channels.values()
    return ConnectionInfo(
        protocol="AMQP 1-0",
        user=session.identity.username,
        vhost=session.vhost.name,
        state="flow" if session.blocked else "running",
        client_properties=session.client_properties,
        mechanism=session.mechanism,
        timeout_s=int(session.idle_s),
        frame_max=session.frame_max,
        channel_max=session.options.channel_max,
        totals=session.totals(),
        channels=[],
        client_id=session.container,
        consumers=[_consumer(link) for channel in channels for link in _receivers(channel)],
        sessions=[_session(channel) for channel in channels],
        transactions=[one.info(id_.hex()) for id_, one in session.transactions.items()],
    )


def windows(session: Session) -> list[WindowInfo]:
    """Of the links that have unsettled deliveries; a session counts those of all its links together."""
    if session.state is not State.RUNNING:
        return []
    return [
        _window(session, channel, link, held)
        for channel in session.channels.values()
        if channel.unsettled
        for link in _receivers(channel)
        if not link.settled and (held := min(channel.unsettled, link.queue.cursor.outstanding))
    ]


def _window(session: Session, channel: Channel, link: OutgoingLink, held: int) -> WindowInfo:
    return WindowInfo(
        tag=link.name,
        channel=channel.number,
        queue=link.queue,
        unacknowledged=held,
        most=held + link.link_credit,
        is_full=link.link_credit == 0,
        settled=session.acknowledged,
        got=link.delivery_count,
    )


def _receivers(channel: Channel) -> list[OutgoingLink]:
    return [link for link in channel.links.values() if isinstance(link, OutgoingLink)]


def _consumer(link: OutgoingLink) -> ConsumerInfo:
    return ConsumerInfo(
        tag=link.name,
        queue=link.queue.name,
        ack_required=not link.settled,
        prefetch=link.link_credit,
        exclusive=link.queue.is_sole,
        active=link.attached,
    )


def _session(channel: Channel) -> SessionInfo:
    return SessionInfo(
        channel_number=channel.number,
        handle_max=LINKS_MAX,
        next_incoming_id=channel.next_incoming,
        incoming_window=channel.window,
        next_outgoing_id=channel.next_outgoing,
        remote_incoming_window=channel.remote_window,
        remote_outgoing_window=channel.remote_outgoing_window,
        outgoing_unsettled_deliveries=channel.unsettled,
        incoming_links=[
            {
                "handle": link.handle,
                "link_name": link.name,
                "target_address": getattr(link.answer.target, "address", None),
                "snd_settle_mode": ("unsettled", "settled", "mixed")[min(link.answer.snd_settle_mode, 2)],
                "max_message_size": link.answer.max_message_size,
                "delivery_count": link.delivery_count,
                "credit": link.credit,
            }
            for link in channel.links.values()
            if isinstance(link, IncomingLink)
        ],
        outgoing_links=[
            {
                "handle": link.handle,
                "link_name": link.name,
                "source_address": getattr(link.answer.source, "address", None),
                "queue_name": link.queue.name,
                "send_settled": link.settled,
                "delivery_count": link.delivery_count,
                "credit": link.link_credit,
            }
            for link in _receivers(channel)
        ],
    )
