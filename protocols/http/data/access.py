"""Shared by the handlers of the data plane: the user, the vhost, and waiting for the disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import quote

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.app import HttpApp
from penstock.protocols.http.server.login import bearer, session_of
from penstock.protocols.http.server.messages import HttpError, Request
from penstock.protocols.http.shared.traffic import Messages, check_accepting, kept
from penstock.router.authorization.identity import Actor, Identity
from penstock.router.errors import NotFound
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.router.authorization.grants import Grants
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Access", "absent"]


def absent(kind: Literal["queue", "stream"], name: str, vhost: Vhost) -> HttpError:
    """404: a queue or a stream is not there, and the request that makes it."""
    place = f"/v1/vhosts/{quote(vhost.name, safe='')}/{kind}s/{quote(name, safe='')}"
    return HttpError(
        404,
        "not_found",
        f"no {kind} '{name}' in vhost '{vhost.name}'",
        more={"remedy": f"correct the name, or create the {kind} with PUT {place}"},
    )


class Timer(Protocol):
    """Called later."""

    def cancel(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Watched:
    """The rights that a waiting request was let in by."""

    check: Callable[[Request], object]
    login_is_good: Callable[[], bool]


class _Expiry:
    """Looks whether a request's login holds still, at the end of its time."""

    def __init__(self, access: Access, request: Request, left_s: Callable[[], float]) -> None:
        self._access, self._request, self._left_s = access, request, left_s
        self._timer: Timer | None = None
        self._look()

    def _look(self) -> None:
        self._access._recheck(self._request)
        if self._request.refusal is None:
            self._timer = self._access.broker.tick.after(max(self._left_s(), 0.01), self._look)

    def end(self) -> None:
        """The request is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Access:
    """See the module."""

    def __init__(self, app: HttpApp, broker: Broker, messages: Messages) -> None:
        self.app = app
        self.broker = broker
        self.messages = messages
        self._owner = object()
        self._watched: dict[Request, _Watched] = {}
        broker.on_permissions_changed.append(self._permissions_changed)
        broker.users.on_changed.append(self._credentials_changed)
        broker.tokens.on_ended.append(self._credentials_changed)
        broker.web_sessions.on_ended.append(self._credentials_changed)

    def identity(self, request: Request) -> Identity:
        """The caller."""
        assert request.identity is not None  # every route here needs a login
        return request.identity

    def actor(self, request: Request) -> Actor:
        """The same, as one who uses things of the vhost."""
        return Actor(self.identity(request), self._owner)

    def vhost(self, request: Request) -> Vhost:
        """The vhost in the path.

        Raises:
            HttpError: 404, it is not there, and the user may list vhosts; 403, which does not tell whether
                it is there.

        """
        name = request.names["vhost"]
        identity = self.identity(request)
        if not self.broker.authorizer.enter(identity, name):
            if identity.sees_all and not self.broker.knows(name):
                raise HttpError(404, "not_found", f"no vhost '{name}'")
            raise HttpError(403, "access_refused", f"access to vhost '{name}' refused")
        return self.broker.vhost(name)

    def queue(self, request: Request) -> Queue:
        """The queue in the path, to be read. Raises RoutingError."""
        return self.queue_named(request, request.names["queue"])

    def queue_named(self, request: Request, name: str) -> Queue:
        """A queue of the vhost in the path, to be read. Raises RoutingError, HttpError 404."""
        return self._named(request, "queue", name)

    def stream(self, request: Request) -> Stream:
        """The stream in the path, to be read. Raises RoutingError, HttpError 409."""
        return self.stream_named(request, request.names["stream"])

    def stream_named(self, request: Request, name: str) -> Stream:
        """A stream of the vhost in the path, to be read. Raises RoutingError, HttpError 409."""
        found = self._named(request, "stream", name)
        if not isinstance(found, Stream):
            raise HttpError(409, "wrong_mode", f"queue '{name}' is no stream: pull it")
        return found

    def _named(self, request: Request, kind: Literal["queue", "stream"], name: str) -> Queue:
        vhost = self.vhost(request)
        try:
            return vhost.queue(name, self.actor(request))
        except NotFound as error:
            raise absent(kind, name, vhost) from error

    def source(self, request: Request) -> Queue:
        """The source: the queue in the path, or the subscription. Raises RoutingError, HttpError 409."""
        if "subscription" not in request.names:
            return self.queue(request)
        stream = self.stream(request)
        return self.vhost(request).subscriptions.get(stream.name, request.names["subscription"])

    # Objects that outlive a request

    @contextmanager
    def watched(self, request: Request, check: Callable[[Request], object] | None = None) -> Iterator[None]:
        """While a request waits: it is refused when its user's rights are taken back, or its login ends.

        `check` raises PenstockError or HttpError when the rights are gone; without one it is about what is
        pulled. A login ends with the time of its token, and when the token is revoked, the session of its
        page has ended, the password is changed or the user deleted.
        """
        grants = self.identity(request).grants
        token = bearer(request.headers.get("authorization", ""))
        left_s: Callable[[], float] | None = None
        if (session := session_of(request)) is not None:
            left_s = partial(self.broker.web_sessions.left_s, session)
        elif grants is not None:
            left_s = partial(_left_s, grants)
        elif token is not None:
            left_s = partial(self.broker.tokens.left_s, token)

        if left_s is not None:
            good = partial(_has_time, left_s)
        else:
            username = self.identity(request).username
            good = partial(self._password_is, username, self.broker.users.stored(username))
        self._watched[request] = _Watched(check or self.source, good)
        expiry = None if left_s is None else _Expiry(self, request, left_s)
        try:
            yield
        finally:
            del self._watched[request]
            if expiry is not None:
                expiry.end()

    def _password_is(self, username: str, stored: str) -> bool:
        users = self.broker.users
        return users.identity(username) is not None and users.stored(username) == stored

    def _credentials_changed(self) -> None:
        for request in list(self._watched):
            self._recheck(request)

    def _recheck(self, request: Request) -> None:
        """Whether it still would be let in."""
        watched = self._watched.get(request)
        if watched is not None and request.refusal is None and not watched.login_is_good():
            request.revoke(HttpError(401, "not_authorized", "the login has ended; log in again"))

    def _permissions_changed(self, user: str, vhost: str) -> None:
        for request, watched in list(self._watched.items()):
            if self.identity(request).username != user or request.names.get("vhost") != vhost:
                continue
            if request.refusal is not None:
                continue  # its login has ended, and that is what it is told
            try:
                watched.check(request)
            except HttpError as error:
                request.revoke(error)
            except PenstockError as error:
                request.revoke(self.app.translate(error))

    def accepting(self, vhost: Vhost, identity: Identity) -> None:
        """Whether messages are taken now. Raises HttpError: 503, or 429 for this vhost only."""
        check_accepting(self.broker, vhost, identity)

    async def kept(self, lsn: int, ack: str) -> None:
        """Wait for what was promised: "none", "written" or "fsync". Raises HttpError."""
        if ack == "none":
            self.broker.tick.schedule()
        else:
            await kept(self.broker, lsn, synced=ack == "fsync")


def _has_time(left_s: Callable[[], float]) -> bool:
    return left_s() > 0


def _left_s(grants: Grants) -> float:
    return grants.ends_at - time.time()
