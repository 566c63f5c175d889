"""From a subject to a route: all exchanges reachable from the one published to, and the feeds that match in
them.

1. The exchange published to is checked: it exists, is not internal for clients, and may be written to.
2. From it on, each exchange is visited once, so cycles of bindings end: its slots that match give their
   feeds, and the exchanges bound by them are visited too. A message with several routing keys (CC, BCC)
   takes all of them to each exchange.
3. An exchange where nothing matched hands over to its alternate exchange, if there is one.

The route is the union, each feed once. It remembers the scopes of the exchanges visited: a change in any of
them that can concern the key makes it resolved again (see `_routes`). Equal routes are one object.

Knows no queue but those that may refuse a message: they stand in the slot, and with the route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from penstock.log_core.batch._appender import Target
from penstock.router.errors import InternalExchange, NotFound, RoutingError
from penstock.router.exchanges.exchanges import Exchange, Own, Slot, Subject
from penstock.router.publishing.direct_replies import is_reply_key
from penstock.router.routes._routes import Route, Scope
from penstock.subscriptions.dispatch.strategies import Kind

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.router.exchanges.recent_history import Recent
    from penstock.router.policies.retention import Retentions
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["Resolver"]


class TargetMaker(Protocol):
    """The part of the log that a resolver needs."""

    def target(self, feeds: Sequence[Feed], durable: bool) -> Target:
        """The target of records that go to these feeds."""


class Resolver:
    """Makes the routes of one vhost."""

    def __init__(
        self,
        vhost: str,
        exchanges: Mapping[str, Exchange],
        names: Scope,
        log: TargetMaker,
        default_slot: Callable[[bytes], Slot | None],
        lp: int = 0,
        retentions: Retentions | None = None,
        gate: Callable[[], Cursor | None] = lambda: None,
    ) -> None:
        """Args:
        vhost: Its name, for errors.
        exchanges: By name; read at each resolve.
        names: Touched when an exchange comes or goes: what depends on there being none.
        log: Makes the targets.
        default_slot: The slot of the queue of that name in the default exchange, made when it is the
            first to ask; None when there is no such queue.
        lp: The log partition of the vhost.
        retentions: The exchanges and queues with a retention of their own; None: there are none.
        gate: The reason to refuse all messages of clients; None: there is none.
        """
        self._vhost = vhost
        self._exchanges = exchanges
        self._names = names
        self._log = log
        self._default_slot = default_slot
        self._lp = lp
        self._retentions = retentions
        self._gate = gate
        self._routes: WeakValueDictionary[tuple[object, ...], Route] = WeakValueDictionary()

    def refused(self, error: RoutingError) -> Route:
        """The route of a publish that is not possible."""
        return Route(self._log.target((), False), (self._names,), False, False, False, error)

    def individual(self) -> Route:
        """The route of keys that must be asked about for each message, by who publishes it."""
        return self._route((), [self._names], (), False, True)

    def is_topic(self, name: str) -> bool:
        """Whether there is an exchange of this name whose keys topic permissions are about."""
        exchange = self._exchanges.get(name)
        return exchange is not None and exchange.is_topic

    def matcher(self, name: str) -> Callable[[bytes], list[Slot | Own]] | None:
        """Finds what a topic matches in a topic exchange; None: there is no such exchange."""
        exchange = self._exchanges.get(name)
        return None if exchange is None or not exchange.is_topic else exchange.topic_matcher()

    def resolve(
        self,
        name: str,
        subject: Subject,
        copies: Sequence[Subject] = (),
        *,
        from_client: bool = True,
        held: list[str] | None = None,
    ) -> Route:
        """The route of `subject` published to the exchange called `name`.

        `copies` are the subjects of its further routing keys. They go with the first one to each exchange on
        the way, as in RabbitMQ's rabbit_exchange:route.

        With `subject.headers` None, a route that depends on headers says `per_message` and goes nowhere; for
        clients that includes what comes to an exchange that delays. With `held`, the message is to be
        delayed: such exchanges are listed there and nothing goes through them now.
        """
        first = self._exchanges.get(name)
        if first is None:
            return self.refused(NotFound("exchange", name, self._vhost))
        if first.internal and from_client:
            return self.refused(InternalExchange(name, self._vhost))
        feeds: dict[Feed, None] = {}
        scopes: list[Scope] = []
        guards: list[Cursor] = []
        gate = self._gate() if from_client else None
        if gate is not None:
            guards.append(gate)
        passed: list[Slot] = []
        recents: list[Recent] = []
        per_message = durable = False
        seen = {first}
        ahead = [first]
        while ahead:
            exchange = ahead.pop()
            scopes.append(exchange.scope)
            if exchange.delays and held is not None:
                held.append(exchange.name)
                continue
            per_message = per_message or (exchange.delays and from_client)
            if exchange.recent is not None:
                recents.append(exchange.recent)
            slots: Iterable[Slot | Own]
            if exchange.name == "":
                per_message = per_message or is_reply_key(subject.key)
                found = (self._default_slot(one.key) for one in (subject, *copies))
                defaults = [default for default in found if default is not None]
                # A listener makes no message routable.
                tails = exchange.tails_of(one.key for one in (subject, *copies)) if defaults else []
                slots = [*defaults, *tails]
            else:
                per_message = per_message or exchange.needs_headers
                slots = exchange.match(subject)
                if copies and exchange.looks_at_key:
                    slots = dict.fromkeys((*slots, *(slot for one in copies for slot in exchange.match(one))))
            matched = False
            for slot in slots:
                matched = True
                if isinstance(slot, Own):
                    feeds[slot.feed] = None
                    durable = durable or slot.entry.durable
                    continue
                passed.append(slot)
                for own in slot.owns:
                    feeds[own.feed] = None
                    durable = durable or own.entry.durable
                if slot.feed is not None:
                    feeds[slot.feed] = None
                    durable = durable or slot.durable_members > 0
                for entry in slot.guarded:
                    if entry.own_feed is not None and entry.own_feed not in feeds:
                        feeds[entry.own_feed] = None
                        if entry.queue.kind is not Kind.STREAM:
                            guards.append(entry.queue.cursor)
                        durable = durable or entry.durable
                for bound in slot.exchanges:
                    if bound not in seen:
                        seen.add(bound)
                        ahead.append(bound)
            alternate = None if matched or subject.filters_only else exchange.alternate
            if alternate is not None:
                other = self._exchanges.get(alternate)
                if other is None:
                    scopes.append(self._names)
                elif other not in seen:
                    seen.add(other)
                    ahead.append(other)
        if per_message and subject.headers is None:
            return self._route((), scopes, (), False, True)
        kept = self._kept(seen, passed)
        return self._route(tuple(feeds), scopes, tuple(guards), durable, False, kept, tuple(recents))

    def _kept(self, exchanges: Iterable[Exchange], slots: Iterable[Slot]) -> tuple[Feed, ...]:
        retentions = self._retentions
        return tuple(retentions.of(exchanges, slots)) if retentions is not None and retentions.is_on else ()

    def _route(
        self,
        feeds: tuple[Feed, ...],
        scopes: list[Scope],
        guards: tuple[Cursor, ...],
        durable: bool,
        per_message: bool,
        kept: tuple[Feed, ...] = (),
        recents: tuple[Recent, ...] = (),
    ) -> Route:
        scoped = tuple(scopes)
        identity = (feeds, kept, scoped, durable, per_message, guards)
        route = self._routes.get(identity)
        if route is None:
            target = self._log.target((*feeds, *kept), durable)
            lp, routed = self._lp, bool(feeds)
            route = Route(target, scoped, routed, durable, per_message, lp=lp, guards=guards, recents=recents)
            self._routes[identity] = route
        return route
