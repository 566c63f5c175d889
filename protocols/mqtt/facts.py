"""What an MQTT connection tells of itself; see `penstock.protocols.facts`."""

from __future__ import annotations

from penstock.protocols.facts import ConnectionFacts, ConsumerFacts, Totals
from penstock.protocols.mqtt.session import Session, State

__all__ = ["connection_facts"]

_VERSIONS = {3: "MQTT 3-1-0", 4: "MQTT 3-1-1", 5: "MQTT 5-0"}
"""As RabbitMQ writes them."""


def connection_facts(session: Session) -> ConnectionFacts | None:
    """The facts of a client that is connected; None of others."""
    client = session.client
    if session.state is not State.OPEN or client is None:
        return None
    published, delivered = session.counts()
    return ConnectionFacts(
        protocol=_VERSIONS[session.version],
        user=client.username,
        vhost=client.vhost.name,
        state="running",
        client_properties={"client_id": client.client_id, "product": "MQTT client"},
        mechanism="PLAIN",
        timeout_s=int(session.keep_alive_s),
        frame_max=0,
        channel_max=0,
        totals=Totals(published=published, delivered=delivered),
        channels=[],
        client_id=client.client_id,
        consumers=[
            ConsumerFacts(
                tag=subscription.topic,
                queue=client.queue.name,
                ack_required=subscription.qos > 0,
                prefetch=0,
                exclusive=True,
                active=True,
                arguments={"x-mqtt-qos": subscription.qos},
            )
            for subscription in client.subscriptions.values()
        ],
    )
