"""Information about an MQTT connection; see `penstock.protocols.net.connection_info`."""

from __future__ import annotations

from penstock.protocols.mqtt.session.session import Session, State
from penstock.protocols.net.connection_info import ConnectionInfo, ConsumerInfo, Totals
from penstock.router.exchanges.entries import listed_session

__all__ = ["connection_facts", "totals"]

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
