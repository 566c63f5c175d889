"""What the handlers of the data plane share: who asks, for which vhost, and waiting for the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.protocols.http.app import HttpApp
from penstock.protocols.http.messages import HttpError, Request
from penstock.protocols.http.traffic import Messages, kept
from penstock.router.identity import Actor, Identity
from penstock.router.limits import BACKLOG_BYTES
from penstock.subscriptions.stream import Stream

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.router.vhost import Vhost
    from penstock.subscriptions.queue import Queue

__all__ = ["Access"]

_RETRY_S = 5


class Access:
    """See the module."""

    def __init__(self, app: HttpApp, broker: Broker, messages: Messages) -> None:
        self.app = app
        self.broker = broker
        self.messages = messages
        self._owner = object()
        self._watched: dict[Request, Callable[[Request], object]] = {}
        broker.on_permissions_changed.append(self._permissions_changed)

    def identity(self, request: Request) -> Identity:
        """Who asks."""
        assert request.identity is not None  # every route here needs a login
        return request.identity

    def actor(self, request: Request) -> Actor:
        """The same, as one who uses things of the vhost."""
        return Actor(self.identity(request), self._owner)

    def vhost(self, request: Request) -> Vhost:
        """The vhost in the path. A refusal does not tell whether it exists. Raises AccessRefused."""
        name = request.names["vhost"]
        identity = self.identity(request)
        if not self.broker.authorizer.enter(identity, name):
            raise HttpError(403, "access_refused", f"access to vhost '{name}' refused")
        return self.broker.vhost(name)

    def queue(self, request: Request) -> Queue:
        """The queue in the path, to be read. Raises RoutingError."""
        return self.queue_named(request, request.names["queue"])

    def queue_named(self, request: Request, name: str) -> Queue:
        """A queue of the vhost in the path, to be read. Raises RoutingError."""
        return self.vhost(request).queue(name, self.actor(request))

    def stream(self, request: Request) -> Stream:
        """The stream in the path, to be read. Raises RoutingError, HttpError 409."""
        return self.stream_named(request, request.names["stream"])

    def stream_named(self, request: Request, name: str) -> Stream:
        """A stream of the vhost in the path, to be read. Raises RoutingError, HttpError 409."""
        found = self.queue_named(request, name)
        if not isinstance(found, Stream):
            raise HttpError(409, "wrong_mode", f"queue '{name}' is no stream: pull it")
        return found

    def source(self, request: Request) -> Queue:
        """What is pulled: the queue in the path, or the subscription. Raises RoutingError, HttpError 409."""
        if "subscription" not in request.names:
            return self.queue(request)
        stream = self.stream(request)
        return self.vhost(request).subscriptions.get(stream.name, request.names["subscription"])

    # What lives on

    @contextmanager
    def watched(self, request: Request, check: Callable[[Request], object] | None = None) -> Iterator[None]:
        """While a request waits: it is refused when its user's rights are taken back.

        `check` raises PenstockError or HttpError then; without one it is about what is pulled.
        """
        self._watched[request] = check or self.source
        try:
            yield
        finally:
            del self._watched[request]

    def _permissions_changed(self, user: str, vhost: str) -> None:
        for request, check in list(self._watched.items()):
            if self.identity(request).username != user or request.names["vhost"] != vhost:
                continue
            try:
                check(request)
            except HttpError as error:
                request.revoke(error)
            except PenstockError as error:
                request.revoke(self.app.translate(error))

    def accepting(self, vhost: Vhost) -> None:
        """Raises HttpError: 503 while the log takes no messages, 429 while it takes none for this vhost."""
        if vhost.full:
            raise HttpError(
                429,
                "quota",
                f"vhost '{vhost.name}' holds more than its {BACKLOG_BYTES}; try again when some is consumed",
                retry_after_s=_RETRY_S,
            )
        if self.broker.log.paused:
            raise HttpError(
                503,
                "paused",
                "the log takes no messages for now: memory, disk or the disk's speed; try again",
                retry_after_s=_RETRY_S,
            )

    async def kept(self, lsn: int, ack: str) -> None:
        """Wait for what was promised: "none", "written" or "fsync". Raises HttpError."""
        if ack == "none":
            self.broker.tick.schedule()
        else:
            await kept(self.broker, lsn, synced=ack == "fsync")
