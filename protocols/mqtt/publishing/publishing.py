"""Publishing from Python: wills, and the messages that the scanner leaves to us.

The fast path is the scanner's, in C. Here come messages with a route that refuses or must look at each
message, or a queue that has no room; topics that begin with `$`, retained messages (as far as the store is
concerned), and wills.

Topics under `$` are ours: a publish there is refused, the connection stays (0x87), unless it is `$delayed`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass
from penstock.logs import fields
from penstock.protocols.mqtt.codec import _scan, reasons
from penstock.protocols.mqtt.codec.reason_strings import ACKNOWLEDGEMENTS
from penstock.protocols.mqtt.publishing._retaining import store_retained
from penstock.protocols.mqtt.publishing.delays import Delay, DelayRefused, read_delay
from penstock.protocols.mqtt.subscriptions.filters import is_reserved
from penstock.router.errors import AccessRefused, RoutingError
from penstock.router.messages.delay_names import delay_name

if TYPE_CHECKING:
    from penstock.protocols.mqtt.clients.clients import Client
    from penstock.protocols.mqtt.codec._scan import Scanner
    from penstock.router.authorization.identity import Identity
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Published", "publish", "publish_here", "reason_of", "tell_refused", "ttl_of"]

logger: Final = logging.getLogger("penstock.mqtt")

ENC_MQTT5: Final = 2
F_PERSISTENT: Final = 2
F_RETAIN: Final = 32
F_EXACTLY_ONCE: Final = 512
_QOS_FLAGS: Final = (0, F_PERSISTENT, F_PERSISTENT | F_EXACTLY_ONCE)
_TTL_MAX_S: Final = 4294967


@dataclass(slots=True)
class Published:
    """How a publish went: the position its acknowledgement waits for, the class of that wait, and the
    reason.
    """

    lsn: int
    wait: int
    reason: int


def reason_of(error: Exception) -> int:
    """The reason code of PUBACK, PUBREC or SUBACK for an error of the router."""
    if isinstance(error, AccessRefused):
        return reasons.NOT_AUTHORIZED
    if isinstance(error, RoutingError):
        return reasons.TOPIC_NAME_INVALID
    return reasons.UNSPECIFIED


def publish(
    vhost: Vhost,
    identity: Identity,
    topic: bytes,
    block: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    ttl_ms: int,
    origin: int = 0,
) -> Published:
    """Publish one message with the rights of `identity`; refusals are told by the reason."""
    try:
        delay = read_delay(topic, block, vhost.broker.log.wall_ms())
    except DelayRefused as refused:
        reason = reasons.TOPIC_NAME_INVALID if refused.in_topic else reasons.IMPLEMENTATION_SPECIFIC
        return Published(0, _scan.NOW, reason)
    if is_reserved(delay.topic):
        return Published(0, _scan.NOW, reasons.NOT_AUTHORIZED)
    if vhost.refuses and delay.cancels is None:
        return Published(0, _scan.NOW, reasons.QUOTA_EXCEEDED)
    if delay.name is None and delay.cancels is None:
        return _publish(vhost, identity, delay, payload, qos, retain, ttl_ms, origin)
    error = vhost.route(identity, ENC_MQTT5, delay.topic, {}).error
    if error is not None:
        return Published(0, _scan.NOW, reason_of(error))
    log, delayed = vhost.broker.log, vhost.broker.delayed
    with log.unit():
        cancelled = delayed.cancel_named(vhost, identity, _name_of(vhost, delay.cancels or delay.name or ""))
        if delay.cancels is None:
            return _publish(vhost, identity, delay, payload, qos, retain, ttl_ms, origin)
    reason = reasons.SUCCESS if cancelled else reasons.NO_MATCHING_SUBSCRIBERS
    return Published(log.appender.next_lsn - 1, _scan.SYNCED, reason)


def _name_of(vhost: Vhost, name: str) -> bytes:
    """The key of the name of a message that waits."""
    return delay_name(vhost.name, vhost.mqtt_exchange.name, name)


def _publish(
    vhost: Vhost,
    identity: Identity,
    delay: Delay,
    payload: bytes,
    qos: int,
    retain: bool,
    ttl_ms: int,
    origin: int,
) -> Published:
    """Now, or when it is due."""
    topic, block = delay.topic, delay.block
    flags = _QOS_FLAGS[qos] | (F_RETAIN if retain else 0)
    if delay.due_ms:
        error = vhost.route(identity, ENC_MQTT5, topic, {}).error
        if error is not None:
            return Published(0, _scan.NOW, reason_of(error))
        lsn = vhost.broker.delayed.schedule(
            vhost.name,
            delay.due_ms,
            ENC_MQTT5,
            topic,
            block,
            payload,
            flags=flags,
            ttl_ms=ttl_ms,
            origin=origin,
            name=None if delay.name is None else _name_of(vhost, delay.name),
        )
        return Published(lsn, _scan.SYNCED, reasons.SUCCESS)
    published = vhost.publish(
        identity, ENC_MQTT5, topic, block, payload, flags=flags, ttl_ms=ttl_ms, origin=origin
    )
    lsn, route = published.lsn, published.route
    if route.error is not None:
        return Published(0, _scan.NOW, reason_of(route.error))
    wait = _scan.SYNCED if route.durable else _scan.WRITTEN
    if retain:
        stored = store_retained(vhost, topic, block, payload, qos, ttl_ms)
        if stored:
            lsn, wait = max(lsn, stored), _scan.SYNCED
    if published.refused:
        return Published(lsn, wait, reasons.QUOTA_EXCEEDED)
    return Published(lsn, wait, reasons.SUCCESS if route.routed else reasons.NO_MATCHING_SUBSCRIBERS)


def publish_here(client: Client, scanner: Scanner, payload: bytes) -> Published:
    """Publish what the scanner left to us."""
    return publish(
        client.vhost,
        client.identity,
        scanner.topic,
        scanner.block,
        payload,
        scanner.qos,
        scanner.retain,
        scanner.ttl_ms,
        scanner.origin,
    )


def tell_refused(client: Client, topic: bytes, reason: int, count: int) -> None:
    """Have the operator know of the `count`th publish of a connection that was refused.

    A 3.1.1 client is not told (mqtt311:3.3.5-2: it is acknowledged, or cut off); many of 5.0 do not look.
    """
    if count & (count - 1) == 0:  # 1, 2, 4, 8 ...: one line per doubling is enough
        logger.warning(
            "publish refused: %s",
            ACKNOWLEDGEMENTS.get(reason, "the log takes nothing"),
            extra=fields(
                client=client.client_id,
                user=client.username,
                vhost=client.vhost.name,
                topic=topic.decode("utf-8", "replace")[:200],
                reason=f"0x{reason:02x}",
                refused=count,
            ),
        )


def ttl_of(expiry_s: int | None) -> int:
    """A record's ttl for a message expiry interval; 0 = never (or longer than a ttl can say)."""
    if expiry_s is None or expiry_s > _TTL_MAX_S:
        return 0
    return expiry_s * 1000 or 1
