"""The right to see messages outside of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log_core.batch._batch import AMQP091
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.router.names import dotted, split_key_block, text

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost

__all__ = ["may_read"]


def may_read(broker: Broker, identity: Identity, vhost: Vhost, enc: int, key: bytes) -> bool:
    """Whether the user may see messages with this key block: those that a tail would show."""
    allowed = broker.authorizer
    if enc == AMQP091:
        parts = split_key_block(key)
        if parts is None:
            return False
        exchange, routing_key = parts
        if not exchange:
            return allowed.allow(identity, vhost.name, "read", text(routing_key))
        topic = None
    else:
        exchange, routing_key, topic = MQTT_EXCHANGE, dotted(key), text(key)
    if not allowed.allow(identity, vhost.name, "read", exchange):
        return False
    source = vhost.exchanges.get(exchange)
    if source is not None and not source.is_topic:
        return True
    return allowed.allow_topic(identity, vhost.name, "read", exchange, routing_key, topic)
