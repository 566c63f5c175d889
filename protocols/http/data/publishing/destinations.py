"""Destinations of the messages of a request, and messages that are ready to go there.

A message is made ready once: all of it is checked and encoded then. Whether it may go where it is to go is
asked by `route` (of what is to happen as a whole, before any of it happens) and by `append`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.data.access import absent
from penstock.protocols.http.server.messages import HttpError
from penstock.router.publishing.capacity import Capacity, full
from penstock.router.publishing.refused_numbers import RefusedNumbers

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Access
    from penstock.protocols.http.data.publishing.bodies import Outgoing
    from penstock.protocols.http.shared.traffic import Prepared
    from penstock.router.authorization.identity import Identity
    from penstock.router.broker import Broker
    from penstock.router.publishing.publishing import Published
    from penstock.router.routes._routes import Route
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Destination", "Ready", "Run", "ready"]


class Ready(Protocol):
    """A message that can be appended."""

    size: int
    """Bytes of its body."""
    waits: bool
    """It is kept until it is due, and goes to no queue now."""
    plain: tuple[int, bytes] | None
    """Messages of a request for which this is equal go the same way, unless their headers say which, and
    nothing else is to be done; None: it needs a look of its own."""

    def route(self) -> Route:
        """Where it would go by now. Raises HttpError: it may not."""

    def append(self) -> Published:
        """Append it, or keep it until it is due. Raises HttpError."""

    def append_to(self, route: Route) -> int:
        """Append one that is `plain` to its route, which refuses nothing; the LSN."""


@dataclass(slots=True)
class Destination:
    """Where messages go, and whose they are."""

    identity: Identity
    vhost: Vhost
    exchange: str
    default: str
    """The routing key of messages without one, or of all when `fixed`."""
    fixed: bool
    """They go to the queue or stream that is called `default`, which must be there."""
    mandatory: bool
    unsent: RefusedNumbers = field(default_factory=RefusedNumbers)
    """Numbered messages of the request that were refused."""
    ready: Callable[[Outgoing], Ready] | None = None
    """How a message is made ready when it does not go through an exchange. Raises HttpError."""

    def key_of(self, message: Outgoing) -> str:
        """The routing key of a message."""
        return self.default if self.fixed or message.routing_key is None else message.routing_key


def ready(access: Access, way: Destination, message: Outgoing) -> Ready:
    """A message of a request, made ready for its way. Raises HttpError 400."""
    if way.ready is not None:
        return way.ready(message)
    key = way.key_of(message)
    prepared = access.messages.prepare(
        way.vhost, way.identity, way.exchange, key, message.properties, message.body, message.due_ms
    )
    return _Routed(access, way, key, prepared)


class _Routed:
    """A message that goes through an exchange."""

    __slots__ = ("_access", "_key", "_prepared", "_way", "plain", "size", "waits")

    def __init__(self, access: Access, way: Destination, key: str, prepared: Prepared) -> None:
        self._access = access
        self._way = way
        self._key = key
        self._prepared = prepared
        self.size = len(prepared.body)
        self.waits = prepared.due_ms > 0
        self.plain = (id(way), prepared.keys[0]) if prepared.is_plain else None

    def route(self) -> Route:
        way = self._way
        try:
            route = self._access.messages.route(way.vhost, way.identity, self._prepared)
        except PenstockError as error:
            raise self._access.app.translate(error) from error
        is_reply = way.vhost.replies.waits_at(self._prepared.keys[0])
        if way.mandatory and not (route.routed or is_reply):
            raise HttpError(
                422,
                "unroutable",
                f"no queue is bound to exchange '{way.exchange}' with key '{self._key}'"
                if way.exchange
                else absent("queue", self._key, way.vhost).detail,
            )
        if way.fixed and self._key not in way.vhost.queues and not is_reply:
            raise absent("queue", self._key, way.vhost)
        return route

    def append(self) -> Published:
        numbered = self._prepared.numbered
        if numbered is None:
            return self._append()
        unsent, (name, sequence) = self._way.unsent, numbered
        missing = unsent.before(name.key, sequence)
        if missing is not None:
            raise HttpError(
                409,
                "out_of_order_sequence",
                f"number {missing} was refused, and {sequence} would come before it: send {missing} again "
                "first, or leave it out of the next request",
            )
        try:
            published = self._append()
        except HttpError:
            unsent.refused(name.key, sequence)
            raise
        (unsent.refused if published.refused else unsent.kept)(name.key, sequence)
        return published

    def _append(self) -> Published:
        way = self._way
        try:
            return self._access.messages.append(way.vhost, way.identity, self._prepared)
        except PenstockError as error:
            raise self._access.app.translate(error) from error

    def append_to(self, route: Route) -> int:
        way = self._way
        return self._access.messages.append_to(route, way.vhost, way.identity, self._prepared)


class Run:
    """Messages that are appended one after the other, while the loop does nothing else.

    The destination that many of them share is looked up once.
    """

    def __init__(self, broker: Broker, messages: Sequence[Ready]) -> None:
        self._broker = broker
        self._messages = messages
        self._routes: dict[tuple[int, bytes], Route] = {}
        self.routed: list[bool | None] = []
        """Of each message that was appended: see `Published.routed`."""

    def check(self) -> None:
        """Whether all of these could be appended now.

        Raises:
            HttpError: one may not go where it is to go, or finds a queue full, be it by those before it.

        """
        capacity = Capacity()
        routes = self._routes
        for message in self._messages:
            plain = message.plain
            route = None if plain is None else routes.get(plain)
            if route is None:
                route = message.route()
                if plain is not None and not route.per_message:
                    routes[plain] = route
            if message.waits:
                continue
            if (guard := capacity.refusing(route, message.size)) is not None:
                raise HttpError(422, "queue_full", full(guard))

    def append(self) -> list[int]:
        """Append them, after `check`; the LSN of each. Raises HttpError."""
        lsns = []
        routes = self._routes
        for message in self._messages:
            plain = message.plain
            route = None if plain is None else routes.get(plain)
            if route is None or route.special or route.recents:
                published = message.append()
                lsns.append(published.lsn)
                self.routed.append(published.routed)
            else:
                lsns.append(message.append_to(route))
                self.routed.append(route.routed)
        self._broker.tick.schedule()
        return lsns
