"""The way in of one vhost: route tables per user, what they ask on a miss, and a publish from Python.

A key block names the exchange and the routing key (AMQP) or the topic (MQTT, published to the MQTT exchange).
On a miss the user's write permission is asked once, then the exchanges. What a peer can do wrong is a route
with an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.log_core._batch import Target
from penstock.router._routes import Route, RouteTable, Topology
from penstock.router.arguments import Arguments
from penstock.router.errors import AccessRefused, RoutingError
from penstock.router.exchanges import MQTT_EXCHANGE, Subject
from penstock.router.identity import Identity
from penstock.router.names import ENC_AMQP091, dotted, slashed, split_key_block

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.router.auth import Authorizer
    from penstock.router.resolve import Resolver

__all__ = ["Published", "Publishing", "union"]


@dataclass(frozen=True, slots=True)
class Published:
    """What came of a publish."""

    lsn: int
    """Where the record is in the log; 0: nothing was appended, see `route.error`."""
    route: Route
    """Where it went."""


def union(routes: Sequence[Route]) -> Route:
    """To every feed of `routes` once."""
    if len(routes) == 1:
        return routes[0]
    durable = any(route.durable for route in routes)
    feeds = dict.fromkeys(feed for route in routes for feed in route.target.feeds)
    return Route(Target(feeds, durable), (), any(route.routed for route in routes), durable, False)


class Publishing:
    """See the module."""

    def __init__(
        self,
        vhost: str,
        log: Log,
        topology: Topology,
        resolver: Resolver,
        authorizer: Authorizer,
    ) -> None:
        self._vhost = vhost
        self._log = log
        self._topology = topology
        self._resolver = resolver
        self._authorizer = authorizer
        self._tables: dict[tuple[str, int], RouteTable] = {}

    def table(self, identity: Identity, enc: int) -> RouteTable:
        """The route table of a user for keys of an encoding (1 AMQP 0-9-1, 2 MQTT 5).

        It may be kept as long as its connection: it follows every change of the topology and of permissions.
        """
        table = self._tables.get((identity.username, enc))
        if table is None:

            def resolve(key: bytes) -> Route:
                return self.route(identity, enc, key, None)

            table = self._tables[identity.username, enc] = RouteTable(self._topology, enc, resolve)
        return table

    def route(self, identity: Identity | None, enc: int, key: bytes, headers: Arguments | None) -> Route:
        """The route of a key block, resolved anew. `identity` None is the broker, which may do anything."""
        if enc == ENC_AMQP091:
            parts = split_key_block(key)
            if parts is None:
                return self._resolver.refused(RoutingError(f"not an AMQP key block: {key!r}"))
            exchange, routing_key = parts
            subject = Subject(routing_key, slashed(routing_key), headers)
        else:
            exchange = MQTT_EXCHANGE
            subject = Subject(dotted(key), key, headers)
        if identity is None:
            return self._resolver.resolve(exchange, subject, from_client=False)
        if not self._authorizer.allow(identity, self._vhost, "write", exchange):
            return self._resolver.refused(
                AccessRefused("exchange", exchange, self._vhost, identity.username, "write")
            )
        return self._resolver.resolve(exchange, subject)

    def publish(
        self,
        identity: Identity | None,
        enc: int,
        key: bytes,
        props: bytes,
        body: bytes,
        *,
        flags: int,
        priority: int,
        ttl_ms: int,
        origin: int,
        headers: Arguments | None,
    ) -> Published:
        """Append one message; see `Vhost.publish`."""
        if headers is not None or identity is None:
            route = self.route(identity, enc, key, headers if headers is not None else {})
        else:
            route = self.table(identity, enc).route(key)
            if route.per_message:
                route = self.route(identity, enc, key, {})
        if route.error is not None:
            return Published(0, route)
        lsn = self._log.appender.append_record(
            route.lp, route.target, key, props, body, flags, priority, enc, ttl_ms, origin
        )
        return Published(lsn, route)

    def statistics(self) -> dict[str, int]:
        """Figures of the route tables."""
        tables = self._tables.values()
        return {
            "route_tables": len(tables),
            "routes": sum(table.count for table in tables),
            "route_misses": sum(table.misses for table in tables),
        }
