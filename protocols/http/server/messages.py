"""Requests and responses as handlers see them, whichever version of HTTP they travel by.

A handler is a coroutine from a `Request` to a `Response`; what a client did wrong leaves it as an
`HttpError`.
The body of a request is read when the handler asks for it and not before: until then the session takes no
more of it than its flow control has granted, and "100 Continue" is sent no sooner.

Paths are split at "/" first and each segment is percent-decoded once, so a vhost "/" travels as "%2F". As in
RabbitMQ a "+" in a path is a space.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote_to_bytes

import orjson

from penstock.lazy_dataclass import dataclass
from penstock.router.authorization.identity import Identity

if TYPE_CHECKING:
    from penstock.protocols.http.server.wire.websocket import Conversation

__all__ = [
    "BODY_MAX",
    "PREFACE",
    "Content",
    "HttpError",
    "Others",
    "Request",
    "Response",
    "dumps",
    "json_response",
    "log_failed",
    "parsed",
    "split_target",
]

BODY_MAX: Final = 16 << 20
"""The largest body of a request, unless its handler takes more."""
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of a client that speaks HTTP/2. Source: RFC 9113 3.4."""
_QUERY_MAX: Final = 100
"""Parameters of one request."""


class HttpError(Exception):
    """The request cannot be served: a status, and a short word and a sentence for the client.

    `retry_after_s`: after so many whole seconds it may be sent again, as it is. `more`: members of the
    problem that are its code's own.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        retry_after_s: int | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.more = more or {}
        self.headers = tuple(headers)
        if retry_after_s is not None:
            self.headers += (("retry-after", str(retry_after_s)),)


class Content(Protocol):
    """The content of an answer, which may be the answer to other requests, too."""

    def reply(self, request: Request) -> Response:
        """The answer to a request for it."""


@dataclass(slots=True)
class Response:
    """An answer. With `stream` the body is what the generator yields; otherwise it is `body`."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Sequence[tuple[str, str]] = ()
    stream: AsyncGenerator[bytes, None] | None = None
    """Pieces, sent as they come; the session waits for room in the output between two of them."""
    conversation: Conversation | None = None
    """The connection is a WebSocket from now on, for this."""
    kept: tuple[int, bool] | None = None
    """(LSN, synced): it is sent when the log up to there is synced, or written; what is answered instead when
    the log fails is the connection's affair. So a handler need not wait."""
    content: Content | None = None
    """The source of the body, if others who ask may have it."""


def json_response(
    value: object, status: int = 200, headers: Sequence[tuple[str, str]] = (), kind: str = "application/json"
) -> Response:
    """An answer with `value` as JSON."""
    return Response(status, dumps(value), kind, headers)


def log_failed() -> HttpError:
    """The refusal of a request that waited for the log when the log failed."""
    return HttpError(503, "log_failed", "the log failed; see the gateway's log")


def dumps(value: object) -> bytes:
    """`value` as JSON; text of a peer that is no UTF-8 comes with replacement characters."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except (orjson.JSONEncodeError, TypeError):
        return orjson.dumps(_clean(value))


def _clean(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        case bytes() | bytearray() | memoryview():
            return bytes(value).decode("utf-8", "replace")
        case Mapping():
            return {str(_clean(str(key))): _clean(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_clean(item) for item in value]
        case int() if not -(2**63) <= value < 2**64:
            return float(value)
        case None | bool() | int() | float():
            return value
    return str(value)


def parsed(body: bytes) -> Any:
    """A body as JSON.

    Raises:
        HttpError: 400 `not_json`.

    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise HttpError(400, "not_json", f"the body is not JSON: {error.msg} at {place}") from error


def split_target(target: str) -> tuple[list[str], dict[str, list[str]]]:
    """The decoded segments of a request target's path, and its query.

    Raises:
        HttpError: 400, it is no path, or its escapes give no text.

    """
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        raise HttpError(400, "malformed", "the request target is not a path; send the path only")
    raw = path[1:].split("/")
    if raw[-1] == "":
        raw.pop()
    parameters: dict[str, list[str]] = {}
    if query:
        pairs = query.split("&")
        if len(pairs) > _QUERY_MAX:
            raise HttpError(400, "malformed", f"more than {_QUERY_MAX} query parameters")
        for pair in pairs:
            name, _, value = pair.partition("=")
            parameters.setdefault(_decoded(name), []).append(_decoded(value))
    segments = [_decoded(segment) for segment in raw]
    if any(segment in (".", "..") for segment in raw):
        raise HttpError(400, "malformed", "a path with dot segments")
    return segments, parameters


def _decoded(text: str) -> str:
    if text.isalnum() and text.isascii():
        return text
    try:
        decoded = unquote_to_bytes(text.replace("+", " ")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise HttpError(400, "malformed", "a name in the request target is not UTF-8") from error
    if "\0" in decoded:
        raise HttpError(400, "malformed", "a NUL character in the request target")
    return decoded


def _nothing() -> None:
    pass


class Others(Protocol):
    """The other workers, as worker 0 asks them on behalf of one request."""

    @property
    def count(self) -> int:
        """How many they are."""

    async def ask(self, words: Sequence[str], *, body: bytes | None = None) -> list[Any]:
        """The JSON answer of each to its own question; None for a worker with no question ("").

        Args:
            words: The questions.
            body: JSON that each gets, where the request has a body, which was read.

        Raises:
            HttpError: 503, one of them does not answer; otherwise what it answered.

        """

    async def streams(self, word: str) -> list[AsyncGenerator[bytes, None]]:
        """The answers to the same question as they come; each is to be closed. Raises as `ask`."""


@dataclass(slots=True, eq=False)
class Request:
    """One request. Made by a session when its head is complete."""

    method: str
    target: str
    headers: Mapping[str, str]
    """By lower-case name; repeated ones joined with ", "."""
    version: str
    """"1.0", "1.1" or "2"."""
    stream_id: int = 0
    """HTTP/2's; 0 on HTTP/1."""
    peer_host: str = ""
    local: bool = False
    """Rules about loopback hold for the client."""
    secure: bool = False
    """It came by TLS."""
    segments: Sequence[str] = ()
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """The segments that matched a name of the route."""
    handler: Callable[[Request], Awaitable[Response]] | None = None
    """The worker that serves it, when that is known from an earlier request; see `Routes`."""
    identity: Identity | None = None
    """The caller; None where no login is needed."""
    part: str = ""
    """Worker 0 asks for what this worker knows of something that all know a part of: which part of it, in the
    words of whoever put the question."""
    others: Others | None = None
    """The other workers, who know a part of this, too; None: here is everything."""
    session_wants: Callable[[], None] = _nothing
    """Of the session: the body is wanted from now on."""
    wanted: bool = False
    limit: int = BODY_MAX
    complete: bool = False
    """The body is whole."""
    gone: bool = False
    """The client does not wait for the answer any more."""
    refusal: HttpError | None = None
    """Why it waits in vain: the rights of its user were taken back."""
    on_gone: Callable[[], None] = _nothing
    """Called when either happens."""
    on_shutdown: Callable[[], None] = _nothing
    """Called when the gateway stops: whoever waits for something answers with what there is."""
    _body: bytearray | bytes = b""
    _waiter: asyncio.Future[None] | None = None
    _error: HttpError | None = None

    def parameter(self, name: str, default: str = "") -> str:
        """The first query parameter of that name."""
        values = self.query.get(name)
        return values[0] if values else default

    def flag(self, name: str) -> bool:
        """Whether a query parameter says true."""
        return self.parameter(name).lower() == "true"

    async def body(self, limit: int = BODY_MAX) -> bytes:
        """The whole body, of at most `limit` bytes.

        Raises:
            HttpError: 413 when it is larger, 400 when the client broke it off.

        """
        self.limit = limit
        self.wanted = True
        if len(self._body) > limit:
            raise self._too_large()
        if not self.complete and self._error is None:
            self.session_wants()
            if not self.complete and self._error is None:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        if self._error is not None:
            raise self._error
        body, self._body = bytes(self._body), b""
        return body

    async def json(self, limit: int = BODY_MAX) -> Any:
        """The body as JSON.

        Raises:
            HttpError: 400 `not_json`.

        """
        return parsed(await self.body(limit))

    # Called by the session

    def feed(self, data: bytes | memoryview) -> None:
        """More of the body."""
        if self._error is None:
            if not self._body:
                self._body = bytes(data)
            elif isinstance(self._body, bytes):
                self._body = bytearray(self._body) + data
            else:
                self._body += data
            if self.wanted and len(self._body) > self.limit:
                self.fail(self._too_large())

    def end(self) -> None:
        """The body is whole."""
        self.complete = True
        self._wake()

    def fail(self, error: HttpError) -> None:
        """The body will not become whole."""
        self._error = error
        self._body = b""
        self._wake()

    def lost(self) -> None:
        """The client is gone, or does not want the answer."""
        if not self.gone:
            self.gone = True
            self.fail(HttpError(400, "malformed", "the client broke off"))
            self.on_gone()

    def revoke(self, refusal: HttpError) -> None:
        """The user may not have what the request waits for any more."""
        self.refusal = refusal
        self.on_gone()

    @property
    def refused(self) -> bool:
        """The body was too large or broken off: what comes of it is dropped."""
        return self._error is not None

    def _too_large(self) -> HttpError:
        return HttpError(413, "body_too_large", f"the body is larger than {self.limit} bytes")

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
