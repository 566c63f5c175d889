"""Where the messages of a request go, and messages that are ready to go there.

A message is made ready once: all of it is checked and encoded then. Whether it may go where it is to go is
asked by `route` (of what is to happen as a whole, before any of it happens) and by `append`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.errors import PenstockError
from penstock.protocols.http.messages import HttpError

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Access
    from penstock.protocols.http.data.bodies import Outgoing
    from penstock.protocols.http.traffic import Prepared
    from penstock.router._routes import Route
    from penstock.router.identity import Identity
    from penstock.router.publishing import Published
    from penstock.router.vhost import Vhost
    from penstock.subscriptions._cursor import Cursor

__all__ = ["Ready", "Way", "check_room", "ready"]


class Ready(Protocol):
    """A message that can be appended."""

    size: int
    """Bytes of its body."""
    waits: bool
    """It is kept until it is due, and goes to no queue now."""

    def route(self) -> Route:
        """Where it would go by now. Raises HttpError: it may not."""

    def append(self) -> Published:
        """Append it, or keep it until it is due. Raises HttpError."""


@dataclass(slots=True)
class Way:
    """Where messages go, and whose they are."""

    identity: Identity
    vhost: Vhost
    exchange: str
    default: str
    """The routing key of messages without one, or of all when `fixed`."""
    fixed: bool
    mandatory: bool
    ready: Callable[[Outgoing], Ready] | None = None
    """How a message is made ready when it does not go through an exchange. Raises HttpError."""

    def key_of(self, message: Outgoing) -> str:
        """The routing key of a message."""
        return self.default if self.fixed or message.routing_key is None else message.routing_key


def ready(access: Access, way: Way, message: Outgoing) -> Ready:
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

    __slots__ = ("_access", "_key", "_prepared", "_way", "size", "waits")

    def __init__(self, access: Access, way: Way, key: str, prepared: Prepared) -> None:
        self._access = access
        self._way = way
        self._key = key
        self._prepared = prepared
        self.size = len(prepared.body)
        self.waits = prepared.due_ms > 0

    def route(self) -> Route:
        way = self._way
        try:
            route = self._access.messages.route(way.vhost, way.identity, self._prepared)
        except PenstockError as error:
            raise self._access.app.translate(error) from error
        if way.mandatory and not route.routed:
            raise HttpError(
                422,
                "unroutable",
                f"no queue is bound to exchange '{way.exchange}' with key '{self._key}'"
                if way.exchange
                else f"there is no queue '{self._key}' in vhost '{way.vhost.name}'",
            )
        return route

    def append(self) -> Published:
        way = self._way
        try:
            return self._access.messages.append(way.vhost, way.identity, self._prepared)
        except PenstockError as error:
            raise self._access.app.translate(error) from error


def check_room(messages: Iterable[Ready]) -> None:
    """Whether all of these could be appended now, one after the other.

    Raises:
        HttpError: one may not go where it is to go, or finds a queue full, be it by those before it.

    """
    before: dict[Cursor, tuple[int, int]] = {}
    for message in messages:
        route = message.route()
        if message.waits:
            continue
        for guard in route.guards:
            count, size = before.get(guard, (0, 0))
            if guard.queue.refuses(message.size, before=count, before_bytes=size):
                raise HttpError(422, "queue_full", full(guard))
            before[guard] = count + 1, size + message.size


def full(guard: Cursor) -> str:
    """What to say of a queue that has no room."""
    name = guard.queue.name
    return f"queue '{name}' is full and refuses more" if name else "the vhost's quota leaves no room"
