"""The `$SYS` tree: figures of the gateway under the names that Mosquitto gives them.

Once in `mqtt.sys_interval_s` the counters that kernels and connections keep anyway are added up, and what
changed is published to who subscribes, in every vhost. A new subscriber gets the last figures at once, like
retained messages; nothing of it is on the disk. Only positions and bytes are stored, which the log
keeps.

    load/<what>/<1min|5min|15min>   per minute, averaged with the weights of the Unix load average

Readable by users with the tag administrator or monitoring, or by a line of `mqtt.acl_file` that names `$SYS`.

Source: mosquitto(8), broker status; Mosquitto's sys_tree.c for the averages.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.lazy_dataclass import dataclass
from penstock.memory import used_bytes
from penstock.protocols.mqtt.publishing.publishing import ENC_MQTT5
from penstock.protocols.mqtt.subscriptions.filters import covers
from penstock.router.errors import TopicRefused
from penstock.router.messages.retained import RetainedMessage

if TYPE_CHECKING:
    from penstock.protocols.mqtt.clients.clients import Clients
    from penstock.router.authorization.identity import Identity
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Counts", "SysTopics", "check_reader", "is_sys"]

_READERS: Final = frozenset({"administrator", "monitoring"})
_PREFIX: Final = "$SYS/broker/"
_MINUTES: Final = (1, 5, 15)


@dataclass(slots=True)
class Counts:
    """The counts of connections since the process began."""

    bytes_received: int = 0
    bytes_sent: int = 0
    packets_received: int = 0
    packets_sent: int = 0
    published: int = 0
    """PUBLISH packets received."""
    published_bytes: int = 0
    """Of their payloads."""
    delivered: int = 0
    """PUBLISH packets sent."""
    delivered_bytes: int = 0
    """Of their payloads."""
    dropped: int = 0
    """Messages that were not sent to a client because of a limit of its own."""
    connections: int = 0
    """CONNECTs accepted."""
    sockets: int = 0
    """Connections of the network that were opened, before anything was said on them."""

    def add(self, other: Counts) -> None:
        """Count those as well."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_LOADS: Final = {
    "messages/received": "packets_received",
    "messages/sent": "packets_sent",
    "publish/received": "published",
    "publish/sent": "delivered",
    "publish/dropped": "dropped",
    "bytes/received": "bytes_received",
    "bytes/sent": "bytes_sent",
    "connections": "connections",
    "sockets": "sockets",
}


def is_sys(topic_filter: str) -> bool:
    """Whether a filter matches topics of `$SYS`."""
    return topic_filter.partition("/")[0] == "$SYS"


def check_reader(vhost: Vhost, identity: Identity, topic_filter: str) -> None:
    """Whether the identity may read `$SYS`; its permissions are asked besides.

    Raises:
        AccessRefused: it may not.

    """
    guard = vhost.broker.authorizer.topic_guard
    if identity.tags.isdisjoint(_READERS) and not (
        guard is not None
        and (not identity.guarded or guard.may_subscribe(identity, topic_filter, vhost=vhost.name))
    ):
        key = topic_filter.encode("utf-8", "surrogateescape")
        raise TopicRefused(vhost.mqtt_exchange.name, vhost.name, identity.username, "read", key)


class SysTopics:
    """The figures, and their publishing."""

    def __init__(
        self, clients: Clients, sample: Callable[[], Counts], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`sample` adds up what connections counted; `clock` gives seconds."""
        self._clients = clients
        self._sample = sample
        self._clock = clock
        self._since = self._last = clock()
        self._counts = Counts()
        self._loads: dict[str, float] = {}
        self._values: dict[str, bytes] = {}
        self.update()

    def match(self, topic_filter: str) -> Iterator[RetainedMessage]:
        """The last figures under a filter, as retained messages."""
        now_ms = self._clients.log.now_ms()
        for topic, value in list(self._values.items()):
            if covers(topic_filter, topic):
                yield RetainedMessage(topic.encode(), ENC_MQTT5, b"", value, 0, 0, now_ms, 0)

    def update(self) -> None:
        """Add up anew, and publish what changed."""
        now = self._clock()
        counts = self._sample()
        counts.dropped += self._clients.backlog.dropped
        figures = self._figures(now, counts)
        figures.update(self._averages(now - self._last, counts))
        self._last, self._counts = now, counts
        for name, figure in figures.items():
            topic, value = _PREFIX + name, str(figure).encode()
            if self._values.get(topic) != value:
                self._values[topic] = value
                self._publish(topic.encode(), value)

    def _publish(self, topic: bytes, value: bytes) -> None:
        for vhost in self._clients.broker.vhosts.values():
            # Queues bound to the exchange by a wildcard have not been asked for these rights.
            route = vhost.publishing.route_to_filters(topic)
            if route.routed:
                vhost.publishing.append(route, topic, b"", value, 0, 0, ENC_MQTT5)
                vhost.broker.tick.schedule()

    def _figures(self, now: float, counts: Counts) -> dict[str, object]:
        clients = self._clients
        vhosts = clients.broker.vhosts.values()
        connected, total = clients.connections, len(clients)
        log = clients.log.statistics()
        stored = log["written_lsn"] + 1 - log["first_lsn"]
        return {
            "version": f"penstock {__version__}",
            "uptime": f"{int(now - self._since)} seconds",
            "clients/total": total,
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": total - connected,
            "clients/inactive": total - connected,
            "clients/maximum": clients.connections_maximum,
            "clients/expired": clients.expired,
            "messages/received": counts.packets_received,
            "messages/sent": counts.packets_sent,
            "messages/stored": stored,
            "store/messages/count": stored,
            "store/messages/bytes": log["segment_bytes"],
            "publish/messages/received": counts.published,
            "publish/messages/sent": counts.delivered,
            "publish/messages/dropped": counts.dropped,
            "publish/bytes/received": counts.published_bytes,
            "publish/bytes/sent": counts.delivered_bytes,
            "bytes/received": counts.bytes_received,
            "bytes/sent": counts.bytes_sent,
            "subscriptions/count": sum(vhost.sessions.filter_count for vhost in vhosts),
            "shared_subscriptions/count": clients.shares.member_count,
            "retained messages/count": sum(len(vhost.retained) for vhost in vhosts),
            "heap/current": used_bytes(),
            "heap/maximum": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }

    def _averages(self, elapsed_s: float, counts: Counts) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, counter in _LOADS.items():
            grown = getattr(counts, counter) - getattr(self._counts, counter)
            per_minute = grown * 60 / elapsed_s if elapsed_s else 0.0
            for minutes in _MINUTES:
                key = f"load/{name}/{minutes}min"
                kept = math.exp(-elapsed_s / (60 * minutes))
                self._loads[key] = per_minute + kept * (self._loads.get(key, 0.0) - per_minute)
                found[key] = f"{self._loads[key]:.2f}"
        return found
