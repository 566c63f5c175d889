"""The HTTP/1.1 client of one webhook: a request to a checked address, an answer, or why there is none.

Small on purpose, on llhttp (httptools): what a general client does by itself is what a webhook must not do.
There are no redirects, no proxies from the environment, no cookies, no decompression; the host is resolved
here, its addresses are checked (`guard`), and the connection is made to one of these, with the host's name
kept for TLS and the Host header. Of an answer 16 KiB of head and 64 KiB of body are read.

Each webhook has a client of its own, with its own connections and its own thread while a name is looked up:
nothing of one can hold up another.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, cast

import httptools

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.webhooks.address_rules import Forbidden, Guard, Target

__all__ = ["Answer", "Client", "NoAnswer", "Resolve", "look_up"]

_HEAD_MAX: Final = 16 << 10
_BODY_MAX: Final = 64 << 10
_IDLE_S: Final = 50.0
_LOOK_UP_S: Final = 10.0

Resolve = Callable[[str, int], list[str]]
"""The addresses of a host, called in a thread. Raises OSError."""


def look_up(host: str, port: int) -> list[str]:
    """All addresses of a host, as the system knows them. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class NoAnswer(Exception):
    """There is no answer: `kind` is forbidden, broken, dns, connect, tls, timeout, closed or garbage."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


@dataclass(slots=True)
class Answer:
    """The answer of a receiver."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """By lower-case name; the last one of equal names."""
    body: bytes = b""
    """At most 64 KiB of it."""


class _Connection(asyncio.Protocol):
    """One connection: one request at a time. Parser callbacks and protocol callbacks in one object."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self.used = False
        self.heard = False
        """Something came since the request was sent."""
        self.open = True
        self._size = 0
        self._waiter: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._begin()

    def _begin(self) -> None:
        self._answer = Answer()
        self._body = bytearray()
        self._framed = False
        self._in_body = False

    # asyncio's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are not derived from it

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.close()  # nobody asked
            return
        self.heard = True
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail("garbage", f"the answer is not HTTP/1.1: {error}")
            return
        if self._waiter is not None and not self._in_body and self._size > _HEAD_MAX:
            self._fail("garbage", f"the head of the answer has more than {_HEAD_MAX} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._in_body and not self._framed and exc is None:
            self._complete()  # its end is the end of the body
        else:
            self._fail("closed", f"the connection ended without an answer{f': {exc}' if exc else ''}")

    # llhttp's

    def on_message_begin(self) -> None:
        self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        lowered = name.decode("latin-1").lower()
        self._answer.headers[lowered] = value.decode("latin-1")
        if lowered in ("content-length", "transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()
        self._in_body = self._answer.status >= 200

    def on_body(self, body: bytes) -> None:
        left = _BODY_MAX - len(self._body)
        self._body += body[:left]
        if len(body) > left:
            self._complete()  # the rest does not matter, and the connection is not worth reading it
            self.close()

    def on_message_complete(self) -> None:
        if self._answer.status < 200:
            self._in_body = False
            return
        if not self._parser.should_keep_alive():
            self.close()
        self._complete()

    # The client's

    async def exchange(self, head: bytes, body: bytes) -> Answer:
        """Send a request and wait for its answer. Raises NoAnswer."""
        assert self.transport is not None
        self.heard = False
        self._size = 0
        if not self.open:
            raise NoAnswer("closed", "the connection was closed")
        self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(head + body if len(body) < 16384 else head)
        if len(body) >= 16384:
            self.transport.write(body)
        return await self._waiter

    def close(self) -> None:
        self.open = False
        if self.transport is not None:
            self.transport.abort()

    def _complete(self) -> None:
        waiter, self._waiter = self._waiter, None
        self._answer.body = bytes(self._body)
        if waiter is not None and not waiter.done():
            waiter.set_result(self._answer)

    def _fail(self, kind: str, detail: str) -> None:
        waiter, self._waiter = self._waiter, None
        self.close()
        if waiter is not None and not waiter.done():
            waiter.set_exception(NoAnswer(kind, detail))


class Client:
    """See the module."""

    def __init__(
        self, target: Target, guard: Guard, tls: ssl.SSLContext | None, *, resolve: Resolve = look_up
    ) -> None:
        """`tls` is needed when the target's scheme is https."""
        self._target = target
        self._guard = guard
        self._tls = tls if target.scheme == "https" else None
        self._resolve = resolve
        self._lookup: asyncio.Future[list[str]] | None = None
        self._idle: list[_Connection] = []

    async def send(
        self, method: str, headers: Mapping[str, str], body: bytes = b"", *, timeout_s: float
    ) -> Answer:
        """Send one request; an answer of any status.

        Raises:
            NoAnswer: there is none in time, or the target may not be reached.

        """
        head = _head(method, self._target, headers, len(body))
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    connection = self._reusable() or await self._connect()
                    try:
                        answer = await connection.exchange(head, body)
                    except NoAnswer:
                        if connection.used and not connection.heard:
                            continue  # closed by the receiver while it was idle: try a new one
                        raise
                    break
        except TimeoutError as error:
            if connection is not None:
                connection.close()
            raise NoAnswer("timeout", f"no answer within {timeout_s:g} s") from error
        except asyncio.CancelledError:
            if connection is not None:
                connection.close()
            raise
        connection.used = True
        if connection.open:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Close what is idle; what is under way ends by its cancellation."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _reusable(self) -> _Connection | None:
        oldest = asyncio.get_running_loop().time() - _IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.open and connection.idle_since > oldest:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        target = self._target
        addresses = await self._addresses()
        try:
            self._guard.permit(target, addresses)
        except Forbidden as error:
            raise NoAnswer("forbidden", str(error)) from error
        loop = asyncio.get_running_loop()
        failure = NoAnswer("connect", "no address")
        for address in addresses:
            try:
                _, connection = await loop.create_connection(
                    _Connection,
                    address,
                    target.port,
                    ssl=self._tls,
                    server_hostname=target.host if self._tls is not None else None,
                )
            except ssl.SSLError as error:
                failure = NoAnswer("tls", f"{target.host} at {address}: {error}")
            except OSError as error:
                failure = NoAnswer("connect", f"{target.host} at {address}: {error}")
            else:
                return connection
        raise failure

    async def _addresses(self) -> list[str]:
        """The host's addresses; connections made at the same time share one look-up."""
        if self._lookup is None:
            self._lookup = _in_thread(self._resolve, self._target.host, self._target.port)
            self._lookup.add_done_callback(self._looked)
        lookup = self._lookup
        try:
            async with asyncio.timeout(_LOOK_UP_S):
                return await asyncio.shield(lookup)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise NoAnswer("dns", f"{self._target.host} was not found within {_LOOK_UP_S:g} s") from error
            raise NoAnswer("dns", f"{self._target.host} was not found: {error}") from error

    def _looked(self, found: asyncio.Future[list[str]]) -> None:
        self._lookup = None
        if not found.cancelled():
            found.exception()  # whoever waits has it


def _in_thread(resolve: Resolve, host: str, port: int) -> asyncio.Future[list[str]]:
    """A thread of its own for each look-up: in a pool, slow names would hold up the others."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def tell(addresses: list[str], error: OSError | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(addresses)
        else:
            found.set_exception(error)

    def run() -> None:
        addresses: list[str] = []
        failure: OSError | None = None
        try:
            addresses = resolve(host, port)
        except OSError as error:
            failure = error
        except UnicodeError as error:  # a label that is too long
            failure = OSError(str(error))
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(tell, addresses, failure)

    threading.Thread(target=run, name="webhook-dns", daemon=True).start()
    return found


def _head(method: str, target: Target, headers: Mapping[str, str], size: int) -> bytes:
    lines = [f"{method} {target.path} HTTP/1.1", f"host: {target.authority}", f"content-length: {size}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
