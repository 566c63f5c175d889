"""HTTP on a socket: the connection that drives a session, its requests as tasks, and the listener.

Owns transports, timers and tasks; bytes are the sessions' (`h1`, `h2`), answers are the app's. Each request
is served by itself: who asks (`login`), which handler (`Routes`), the answer; in a task, or without one when
nothing need be waited for (`eager_start`). HTTP/2 is spoken to a client that
begins with its preface, as it also does after TLS has agreed on "h2"; all others speak HTTP/1.1.

Bounds of a connection: a head is complete 10 s after it began; a body brings 1 KiB per second on average over
10 s; without a request it is closed after 60 s; a request waits while more than 4 MiB of answers are unsent,
and a client that takes none of them for 30 s is dropped; before a login 64 KiB and 10 s (`Limits`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from penstock.errors import PenstockError
from penstock.logs import fields
from penstock.protocols.http.server.cross_site import check_page
from penstock.protocols.http.server.eager_start import begin
from penstock.protocols.http.server.login import bearer, credentials, session_of
from penstock.protocols.http.server.messages import PREFACE, HttpError, Request, Response, log_failed
from penstock.protocols.http.server.progress import STALLED, Progress
from penstock.protocols.http.server.routes import Routes
from penstock.protocols.http.server.wire.h1 import H1Session
from penstock.protocols.http.server.workers import (
    LOCAL,
    PART,
    PEER,
    SECURE,
    TOKEN,
    USER,
    Forwarder,
    identity_of,
    replayed,
)
from penstock.protocols.listening.front_end import FrontEnd
from penstock.protocols.net.admitting.browser import own_host
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_context import ConnectionContext, wire
from penstock.router.authentication.token_form import is_token
from penstock.router.errors import AuthenticationRefused

if TYPE_CHECKING:
    from penstock.config import Address
    from penstock.protocols.http.server.wire.h2 import H2Session
    from penstock.protocols.http.server.wire.websocket import Conversation, WsSession
    from penstock.protocols.net.connection_context import ServerOptions
    from penstock.protocols.net.process_context import ProcessContext
    from penstock.protocols.tls.contexts import Tls
    from penstock.router.authorization.identity import Identity
    from penstock.router.broker import Broker

__all__ = ["App", "HttpConnection", "HttpFrontEnd"]

logger: Final = logging.getLogger("penstock.http")

_HEAD_S: Final = 10.0
_IDLE_S: Final = 60.0
_RATE_S: Final = 10.0
_RATE_BYTES: Final = 10 * 1024
_UNSENT_MAX: Final = 4 << 20
_QUICK_MAX: Final = 16
"""Requests of one read that are served in it: the others come after those of other connections."""


class App(Protocol):
    """The application of a listener."""

    @property
    def routes(self) -> Routes: ...
    def is_open(self, request: Request) -> bool:
        """Whether the request needs no login."""

    def problem(self, request: Request | None, error: HttpError) -> Response:
        """How `error` is told; without a request when there was none that could be read."""

    def translate(self, error: PenstockError) -> HttpError:
        """The answer to a refusal of the broker."""


class HttpConnection(Connection):
    """One TCP connection: the host of its session."""

    def __init__(
        self, context: ConnectionContext, broker: Broker, app: App, forwarder: Forwarder | None = None
    ) -> None:
        super().__init__(context)
        self._broker = broker
        self._forwarder = forwarder
        self._app = app
        self.session: H1Session | H2Session | WsSession | None = None
        self._requests: dict[Request, asyncio.Task[None] | None] = {}
        """Under way, and who serves them; None while they are just begun."""
        self._quick = 0
        """Requests of this read that were served in it."""
        self._has_capacity: asyncio.Event = asyncio.Event()
        self._head_since: float | None = None
        self._idle_since = self.last_read_at
        self._rate_since = self.last_read_at
        self._rate_bytes = 0
        self._progress = Progress()
        self._handling = False
        self._again = False
        self._waits = False
        """Input in the connection waits for the end of a request."""
        self._known: tuple[tuple[str, bool, int], Identity] | None = None
        """The credentials that were right last, for a local request or not, when, and whose they are."""
        self._loopback = False
        """Rules about loopback hold for the peer; known from its first request on."""
        self._secure = False
        """The connection has TLS; known then, too."""
        self.requests = 0
        """Requests so far."""

    # Called by Connection

    def _http2(self) -> H2Session:
        # Here: h2 and hpack are a tenth of a start, and many gateways never meet a client with HTTP/2.
        from penstock.protocols.http.server.wire.h2 import H2Session

        return H2Session(self)

    def received(self, buffer: bytearray, size: int) -> int:
        if self.session is None:
            start = bytes(buffer[: min(size, len(PREFACE))])
            if PREFACE.startswith(start) and len(start) < len(PREFACE):
                return 0
            self.session = self._http2() if start == PREFACE else H1Session(self)
        self._handling = True
        self._quick = 0
        consumed = self.session.receive(buffer, size, self.loop.time())
        self._handling = False
        if self.session.idle and consumed < size:
            if self._head_since is None:
                self._head_since = self.last_read_at
        else:
            self._head_since = None
        # With nothing left over the peer is read on while its request is served: its going is noticed.
        waits = consumed < size and not self.session.reads
        if waits is not self._waits:
            self._waits = waits
            (self.pause_reading if waits else self.resume_reading)("request")
        return consumed

    def on_lost(self) -> None:
        if self.session is not None:
            self.session.lost()
        self._has_capacity.set()
        for task in self._requests.values():
            if task is not None:
                task.cancel()

    def let_go(self) -> None:
        super().let_go()
        # A task that serves a request uses it to its end.
        if not self._requests:
            session, self.session = self.session, None
            if session is not None:
                session.let_go()

    def on_writable(self) -> None:
        self._has_capacity.set()
        if self.session is not None:
            self.session.writable()

    def on_shutdown(self) -> None:
        if self.session is None:
            self.close("the gateway stops")
        else:
            self.session.shutdown()
            for request in list(self._requests):
                request.on_shutdown()

    def on_clock(self, now: float) -> None:
        session = self.session
        if session is None:
            return
        # A WebSocket's client may be busy with a message for long, and costs no more than the mark.
        waiting = 0 if session.version == "websocket" and self.writable else self._waiting
        if self._progress.stalled(waiting, self.bytes_out - self._waiting, now):
            self.abort(STALLED)
            return
        if self._head_since is not None and now - self._head_since > _HEAD_S:
            session.too_slow(begun=True)
            return
        if session.idle:
            # Another worker sends when it has something: to close on it then would lose a request.
            if self._head_since is None and now - self._idle_since > _IDLE_S and not self.internal:
                session.too_slow(begun=False)
            return
        self._idle_since = now
        if now - self._rate_since >= _RATE_S:
            if (
                session.reading_body
                and not self.reading_paused
                and self.bytes_in - self._rate_bytes < _RATE_BYTES
            ):
                session.body_too_slow()
            self._rate_since, self._rate_bytes = now, self.bytes_in
        if not session.reading_body:
            self._rate_since, self._rate_bytes = now, self.bytes_in
        session.clock(now)

    def message_counts(self) -> tuple[int, int]:
        return self.requests, self.requests

    # Called by sessions

    def requested(self, request: Request) -> None:
        """Serve a request, whose body may still be under way."""
        if self.requests == 0:
            self.greeted()
            self._loopback = self.local
            self._secure = self.transport is not None and bool(self.transport.get_extra_info("ssl_object"))
        if self.user is None:
            # A body that came with the head is not counted as before the login, nor is more of it read.
            self.pause_reading("login")
        # A name that somebody else can point to this machine says nothing about where the request comes from.
        request.local = self._loopback and own_host(request.headers.get("host", ""), self.context.host_names)
        request.secure = self._secure
        self.requests += 1
        quick = self._app.routes.read_known(request) and self._quick < _QUICK_MAX
        if quick and self._forwarder is not None and not self.internal:
            # A request for another worker waits.
            quick = self._forwarder.owner(request) == self._forwarder.me
        self._requests[request] = None
        task: asyncio.Task[None] | None
        if quick:
            self._quick += 1
            task = begin(self.loop, self._serve(request))
        else:
            task = self.loop.create_task(self._serve(request))
        if request in self._requests:
            self._requests[request] = task

    def malformed(self, error: HttpError) -> Response:
        """The answer to input that is no request."""
        return self._app.problem(None, error)

    def go_on(self) -> None:
        """Input in the connection may be handled, when the session has come back from where it is."""
        if self._handling or self._again:
            return
        if not self._waits and not self.input_bytes():
            self._idle_since = self.loop.time()
            return
        self._again = True
        self.loop.call_soon(self._handle_again)

    def go_on_now(self) -> None:
        """The same, for whoever is not called by the session: it is handled when this returns."""
        if self._handling:
            self.go_on()
        else:
            self._handle_again()

    def _handle_again(self) -> None:
        self._again = False
        self._idle_since = self.loop.time()
        self._waits = False
        self.resume_reading("request")
        self.handle_rest()

    def end(self, reason: str) -> None:
        """Send what is encoded, then close."""
        self.close(reason)

    def date(self) -> str:
        """The time, as the header has it; made anew each second."""
        return _date(int(time.time()))

    # Requests

    async def _serve(self, request: Request) -> None:
        session = self.session
        assert session is not None and session.version != "websocket"
        try:
            response = await self._answer(request)
            if response is None:
                return
            if response.conversation is not None:
                await self._converse(response.conversation)
                return
            if response.stream is not None and request.method == "HEAD":
                await response.stream.aclose()
                response = Response(response.status, b"", response.content_type, response.headers)
            if response.kept is not None:
                self._respond_when_kept(session, request, response, *response.kept)
            elif response.stream is None:
                session.respond(request, response)
            else:
                await self._stream(request, response)
        except asyncio.CancelledError:
            raise
        except Exception:
            self._failed(session, request)
        finally:
            del self._requests[request]
            if self.transport is None:
                self.let_go()
        self.context.tick.schedule()

    def _failed(self, session: H1Session | H2Session, request: Request) -> None:
        """The edge of the request: a bug of ours ends this answer only. Called in an except clause."""
        logger.exception(
            "a request failed",
            extra=fields(connection=self.id, method=request.method, path=request.target),
        )
        error = HttpError(500, "internal_error", "an internal error; see the gateway's log")
        session.respond(request, self._app.problem(request, error))

    def _respond_when_kept(
        self, session: H1Session | H2Session, request: Request, response: Response, lsn: int, synced: bool
    ) -> None:
        """Send an answer that says what the log has kept, when it has."""

        def told(ok: bool) -> None:
            try:
                session.respond(request, response if ok else self._app.problem(request, log_failed()))
            except Exception:
                self._failed(session, request)

        log = self._broker.log
        (log.when_synced if synced else log.when_written)(lsn, told)

    async def _answer(self, request: Request) -> Response | None:
        """None: another worker goes on with the connection."""
        try:
            try:
                if self._unsent() > _UNSENT_MAX:
                    await self._wait_output_capacity()
                if request.handler is None:
                    self._app.routes.read(request)
                if self.internal:
                    self._believe(request)
                else:
                    check_page(request)
                    if not self._app.is_open(request):
                        request.identity = await self._login(request)
                if self.user is None:
                    self.logged_in(request.identity.username if request.identity is not None else "-")
            finally:
                if self.reading_paused:
                    self.resume_reading("login")
            handler = request.handler or self._app.routes.find(request)
            if self._forwarder is None:
                return await handler(request)
            if "upgrade" in request.headers and self._forwarder.owner(request) != self._forwarder.me:
                await self._go(request, self._forwarder.owner(request))
                return None
            if self.internal and (request.part or self._forwarder.me != 0):
                return await handler(request)
            return await self._forwarder.answer(request, handler, self.place)
        except HttpError as error:
            return self._app.problem(request, error)
        except PenstockError as error:
            return self._app.problem(request, self._app.translate(error))

    def _believe(self, request: Request) -> None:
        """Another worker asks, on behalf of whom it has let in."""
        user = request.headers.get(USER)
        if user is not None and (token := request.headers.get(TOKEN)) is not None:
            request.identity = identity_of(user, token)
        elif user is not None:
            request.identity = self._broker.users.identity(
                bytes.fromhex(user).decode("utf-8", "surrogateescape")
            )
            if request.identity is None:
                raise HttpError(401, "not_authorized", "Login failed")
        request.local = LOCAL in request.headers
        request.secure = SECURE in request.headers
        request.peer_host = request.headers.get(PEER, "")
        request.part = request.headers.get(PART, "")
        if (session := session_of(request)) is not None:
            self._broker.web_sessions.used(session)

    async def _go(self, request: Request, worker: int) -> None:
        """Have another worker go on with the connection, from this request on."""
        while self.out.size or (self.transport is not None and self.transport.get_write_buffer_size()):
            self.flush()
            await asyncio.sleep(0.01)
        self.hand_over(worker, [replayed(request)], said=0)

    async def _login(self, request: Request) -> Identity:
        if (session := session_of(request)) is not None:
            return self._of_session(session, request)
        header, users = request.headers.get("authorization", ""), self._broker.users
        if self._known is not None and self._known[0] == (header, request.local, users.changes):
            return self._known[1]
        with users.attempt("http", request.peer_host):
            return await self._log_in(request, header)

    def _of_session(self, session: str, request: Request) -> Identity:
        """The user of a page. One that has ended is nobody's fault, and is in no count and no audit trail."""
        identity = self._broker.web_sessions.authenticate(session, request.local)
        if identity is None:
            raise HttpError(401, "not_authorized", "the session has ended; log in again")
        return identity

    async def _log_in(self, request: Request, header: str) -> Identity:
        users = self._broker.users
        if (token := bearer(header)) is not None:
            # Looked up each time: it ends at its time, and when it is revoked.
            if is_token(token.encode()):
                return await users.authenticate("", token.encode(), request.local, peer=self.peer_host)
            try:
                return self._broker.tokens.authenticate(token, request.local)
            except AuthenticationRefused as error:
                if error.reason == "credentials" and not error.username:
                    await users.wrong_token(token.encode("utf-8", "replace"), self.peer_host, request.local)
                raise
        username, password = credentials(header)
        before = users.changes
        identity = await users.authenticate(username, password, request.local, peer=self.peer_host)
        if identity.grants is None:
            self._known = (header, request.local, before), identity
        return identity

    async def _wait_output_capacity(self) -> None:
        """Wait while too much of earlier answers is unsent."""
        while not self.closing and self._unsent() > _UNSENT_MAX:
            self._has_capacity.clear()
            await self._has_capacity.wait()

    def _unsent(self) -> int:
        waiting = self.transport.get_write_buffer_size() if self.transport is not None else 0
        return self.out.size + waiting + (self.session.unsent if self.session is not None else 0)

    async def _converse(self, conversation: Conversation) -> None:
        """Go on as a WebSocket."""
        from penstock.protocols.http.server.wire.websocket import (
            WsSession,  # here: few connections become one
        )

        self.session = session = WsSession(self, conversation)
        self.go_on()
        await conversation.run(session)
        session.close()

    async def _stream(self, request: Request, response: Response) -> None:
        session, pieces = self.session, response.stream
        assert session is not None and pieces is not None and session.version != "websocket"
        session.begin(request, response)
        try:
            async for piece in pieces:
                session.push(request, piece)
                while (
                    not request.gone
                    and not self.closing
                    and not (self.output_capacity() and session.fits(request))
                ):
                    self._has_capacity.clear()
                    await self._has_capacity.wait()
                if request.gone or self.closing:
                    return
        except BaseException:
            session.abandon(request)
            raise
        finally:
            await pieces.aclose()
        session.finish(request)


_last_date = (0, "")
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""In English, whatever the locale. `email.utils` has them, too, and costs a start 12 ms of CPU."""


def _date(second: int) -> str:
    global _last_date
    if _last_date[0] != second:
        day, month = _DAYS[time.gmtime(second).tm_wday], _MONTHS[time.gmtime(second).tm_mon - 1]
        _last_date = second, time.strftime(f"{day}, %d {month} %Y %H:%M:%S GMT", time.gmtime(second))
    return _last_date[1]


class HttpFrontEnd(FrontEnd):
    """The listeners of the HTTP front end."""

    def __init__(
        self,
        section: str,
        broker: Broker,
        server: ServerOptions,
        loop: asyncio.AbstractEventLoop,
        shared: ProcessContext,
    ) -> None:
        self._broker = broker
        context = wire(broker, server, loop, shared, logger, login_timeout_s=_HEAD_S)
        self.forwarder: Forwarder | None = None
        """With several workers: set before anything is served."""
        self._http_wiring = context
        self.before_drain: list[Callable[[float], Awaitable[None]]] = []
        """The tasks that end before the connections; each gets the time it has, in seconds."""
        super().__init__(section, context, max_connections=server.max_connections)

    async def drain(self, timeout: float) -> None:
        """End what belongs to this front end, then its connections."""
        self.stop_accepting()
        # From the last to the first; one that fails keeps none of the others from being done.
        async with AsyncExitStack() as steps:
            steps.push_async_callback(super().drain, timeout)
            if self.forwarder is not None:
                steps.callback(self.forwarder.close)
            for end in reversed(self.before_drain):
                steps.push_async_callback(end, timeout)

    def serve(
        self, section: str, app: App, address: Address | None, tls_address: Address | None, tls: Tls | None
    ) -> None:
        """Serve `app` at the addresses that a section of the configuration switches on.

        Raises:
            StartError: an address cannot be listened on.

        """
        factory = partial(HttpConnection, self._http_wiring, self._broker, app, self.forwarder)
        if address is not None:
            self.open(section, address, factory, section=section)
        if tls_address is not None and tls is not None:
            layer = tls.layer("h2", "http/1.1")
            name = f"{section}_tls"
            self.open(name, tls_address, factory, section=section, option="tls_listen", tls=layer)
