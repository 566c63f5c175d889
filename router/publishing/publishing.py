"""Publishing to one vhost: route tables per user, what they ask on a miss, and a publish from Python.

A key block names the exchange and the routing key (AMQP) or the topic (MQTT, published to the MQTT
exchange). On a miss the user's write permission is checked once, then the exchanges are asked. A client's
mistake is a route with an error. A queue without room refuses a message; the other queues of the route get
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._appender import Target
from penstock.log_core.batch._batch import Record
from penstock.router.arguments import Arguments
from penstock.router.authorization.identity import Identity
from penstock.router.errors import AccessRefused, RoutingError, TopicRefused
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE, Subject
from penstock.router.limits.backlog_quotas import Gate
from penstock.router.names import ENC_AMQP091, dotted, slashed, split_key_block, text
from penstock.router.routes._routes import Route, RouteTable, Topology

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.router.authorization.permissions import Authorizer
    from penstock.router.exchanges.entries import QueueEntry
    from penstock.router.exchanges.exchanges import Own, Slot
    from penstock.router.publishing.firehose import Firehose
    from penstock.router.publishing.resolve import Resolver

__all__ = ["Published", "Publishing", "union"]


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a publish."""

    lsn: int
    """Where the record is in the log; 0: nothing was appended, see `route.error`."""
    route: Route
    """Where it was to go."""
    refused: bool = False
    """A queue that it was to go to has no room for it; the others got it."""
    repeated: bool = False
    """Its producer had sent it before: nothing was appended, and `lsn` is of then."""
    waits: bool = False
    """It is kept until it is due, and goes its way then."""
    replied: bool = False
    """It was handed to a requester who waits for it, and is not in the log."""

    @property
    def routed(self) -> bool | None:
        """Whether a queue or subscription gets it; None: that is not known yet, or any more."""
        return None if self.waits or self.repeated else self.replied or self.route.routed


def union(routes: Sequence[Route]) -> Route:
    """To every feed of `routes` once."""
    if len(routes) == 1:
        return routes[0]
    durable = any(route.durable for route in routes)
    feeds = dict.fromkeys(feed for route in routes for feed in route.target.feeds)
    guards = tuple(dict.fromkeys(guard for route in routes for guard in route.guards))
    recents = tuple(dict.fromkeys(recent for route in routes for recent in route.recents))
    routed = any(route.routed for route in routes)
    target = Target(feeds, durable)
    return Route(target, (), routed, durable, False, lp=routes[0].lp, guards=guards, recents=recents)


def _exchange_of(enc: int, key: bytes) -> str:
    """The exchange that a key block names; "" when it is none."""
    if enc != ENC_AMQP091:
        return MQTT_EXCHANGE
    parts = split_key_block(key)
    return "" if parts is None else parts[0]


def _copy(key: bytes, exchange: str, headers: Arguments | None) -> Subject:
    """The subject of a further key block of an AMQP message to `exchange`."""
    parts = split_key_block(key)
    assert parts is not None  # it was made of two short strings
    assert parts[0] == exchange
    return Subject(parts[1], slashed(parts[1]), headers)


class Publishing:
    """See the module."""

    def __init__(
        self,
        vhost: str,
        log: Log,
        topology: Topology,
        resolver: Resolver,
        authorizer: Authorizer,
        firehose: Firehose,
    ) -> None:
        self._vhost = vhost
        self._log = log
        self._topology = topology
        self._resolver = resolver
        self._authorizer = authorizer
        self._firehose = firehose
        self._tables: dict[tuple[str, int], RouteTable] = {}
        """Shared by all connections of a user."""

    def table(self, identity: Identity, enc: int) -> RouteTable:
        """The route table of a user, or of one login by token, for keys of an encoding (1 AMQP, 2 MQTT 5).

        It may be kept as long as its connection: it follows every change of the topology and of permissions.
        """
        known = self._tables.get((identity.username, enc)) if identity.grants is None else None
        authorizer = self._authorizer
        if known is not None and not authorizer.topic_permitted and authorizer.topic_guard is None:
            return known
        shared = identity.grants is None and not self._is_individual(identity, enc)
        if shared and known is not None:
            return known

        def resolve(key: bytes) -> Route:
            if self._firehose.is_on and enc == ENC_AMQP091:
                return self._resolver.individual()
            guard = self._authorizer.topic_guard
            if guard is not None and guard.slow and _exchange_of(enc, key) == MQTT_EXCHANGE:
                return self._resolver.individual()
            return self.route(identity, enc, key, None)

        def resolve_shared(key: bytes) -> Route:
            if self._is_individual(identity, enc):
                # Since the table was taken: its connection asks for each message, with its own client id.
                return self._resolver.individual()
            return resolve(key)

        if not shared:
            return RouteTable(self._topology, enc, resolve)

        def matcher() -> Callable[[bytes], list[Slot | Own]] | None:
            if self._authorizer.looks_at_topics(identity, self._vhost, MQTT_EXCHANGE):
                return None
            return self._resolver.matcher(MQTT_EXCHANGE)

        table = self._tables[identity.username, enc] = RouteTable(
            self._topology, enc, resolve_shared, matcher=None if enc == ENC_AMQP091 else matcher
        )
        return table

    def close(self) -> None:
        """Nobody publishes to the vhost any more.

        Tables hold routes where the garbage collector does not look, and routes lead back to the vhost.
        """
        for table in self._tables.values():
            table.clear()

    def _is_individual(self, identity: Identity, enc: int) -> bool:
        """Whether connections of one user may not have the same routes."""
        if enc == ENC_AMQP091:
            return False
        guard = self._authorizer.topic_guard
        return (guard is not None and guard.individual) or self._authorizer.depends_on_client(
            identity.username, self._vhost, MQTT_EXCHANGE
        )

    def route(
        self,
        identity: Identity | None,
        enc: int,
        key: bytes,
        headers: Arguments | None,
        held: list[str] | None = None,
        copies: Sequence[bytes] = (),
    ) -> Route:
        """The route of a key block, resolved anew. `identity` None is the broker, which may do anything.

        `copies` are further key blocks of the same exchange, AMQP's only (CC and BCC). `held`: see
        `Resolver.resolve`.
        """
        if enc == ENC_AMQP091:
            parts = split_key_block(key)
            if parts is None:
                return self._resolver.refused(RoutingError(f"not an AMQP key block: {key!r}"))
            exchange, routing_key = parts
            subject = Subject(routing_key, slashed(routing_key), headers)
        else:
            exchange = MQTT_EXCHANGE
            subject = Subject(dotted(key), key, headers)
        others = [_copy(one, exchange, headers) for one in copies]
        if identity is None:
            return self._resolver.resolve(exchange, subject, others, from_client=False, held=held)
        for one in (subject, *others):
            refusal = self._refusal(identity, enc, key, exchange, one.key)
            if refusal is not None:
                return self._resolver.refused(refusal)
        return self._resolver.resolve(exchange, subject, others, held=held)

    def route_to_filters(self, topic: bytes) -> Route:
        """The route of what the broker has to say on a topic, to those who named it by a topic filter."""
        return self._resolver.resolve(
            MQTT_EXCHANGE, Subject(dotted(topic), topic, filters_only=True), from_client=False
        )

    def may(self, identity: Identity, enc: int, key: bytes) -> bool:
        """Whether the identity may publish by this key block now."""
        if enc != ENC_AMQP091:
            return self._refusal(identity, enc, key, MQTT_EXCHANGE, dotted(key)) is None
        parts = split_key_block(key)
        return parts is not None and self._refusal(identity, enc, key, *parts) is None

    def require(self, identity: Identity, enc: int, key: bytes) -> None:
        """Raises RoutingError: the identity may not publish by this key block, or to no such exchange."""
        route = self.route(identity, enc, key, {})
        if route.error is not None:
            assert isinstance(route.error, RoutingError)
            raise route.error

    def _refusal(
        self, identity: Identity, enc: int, key: bytes, exchange: str, routing_key: bytes
    ) -> AccessRefused | None:
        user, vhost = identity.username, self._vhost
        if not self._authorizer.allow(identity, vhost, "write", exchange):
            return AccessRefused("exchange", exchange, vhost, user, "write")
        topic = None if enc == ENC_AMQP091 else text(key)
        if self._resolver.is_topic(exchange) and not self._authorizer.allow_topic(
            identity, vhost, "write", exchange, routing_key, topic
        ):
            return TopicRefused(exchange, vhost, user, "write", routing_key)
        return None

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
        if identity is None or identity.grants is not None:
            route = self.route(identity, enc, key, headers if headers is not None else {})
        else:
            route = self.table(identity, enc).route(key)
            if route.per_message:
                route = self.route(identity, enc, key, headers if headers is not None else {})
        if route.error is not None:
            return Published(0, route)
        return self.append(route, key, props, body, flags, priority, enc, ttl_ms, origin)

    def append(
        self,
        route: Route,
        key: bytes,
        props: bytes,
        body: bytes,
        flags: int,
        priority: int,
        enc: int,
        ttl_ms: int = 0,
        origin: int = 0,
        *,
        without: Collection[QueueEntry] = (),
    ) -> Published:
        """Append one message to the queues of its route that have room for it, and are not among `without`.

        Nothing is appended when they all refuse it.
        """
        lsn = self._log.appender.next_lsn - 1
        if any(isinstance(guard.queue.data, Gate) for guard in route.guards):
            return Published(lsn, route, True)
        target = route.target
        refusing: list[QueueEntry] = []
        absent = set(without)
        for guard in route.guards:
            entry = guard.queue.data
            if entry in absent:
                continue
            if entry.queue.refuses(len(body)):
                refusing.append(entry)
            else:
                guard.expect(len(body))
        if refusing or absent:
            kept = {entry.own_feed for entry in (*refusing, *absent)}
            target = self._log.target([feed for feed in target.feeds if feed not in kept], route.durable)
        retention_feeds = self._log.retention_feeds
        if not refusing or any(feed not in retention_feeds for feed in target.feeds):
            lsn = self._log.appender.append_record(
                route.lp, target, key, props, body, flags, priority, enc, ttl_ms, origin
            )
            for entry in absent:
                if entry.own_feed is None:
                    entry.queue.leave_out(lsn)
        if route.recents:
            message = Record(lsn, key, props, body, (), flags, priority, enc, 0, ttl_ms, origin)
            for recent in route.recents:
                recent.note(message)
        for entry in refusing:
            if entry.bury_refused is not None:
                now_ms = self._log.now_ms()
                record = Record(lsn, key, props, body, (), flags, priority, enc, now_ms, ttl_ms, origin)
                entry.bury_refused(record, "maxlen", b"")
        return Published(lsn, route, bool(refusing))

    def statistics(self) -> dict[str, int]:
        """Figures of the route tables."""
        tables = self._tables.values()
        return {
            "route_tables": len(tables),
            "routes": sum(table.count for table in tables),
            "route_misses": sum(table.misses for table in tables),
        }
