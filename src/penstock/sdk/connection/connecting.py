"""A client's connection: made again when it is lost, and what hangs on it.

Producers and consumers register as `Resumable`; after a reconnect each resumes, in the order they were made.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from penstock.protocols.native.codec._inbox import Inbox
from penstock.sdk.checking import FOREVER_S, number
from penstock.sdk.connection.link import Link, Receiver, open_link
from penstock.sdk.connection.loop_affinity import LoopAffinity
from penstock.sdk.connection.url import Target, parse_url
from penstock.sdk.errors import ClientError, Closed, ConnectionLost, LoginRefused

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from penstock.sdk.tracing import Tracing

__all__ = ["Connecting", "Resumable"]

logger: Final = logging.getLogger("penstock.sdk")

_FATAL: Final = frozenset(("frame_size", "malformed", "preface", "unexpected_frame", "version"))
"""The reasons to end a connection that hold for the next one as well."""
_BACKOFF_S: Final = 0.05
_BACKOFF_MAX_S: Final = 5.0


class Resumable(Receiver, Protocol):
    """A producer or a consumer."""

    async def resume(self, link: Link) -> None:
        """There is a new connection. Raises ClientError."""

    def paused(self) -> None:
        """The connection is lost."""

    def failed(self, error: ClientError) -> None:
        """It cannot go on."""

    async def close(self) -> None:
        """See the classes."""


class Connecting:
    """A client without the operations of its users: connecting, and staying connected."""

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | Callable[[], str] | None = None,
        certificate_login: bool = False,
        compression: Literal["zstd", "lz4"] | None = None,
        connect_timeout_s: float = 10.0,
        close_timeout_s: float = 10.0,
        reconnect: bool = True,
        reconnect_timeout_s: float | None = None,
        tracing: Tracing | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """A client that is not connected yet.

        Args:
            url: penstock://user:password@host:port/vhost, or penstocks:// for TLS.
            tls: How a gateway proves who it is; None: as Python does it by default.
            user, password: Instead of those in the URL.
            token: A token of OAuth 2, or a function that gets one for each connection, instead of a password.
            certificate_login: Log in as whom the certificate in `tls` names.
            compression: "zstd" or "lz4": batches are compressed in both directions; for slow networks. LZ4
                needs the package lz4 on both sides, makes more bytes, and takes half the CPU.
            connect_timeout_s: How long one try may take.
            close_timeout_s: How long closing waits for what is not confirmed.
            reconnect: Make a lost connection again.
            reconnect_timeout_s: Give up after so long, and have everything raise ConnectionLost; None: never.
            tracing: Spans of OpenTelemetry: `penstock.OpenTelemetry()`.
            clock: Seconds since the epoch, from which `deliver_after_s` counts. In tests: `Gateway.now`.

        Raises:
            TypeError, ValueError: one of them is none such.
            ClientError: `url` is none, or has no TLS although `tls` is given.

        """
        target = parse_url(url)
        _check_options(target, tls, user, password, token)
        for what, seconds in (
            ("connect_timeout_s", connect_timeout_s),
            ("close_timeout_s", close_timeout_s),
            ("reconnect_timeout_s", 0 if reconnect_timeout_s is None else reconnect_timeout_s),
        ):
            number(what, seconds, 0, FOREVER_S)
        if user is not None:
            target = target._replace(user=user)
        if password is not None:
            target = target._replace(password=password)
        self.target = target
        self.tracing = tracing
        self.clock = clock
        self.close_timeout_s = close_timeout_s
        self._token = token
        self._give_up_s = reconnect_timeout_s
        self._tls = tls
        self._certified = certificate_login
        self._compression = compression
        self._timeout_s = connect_timeout_s
        self._reconnects = reconnect
        self._stored = Inbox.takes_stored
        self._home: LoopAffinity | None = None
        """Where it connected; None: it did not yet."""
        self._link: Link | None = None
        self._error: ClientError | None = None
        self._members: dict[int, Resumable] = {}
        self._next_handle = 0
        self._reconnecting: asyncio.Task[None] | None = None
        self._user = ""
        self._connected = asyncio.Event()
        self._closed = False
        self.reconnects = 0
        """How often a lost connection was made again."""

    # Connecting

    async def connect(self) -> Self:
        """Connect, once; what follows is done by itself. Raises ConnectionLost, LoginRefused."""
        if self._closed:
            raise self._is_closed()
        self.check_here()
        if self._link is not None:
            return self
        self._home = LoopAffinity(self.target.address)
        self._link = await self._open()
        self._connected.set()
        return self

    async def _open(self) -> Link:
        target = self.target
        if self._token is not None:
            token = self._token if isinstance(self._token, str) else self._token()
            if not isinstance(token, str):
                raise TypeError(f"the function token gives text, not {type(token).__name__}")
            target = target._replace(user="", password=token)
        link = await open_link(
            target,
            self._tls,
            self._certified,
            self._compression,
            self._stored,
            self._timeout_s,
            self._on_lost,
        )
        self._user = link.user
        return link

    def _on_lost(self, link: Link, why: ClientError) -> None:
        if link is not self._link or self._closed:
            return
        self._link = None
        self._stored = self._stored and not link.damaged
        self._connected.clear()
        for member in list(self._members.values()):
            member.paused()
        if not self._reconnects or isinstance(why, LoginRefused) or why.code in _FATAL:
            self._give_up(why)
        else:
            logger.warning("%s: %s; connecting again", self.target.address, why.message)
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        """Full jitter: each wait is a random part of a bound that doubles."""
        import random

        loop = asyncio.get_running_loop()
        began, bound_s = loop.time(), _BACKOFF_S
        while True:
            await asyncio.sleep(random.uniform(0, bound_s))
            bound_s = min(2 * bound_s, _BACKOFF_MAX_S)
            try:
                link = await self._open()
            except LoginRefused as error:
                self._give_up(error)
                return
            except ClientError as error:
                if self._give_up_s is not None and loop.time() - began >= self._give_up_s:
                    self._give_up(error)
                    return
                continue
            try:
                # Nobody else may use it before all that hung on the last one hangs on it.
                for handle, member in list(self._members.items()):
                    if handle not in self._members:
                        continue  # closed meanwhile
                    link.route(handle, member)
                    try:
                        await member.resume(link)
                        if handle not in self._members:
                            link.drop(handle)
                    except ConnectionLost:
                        raise
                    except ClientError as error:
                        # A gateway that stops ends the new connection, too: that is no answer to the member.
                        ended = not link.alive and error.code not in _FATAL
                        if error.retryable or ended:
                            raise
                        self.forget(handle)
                        member.failed(error)
                if not link.alive:
                    raise ConnectionLost("it was lost again")
            except ClientError:
                link.abort()
                for member in list(self._members.values()):
                    member.paused()
                continue
            except BaseException:
                link.abort()
                raise
            self._link = link
            self.reconnects += 1
            logger.warning("%s: connected again after %.1f s", self.target.address, loop.time() - began)
            self._reconnecting = None
            self._connected.set()
            return

    def _give_up(self, why: ClientError) -> None:
        self._error = why
        self._connected.set()
        for handle, member in list(self._members.items()):
            self.forget(handle)
            member.failed(why)

    def check_here(self) -> None:
        """Whether the call comes from the loop in which it connected. Raises WrongContext."""
        if self._home is not None:
            self._home.check()

    async def link(self) -> Link:
        """The connection, when there is one (again). Raises Closed, ConnectionLost, WrongContext."""
        self.check_here()
        while True:
            if self._closed:
                raise self._is_closed()
            if self._error is not None:
                raise self._error
            if self._link is not None and self._link.alive:
                return self._link
            if self._reconnecting is None and self._link is None:
                raise ConnectionLost(
                    f"the client of {self.target.address} is not connected",
                    remedy="connect it first: use it in a with block, or call its connect()",
                )
            self._connected.clear()
            await self._connected.wait()

    def _is_closed(self) -> Closed:
        return Closed(
            f"the client of {self.target.address} is closed", remedy="connect again: penstock.connect(...)"
        )

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link is not None and self._link.alive

    @property
    def user(self) -> str:
        """The user who is logged in, by the gateway's word; "": nobody was yet."""
        return self._user

    @property
    def reconnecting(self) -> bool:
        """Whether a lost connection is made again."""
        return self._reconnects and not self._closed and self._error is None

    async def call(self, /, do: str, **fields: Any) -> dict[str, Any]:
        """A request of docs/reference/native.md. Raises ClientError."""
        return await (await self.link()).request(do, **fields)

    # Members

    def register(self, member: Resumable) -> int:
        """A handle for a new producer or consumer."""
        self._next_handle += 1
        self._members[self._next_handle] = member
        return self._next_handle

    def forget(self, handle: int) -> None:
        """It is closed."""
        self._members.pop(handle, None)
        if self._link is not None:
            self._link.route(handle, None)

    # Closing

    async def close(self) -> None:
        """Flush and close everything. Idempotent.

        Raises:
            ConnectionLost: within `close_timeout_s` not everything that was sent was confirmed.
            WrongContext: it lives in another event loop. In a forked child there is nothing to close.

        """
        if self._closed or (self._home is not None and self._home.is_forked):
            return
        self.check_here()
        failure: ClientError | None = None
        try:
            for member in reversed(list(self._members.values())):
                try:
                    await member.close()
                except ClientError as error:
                    failure = failure or error
        finally:
            self._closed = True
            self._connected.set()
            link, self._link = self._link, None
            try:
                if self._reconnecting is not None:
                    self._reconnecting.cancel()
                    await asyncio.gather(self._reconnecting, return_exceptions=True)
            finally:
                if link is not None:
                    await self._close_link(link)
        if failure is not None:
            raise failure

    async def _close_link(self, link: Link) -> None:
        try:
            async with asyncio.timeout(self.close_timeout_s):
                await link.close()
        except TimeoutError:
            link.abort()  # the peer takes nothing more

    def __await__(self) -> Generator[Any, None, Self]:
        return self.connect().__await__()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _check_options(target: Target, tls: object, user: object, password: object, token: object) -> None:
    """Check the settings of a client other than times. Raises TypeError, ClientError."""
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls is an ssl.SSLContext, not {type(tls).__name__}: ssl.create_default_context()")
    if tls is not None and not target.tls:
        raise ClientError(
            f"tls= is given, and {target.address} is an address without TLS",
            remedy="write penstocks://, at the port of native.tls_listen",
        )
    for name, value in (("user", user), ("password", password)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} is text, not {type(value).__name__}")
    if token is not None and not isinstance(token, str) and not callable(token):
        raise TypeError(f"token is text, or a function that gives one, not {type(token).__name__}")
