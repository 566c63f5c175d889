"""The firehose of one vhost: copies of the messages that its clients publish and get, for debugging.

It is off until it is turned on, and off again after a restart. While it is on, front ends that take part
hand over a copy of each message. The copy goes to the exchange `amq.rabbitmq.trace` after the turn in
which it was seen. Messages from that exchange are not copied again. Copies are not persistent, and those
without a matching binding are in no log.

Knows no protocol: front ends make the content of a copy. Source: RabbitMQ's rabbit_trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.router.names import ENC_AMQP091, join_key_block

if TYPE_CHECKING:
    from penstock.router.routes._routes import Route
    from penstock.router.vhost.vhost import Vhost

__all__ = ["TRACE_EXCHANGE", "Firehose"]

TRACE_EXCHANGE: Final = "amq.rabbitmq.trace"


class Firehose:
    """See the module."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self.is_on = False
        self.listeners: set[Callable[[], None]] = set()
        """Called when it was turned on or off."""
        self._copies: list[tuple[str, bytes, bytes]] = []
        self._names: dict[Route, list[str]] = {}
        self._names_as_of = -1

    def turn(self, *, on: bool) -> None:
        """Turn it on or off; fine when it is."""
        if on is self.is_on:
            return
        self.is_on = on
        self._vhost.topology.renew()
        for told in list(self.listeners):
            told()

    def put(self, routing_key: str, props: bytes, body: bytes) -> None:
        """Publish a copy, after this turn: it was seen where nothing may be published."""
        if not self._copies:
            self._vhost.broker.tick.after(0, self._publish)
        self._copies.append((routing_key, props, body))

    def _publish(self) -> None:
        copies, self._copies = self._copies, []
        vhost = self._vhost
        for routing_key, props, body in copies:
            key = join_key_block(TRACE_EXCHANGE, routing_key)
            route = vhost.route(None, ENC_AMQP091, key, {})
            if route.routed:
                vhost.publishing.append(route, key, props, body, 0, 0, ENC_AMQP091)
        vhost.broker.tick.schedule()

    def queues_of(self, route: Route) -> list[str]:
        """The names of the queues that a route leads to."""
        vhost = self._vhost
        if self._names_as_of != vhost.topology.changes:
            self._names_as_of = vhost.topology.changes
            self._names.clear()
        names = self._names.get(route)
        if names is None:
            feeds = set(route.target.feeds)
            names = self._names[route] = [
                entry.name
                for entry in vhost.queues.values()
                if any(feed in feeds for feed, _ in entry.reads())
            ]
        return names
