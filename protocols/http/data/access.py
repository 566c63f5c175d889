"""What the handlers of the data plane share: who asks, for which vhost, and waiting for the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.protocols.http.app import HttpApp
from penstock.protocols.http.messages import HttpError, Request
from penstock.protocols.http.traffic import Messages, kept
from penstock.router.identity import Actor, Identity

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.router.vhost import Vhost
    from penstock.subscriptions.queue import Queue

__all__ = ["Access"]

_RETRY_S: Final = "5"


class Access:
    """See the module."""

    def __init__(self, app: HttpApp, broker: Broker, messages: Messages) -> None:
        self.app = app
        self.broker = broker
        self.messages = messages
        self._owner = object()

    def identity(self, request: Request) -> Identity:
        """Who asks."""
        assert request.identity is not None  # every route here needs a login
        return request.identity

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
        return self.vhost(request).queue(name, Actor(self.identity(request), self._owner))

    def accepting(self) -> None:
        """Raises HttpError 503 while the log takes no messages."""
        if self.broker.log.paused:
            raise HttpError(
                503,
                "paused",
                "the log takes no messages for now: memory, disk or the disk's speed; try again",
                headers=(("retry-after", _RETRY_S),),
            )

    async def kept(self, lsn: int, ack: str) -> None:
        """Wait for what was promised: "none", "written" or "fsync". Raises HttpError."""
        if ack == "none":
            self.broker.tick.schedule()
        else:
            await kept(self.broker, lsn, synced=ack == "fsync")
