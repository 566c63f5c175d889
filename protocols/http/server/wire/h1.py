"""HTTP/1.1 on one connection: bytes in, requests out; responses in, bytes out. No I/O, no clock of its own.

    HEAD ── a head is complete ──> WAITING ── its handler asks for the body ──> BODY ── end ──> ANSWER
    WAITING, ANSWER ── response sent ──> HEAD, or closed          BODY ── response sent ──> drained, or closed

One request at a time: what a client has pipelined behind it stays unread in the connection, so pipelining
needs no queue and no limit. A head is parsed (`h1_head`) when all of it is there, and not before: a peer that
sends it byte by byte costs a search for its end. The framing of the body is read by ourselves (`h1_body`),
because llhttp cannot stop at the end of a message. A refusal of either ends the connection.

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, Protocol

from penstock.protocols.http.server.messages import HttpError, Request, Response
from penstock.protocols.http.server.wire.h1_body import BadFraming, Framing
from penstock.protocols.http.server.wire.h1_head import HEAD_MAX, TARGET_MAX, Head, read_head

if TYPE_CHECKING:
    from penstock.protocols.net.outbuffer import OutBuffer

__all__ = ["REASONS", "H1Session", "Host"]

_REMEMBERED_MAX: Final = 2048
"""The largest head that a session remembers: programs send the same one again and again."""
_DRAIN_MAX: Final = 1 << 20
"""So much of a body that nobody wanted is read and dropped, or its sender would see a reset before the
answer; above it the connection ends."""
_NEVER_FIRST: Final = frozenset({*range(0x20), *range(0x7F, 0x100)} - set(b"\r\n"))
"""Bytes with which no request begins, nor an empty line before one."""
_NO_BODY: Final = Framing(0, chunked=False)

REASONS: Final = {
    100: "Continue",
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    207: "Multi-Status",
    301: "Moved Permanently",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    412: "Precondition Failed",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    426: "Upgrade Required",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}


class Host(Protocol):
    """The connection, as a session needs it."""

    @property
    def out(self) -> OutBuffer: ...
    @property
    def peer_host(self) -> str: ...
    @property
    def peer_port(self) -> int: ...
    @property
    def server_address(self) -> tuple[str, int]: ...
    def dirty(self) -> None:
        """There is output."""

    def requested(self, request: Request) -> None:
        """The head of a request is there: serve it, then call `respond`, or `begin` and so on."""

    def malformed(self, error: HttpError) -> Response:
        """The answer to input that is no request."""

    def go_on(self) -> None:
        """The input that `receive` left may be handled now."""

    def go_on_now(self) -> None:
        """The same, and it is handled when this returns, if it can be."""

    def end(self, reason: str) -> None:
        """Send what is encoded, then close."""

    def date(self) -> str:
        """The time, as the header has it."""

    def output_capacity(self) -> int:
        """Bytes of output that are welcome now; after 0 the session is told when there is room again."""


@lru_cache(maxsize=256)
def _status_line(status: int, content_type: str) -> bytes:
    """How an answer begins; a 204 and a 304 have no content."""
    kind = "" if status in (204, 304) else f"content-type: {content_type}\r\n"
    line = f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}\r\nserver: penstock\r\n{kind}"
    return line.encode("latin-1", "replace")


class _State(Enum):
    HEAD = "reading a head"
    WAITING = "the handler has not asked for the body"
    BODY = "reading a body"
    ANSWER = "the answer is awaited"
    CLOSED = "closed"


class H1Session:
    """See the module."""

    version: Literal["1.1"] = "1.1"
    unsent = 0
    """Bytes of answers that the session itself holds back."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._state = _State.HEAD
        self._request: Request | None = None
        self._keep = True
        self._framing = _NO_BODY
        self._continue = False
        self._draining = 0
        self._answered = False
        self._chunks_out = False
        self._last_head = b""
        self._last: Head | None = None

    # Asked by the endpoint

    @property
    def idle(self) -> bool:
        """No request is under way."""
        return self._state is _State.HEAD

    @property
    def reading_body(self) -> bool:
        return self._state is _State.BODY

    @property
    def reads(self) -> bool:
        """More bytes of the peer would be of use now."""
        return self._state in (_State.HEAD, _State.BODY)

    # Bytes

    def receive(self, buffer: bytearray, size: int, now: float) -> int:
        """Handle buffer[0:size]; how many bytes of it are done with. Never raises for what a peer sends."""
        at = 0
        while at < size:
            if self._state is _State.HEAD:
                used = self._head(buffer, at, size)
            elif self._state is _State.BODY:
                used = self._body(buffer, at, size)
            elif self._state is _State.CLOSED:
                return size
            else:
                break
            if used == 0:
                break
            at += used
        return at

    def _head(self, buffer: bytearray, at: int, size: int) -> int:
        start = at
        while buffer[at : at + 2] == b"\r\n" and at + 2 <= size:
            at += 2  # RFC 9112 2.2: an empty line before a request is ignored
        end = buffer.find(b"\r\n\r\n", at, size)
        if end < 0:
            if size - at > HEAD_MAX + TARGET_MAX:
                self._refuse(HttpError(431, "headers_too_large", f"a head of more than {HEAD_MAX} bytes"))
                return size - start
            if at < size and buffer[at] in _NEVER_FIRST:
                # A TLS handshake, mostly: its client would wait for an answer, and this end for the head's.
                began = f"it begins with the byte 0x{buffer[at]:02x}"
                self._refuse(HttpError(400, "malformed", f"not an HTTP/1.1 request: {began}"))
                return size - start
            return at - start
        end += 4
        head = bytes(memoryview(buffer)[at:end])
        if head != self._last_head or self._last is None:
            try:
                self._last = read_head(head)
            except HttpError as error:
                self._refuse(error)
                return size - start
            self._last_head = head if len(head) <= _REMEMBERED_MAX else b""
        parsed = self._last
        self._keep = parsed.keep
        # RFC 9110 10.1.1: who expects that and has no body to send waits for nothing.
        self._continue = parsed.expects and (parsed.chunked or parsed.size > 0)
        request = Request(
            parsed.method,
            parsed.target,
            parsed.headers,
            parsed.version,
            peer_host=self._host.peer_host,
        )
        self._request = request
        self._answered = False
        if not parsed.chunked and not self._continue and parsed.size <= size - end:
            # The body, if there is one, has come with the head: nobody need ask for it.
            if parsed.size:
                request.feed(memoryview(buffer)[end : end + parsed.size])
                end += parsed.size
            request.end()
            self._state = _State.ANSWER
        else:
            self._framing = Framing(parsed.size, chunked=parsed.chunked)
            self._state = _State.WAITING
            request.session_wants = self._wanted
        self._host.requested(request)
        return end - start

    # The body

    def _wanted(self) -> None:
        if self._state is not _State.WAITING:
            return
        self._state = _State.BODY
        if self._continue:
            self._continue = False
            self._host.out.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._host.dirty()
        # A handler has asked: mostly the body has come with the head, and need not be waited for.
        self._host.go_on_now()

    def _body(self, buffer: bytearray, at: int, size: int) -> int:
        framing = self._framing
        try:
            used, n = framing.take(buffer, at, size)
        except BadFraming as error:
            self._broken(str(error))
            return size - at
        if n:
            self._take(memoryview(buffer)[at : at + n])
        if framing.ended and self._state is _State.BODY:
            self._ended()
        return used

    def _take(self, data: memoryview) -> None:
        if self._answered:
            self._draining += len(data)
            if self._draining > _DRAIN_MAX:
                self._close("more of an unwanted body than is read")
            return
        request = self._request
        assert request is not None
        request.feed(data)

    def _ended(self) -> None:
        if self._answered:
            self._next()
            return
        self._state = _State.ANSWER
        assert self._request is not None
        self._request.end()

    def _broken(self, why: str) -> None:
        """The body's framing is wrong: where the next request begins is not known."""
        self._keep = False
        request = self._request
        if self._answered or request is None:
            self._close(why)
            return
        self._state = _State.ANSWER
        request.fail(HttpError(400, "malformed", why))

    def body_too_slow(self) -> None:
        """The client sends its body too slowly."""
        self._keep = False
        if self._request is not None and not self._answered:
            self._state = _State.ANSWER
            self._request.fail(HttpError(408, "malformed", "the body came too slowly"))
        else:
            self._close("the body came too slowly")

    # Responses

    def respond(self, request: Request, response: Response) -> None:
        """Send a whole answer to `request`, which must be the one under way."""
        if request is not self._request or self._answered:
            return
        self._start(request, response, len(response.body), b"" if request.method == "HEAD" else response.body)
        self.finish(request)

    def begin(self, request: Request, response: Response) -> None:
        """Send the head of an answer whose body comes in pieces."""
        if request is self._request and not self._answered:
            self._chunks_out = request.version != "1.0"
            if not self._chunks_out:
                self._keep = False
            self._start(request, response, None)

    def push(self, request: Request, data: bytes) -> bool:
        """Send a piece; whether there is still room for more."""
        if request is self._request and data and not request.gone:
            out = self._host.out
            if self._chunks_out:
                out.write(b"%x\r\n" % len(data))
                out.write(data)
                out.write(b"\r\n")
            else:
                out.write(data)
            self._host.dirty()
        return True

    def finish(self, request: Request) -> None:
        """The answer is whole."""
        if request is not self._request or self._answered:
            return
        if self._chunks_out:
            self._chunks_out = False
            self._host.out.write(b"0\r\n\r\n")
        self._host.dirty()
        self._answered = True
        if self._state is _State.ANSWER:
            self._next()
        elif self._continue or (self._framing.known and self._framing.left > _DRAIN_MAX):
            # The body was not asked for, and the client may hold it back or send very much.
            self._close("answered before the body")
        else:
            self._draining = 0
            self._state = _State.BODY
            self._host.go_on()

    def fits(self, request: Request) -> bool:
        """Whether the next piece may be sent now, as far as the protocol is concerned."""
        return True

    def abandon(self, request: Request) -> None:
        """The answer cannot be finished: the client must learn that it is not whole."""
        if request is self._request:
            self._close("an answer was broken off")

    def _start(self, request: Request, response: Response, size: int | None, body: bytes = b"") -> None:
        """Send the head of an answer, and its body if it is there; `size` None: that comes in pieces."""
        if self._state is not _State.ANSWER and (request.refused or self._continue):
            self._keep = False
        head = f"date: {self._host.date()}\r\n"
        if response.status not in (204, 304):
            if size is not None:
                head += f"content-length: {size}\r\n"
            elif self._chunks_out:
                head += "transfer-encoding: chunked\r\n"
        for name, value in response.headers:
            head += f"{name}: {value}\r\n"
        if not self._keep:
            head += "connection: close\r\n"
        elif request.version == "1.0":
            head += "connection: keep-alive\r\n"
        head += "\r\n"
        first = _status_line(response.status, response.content_type)
        self._host.out.write(first + head.encode("latin-1", "replace") + body)
        self._host.dirty()

    def _next(self) -> None:
        self._request = None
        if not self._keep:
            self._close("the last request was answered")
            return
        self._state = _State.HEAD
        self._host.go_on()

    # The end

    def _refuse(self, error: HttpError) -> None:
        """The input is no request: say why, and close."""
        self._keep = False
        response = self._host.malformed(error)
        self._start(Request("GET", "", {}, "1.1"), response, len(response.body), response.body)
        self._close(error.detail)

    def too_slow(self, *, begun: bool) -> None:
        """The client does not complete a head it has begun, or begins none."""
        if begun:
            self._refuse(HttpError(408, "malformed", "the request did not come in time"))
        else:
            # Without a word: a client that sends in this moment would take it for the answer to its request.
            self._close("idle")

    def _close(self, reason: str) -> None:
        self._state = _State.CLOSED
        self._host.end(reason)

    def shutdown(self) -> None:
        """The gateway stops: what is under way is answered, then the connection ends."""
        self._keep = False
        if self._state is _State.HEAD:
            self._close("the gateway stops")

    def lost(self) -> None:
        """The connection is gone."""
        self._state = _State.CLOSED
        request, self._request = self._request, None
        if request is not None:
            request.lost()

    def let_go(self) -> None:
        """Nothing here refers to itself."""

    def clock(self, now: float) -> None:
        """Nothing here waits by itself."""

    def writable(self) -> None:
        """The connection takes output again: those who stream are woken by the endpoint."""
