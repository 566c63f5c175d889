"""Information about an MQTT connection; see `penstock.protocols.net.connection_info`."""

from __future__ import annotations

from penstock.protocols.mqtt.session.session import Session, State
from penstock.protocols.net.connection_info import ConnectionInfo, ConsumerInfo, Totals, WindowInfo
from penstock.router.exchanges.entries import listed_session

__all__ = ["connection_facts", "totals", "windows"]

_VERSIONS = {3: "MQTT 3-1-0", 4: "MQTT 3-1-1", 5: "MQTT 5-0"}
"""As RabbitMQ writes them."""


def totals(session: Session) -> Totals:
    """The messages that its connection moved. Messages of QoS 0 are delivered, and never acknowledged."""
    published, delivered = session.counts()
    return Totals(published=published, delivered=delivered, acknowledged=session.completed)


def connection_facts(session: Session) -> ConnectionInfo | None:
    """The facts of a client that is connected; None of others."""
    client = session.client
    if session.state is not State.OPEN or client is None:
        return None
    return ConnectionInfo(
        protocol=_VERSIONS[session.version],
        user=client.username,
        vhost=client.vhost.name,
        state="running",
        client_properties={"client_id": client.client_id, "product": "MQTT client"},
        mechanism="PLAIN",
        timeout_s=int(session.keep_alive_s),
        frame_max=0,
        channel_max=0,
        totals=totals(session),
        channels=[],
        client_id=client.client_id,
        consumers=[
            ConsumerInfo(
                tag=topic,
                queue=listed_session(topic if topic.startswith("$share/") else client.queue.name),
                ack_required=subscription.qos > 0,
                prefetch=0,
                exclusive=True,
                active=True,
                arguments={"x-mqtt-qos": subscription.qos},
            )
            for subscription in client.subscriptions.values()
            for topic in (subscription.topic,)
        ],
    )


def windows(session: Session) -> list[WindowInfo]:
    """Of a session's queue and its shared subscriptions, which share what the client may have under way."""
    client = session.client
    if session.state is not State.OPEN or client is None or client.loaded_ids is None:
        return []
    inflight = client.loaded_ids.inflight
    queues = (client.own_queue, *(share.queue for share in (client.shares or {}).values()))
    return [
        WindowInfo(
            tag=client.client_id,
            channel=0,
            queue=queue,
            unacknowledged=held,
            most=inflight.window,
            is_full=inflight.sent >= inflight.window,
            settled=session.completed,
            got=session.counts()[1],
        )
        for queue in queues
        if queue is not None and (held := min(inflight.sent, queue.cursor.outstanding))
    ]
