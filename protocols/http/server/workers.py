"""HTTP with several workers: each request is answered where what it is about is.

A request that names a vhost goes to the worker which has that vhost; what workers have in common is
changed by worker 0, which also answers for the gateway as a whole. The worker that accepted the
connection asks on behalf of its client, by HTTP/1.1 through a pair of sockets (`handover`), and hands back
what comes. A WebSocket is handed over with its connection instead.

Worker 0 puts together what each worker knows a part of: lists (`management.joined`), sums, metrics
(`sums`). A request for such a part has the header `penstock-part`, which says what part. The user is in
`penstock-user`, and in `penstock-token` what a token allows: a worker is trusted, and what clients send in
these headers is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.server.worker_totals import added, labelled
from penstock.protocols.listening.definitions import join
from penstock.protocols.workers.replication import WorkerDown
from penstock.router.authorization.grants import Grants
from penstock.router.authorization.identity import Identity

if TYPE_CHECKING:
    from penstock.protocols.workers.handover import HandoverSockets
    from penstock.protocols.workers.replication import Leader
    from penstock.router.broker import Broker

__all__ = [
    "LOCAL",
    "PART",
    "PEER",
    "SECURE",
    "TOKEN",
    "USER",
    "Forwarder",
    "Handler",
    "identity_of",
    "replayed",
]

PART: Final = "penstock-part"
_ALL: Final = "all"
USER: Final = "penstock-user"
TOKEN: Final = "penstock-token"
LOCAL: Final = "penstock-local"
SECURE: Final = "penstock-secure"
PEER: Final = "penstock-peer"
_OURS: Final = frozenset({PART, USER, TOKEN, LOCAL, SECURE, PEER})

Handler = Callable[[Request], Awaitable[Response]]

_BODY_MAX: Final = 64 << 20
"""The largest that any handler takes."""
_HEAD_MAX: Final = 256 << 10
_PIECE: Final = 64 << 10
_IDLE_MAX: Final = 16
_PART_S: Final = 10.0
"""How long a worker may take to give its part of something."""
_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_MADE_ANEW: Final = _HOP_BY_HOP | {"content-type", "date", "server"}
_OF_WORKER_0: Final = (
    "/api/permissions/",
    "/api/topic-permissions/",
    "/api/vhosts/",
    "/api/vhost-limits/",
    "/api/definitions/",
)
"""Paths that name a vhost and are worker 0's to change."""
_SEARCHED: Final = ("/api/connections/", "/api/channels/", "/api/nodes/")
_EVERYWHERE: Final = ("/api/health/checks/", "/api/healthchecks/")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True)
class _Way:
    """A connection to a worker, for one request at a time."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def usable(self) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing())


class _Others:
    """See `messages.Others`."""

    def __init__(self, forwarder: Forwarder, request: Request, place: tuple[str, str]) -> None:
        self.count = len(forwarder.others)
        self._forwarder = forwarder
        self._request = request
        self._place = place

    async def ask(self, words: Sequence[str], *, body: bytes | None = None) -> list[Any]:
        asked = {who: word for who, word in zip(self._forwarder.others, words, strict=True) if word}
        answers = await self._forwarder._each(self._request, self._place, asked, body=body)
        said = dict(zip(asked, [await _told(one) for one in answers], strict=True))
        return [said.get(who) for who in self._forwarder.others]

    async def streams(self, word: str) -> list[AsyncGenerator[bytes, None]]:
        asked = dict.fromkeys(self._forwarder.others, word)
        answers = await self._forwarder._each(self._request, self._place, asked)
        for one in answers:
            if one.status != 200:
                await _told(one)
        return [_limited(one) for one in answers]


class Forwarder:
    """Of one listener in one worker; see the module."""

    def __init__(self, broker: Broker, handover: HandoverSockets, leader: Leader | None) -> None:
        self.me: Final = handover.me
        self.others: Final[Sequence[int]] = handover.others
        self._broker = broker
        self._handover = handover
        self._leader = leader
        self._idle: dict[tuple[int, tuple[str, str]], list[_Way]] = {}

    def owner(self, request: Request) -> int:
        """The worker that answers; the request's route is found."""
        vhost = request.names.get("vhost")
        if vhost is None:
            return 0
        if request.method not in _READS and _in_common(request):
            return 0
        worker = self._broker.elsewhere(vhost)
        return self.me if worker is None else worker

    async def answer(self, request: Request, handler: Handler, place: tuple[str, str]) -> Response:
        """Answer a request here, whichever worker asked, or have its owner do it."""
        owner = self.owner(request)
        if owner != self.me:
            return await self.forward(request, owner, place)
        if self.me != 0 or "vhost" in request.names:
            response = await handler(request)
        else:
            request.others = _Others(self, request, place)
            response = await self._whole(request, handler, place)
        if request.method not in _READS and (
            "vhost" not in request.names or (owner == 0 and _in_common(request))
        ):
            await self.settled()
        return response

    async def settled(self) -> None:
        """Wait until what worker 0 has changed holds in all workers."""
        if self._leader is not None:
            await self._leader.settled()

    async def clear(self, vhost: str) -> None:
        """Have the worker of a vhost remove what is in it, if that is another one.

        Raises:
            HttpError: 503, that worker does not run.

        """
        worker = self._broker.elsewhere(vhost)
        if worker is not None and self._leader is not None:
            try:
                await self._leader.clear(worker, vhost)
            except WorkerDown:
                raise _down(f"worker {worker}") from None

    # Lists of which each worker knows a part

    async def _whole(self, request: Request, handler: Handler, place: tuple[str, str]) -> Response:
        target = request.target.partition("?")[0]
        if target.startswith("/metrics"):
            own = await _body_of(await handler(request))
            others = [await _body_of(one) for one in await self._each(request, place)]
            return Response(200, labelled([own, *others]), "text/plain; version=0.0.4; charset=utf-8")
        if target.startswith(_SEARCHED):
            return await self._searched(request, handler, place)
        response = await handler(request)
        if response.status != 200 or request.method != "GET":
            return response
        if target.startswith(_EVERYWHERE):
            for one in await self._each(request, place):
                if one.status != 200:
                    return one
        elif target == "/api/overview":
            return json_response(added(orjson.loads(response.body), await self.parts(request, place)))
        elif target in ("/api/definitions", "/api/all-configuration"):
            whole = join(orjson.loads(response.body), await self.parts(request, place))
            return json_response(whole, headers=response.headers)
        return response

    async def _searched(self, request: Request, handler: Handler, place: tuple[str, str]) -> Response:
        """The answer of the first who knows it; what is done to all of a user's is done everywhere."""
        everywhere = request.method == "DELETE" and "user" in request.names
        missing: HttpError | None = None
        try:
            response = await handler(request)
        except HttpError as error:
            if error.status != 404:
                raise
            missing = error
        if missing is None and not everywhere:
            return response
        for worker in self.others:
            answer = await self.forward(request, worker, place)
            if missing is not None and answer.status != 404:
                return answer
        if missing is not None:
            raise missing
        return response

    async def parts(self, request: Request, place: tuple[str, str]) -> list[Any]:
        """The part of each other worker, as JSON; who has none (404) is left out."""
        answers = await self._each(request, place)
        return [orjson.loads(await _body_of(one)) for one in answers if one.status == 200]

    async def _each(
        self,
        request: Request,
        place: tuple[str, str],
        words: Mapping[int, str] | None = None,
        *,
        body: bytes | None = None,
    ) -> list[Response]:
        """The answers for their part, of all other workers or of those with a word. Raises HttpError 503."""
        asked = dict.fromkeys(self.others, _ALL) if words is None else words
        try:
            async with asyncio.timeout(_PART_S):
                return await asyncio.gather(
                    *(
                        self.forward(request, worker, place, part=word, body=body)
                        for worker, word in asked.items()
                    )
                )
        except TimeoutError:
            raise _down("a worker") from None

    async def everywhere(self, request: Request, place: tuple[str, str], body: bytes) -> None:
        """Have all other workers do their part, too. Raises HttpError: one of them cannot."""
        asked = (self.forward(request, worker, place, part=_ALL, body=body) for worker in self.others)
        for answer in await asyncio.gather(*asked):
            if answer.status >= 300:
                told = orjson.loads(await _body_of(answer))
                raise HttpError(answer.status, "unavailable", str(told.get("reason", told)))

    # Asking another worker

    async def forward(
        self,
        request: Request,
        worker: int,
        place: tuple[str, str],
        *,
        part: str = "",
        body: bytes | None = None,
    ) -> Response:
        """The answer of a worker to a request, or to one like it with another `body`; to one for a `part`.

        Raises:
            HttpError: 503, the worker ended before it answered.

        """
        kind = request.headers.get("content-type", "")
        if body is not None:
            kind = "application/json"
        else:
            body = b"" if request.method in _READS else await request.body(_BODY_MAX)
        head = _head(request, part, body, kind)
        key = worker, place
        way: _Way | None = None
        kept = False
        try:
            way = await self._way(key)
            way.writer.write(head + body)
            # If the client waits no more, the worker must not wait either.
            request.on_gone = way.writer.transport.abort
            response, framing = await _response_head(way.reader)
            request.on_gone = _nothing
            if framing is None:
                kept = True
            elif 0 <= framing <= _PIECE:
                response.body = await way.reader.readexactly(framing)
                kept = True
            else:
                response.stream = self._pieces(key, way, framing)
                way = None
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            raise _down(f"worker {worker}") from None
        finally:
            if way is not None:
                self._give_back(key, way, kept=kept)
        return response

    async def _way(self, key: tuple[int, tuple[str, str]]) -> _Way:
        idle = self._idle.get(key, [])
        while idle:
            way = idle.pop()
            if way.usable:
                return way
            way.writer.close()
        worker, place = key
        record = {
            "kind": "client",
            "internal": True,
            "place": place,
            "peer": ("127.0.0.1", 0),
            "foreign": False,
            "server": ("127.0.0.1", 0),
            "user": None,
            "said": 0,
            "reads": [],
        }
        pair = self._handover.pair(worker, record)
        return _Way(*await asyncio.open_unix_connection(sock=pair, limit=_HEAD_MAX))

    def _give_back(self, key: tuple[int, tuple[str, str]], way: _Way, *, kept: bool) -> None:
        idle = self._idle.setdefault(key, [])
        if kept and way.usable and len(idle) < _IDLE_MAX:
            idle.append(way)
        else:
            way.writer.close()

    async def _pieces(
        self, key: tuple[int, tuple[str, str]], way: _Way, size: int
    ) -> AsyncGenerator[bytes, None]:
        """The body of an answer as it comes: of `size` bytes, or in chunks (-1)."""
        whole = False
        try:
            while size > 0:
                piece = await way.reader.read(min(size, _PIECE))
                if not piece:
                    raise _down(f"worker {key[0]}")
                size -= len(piece)
                yield piece
            while size < 0:
                line = await way.reader.readuntil(b"\r\n")
                count = int(line.split(b";")[0], 16)
                piece = await way.reader.readexactly(count + 2)
                if not count:
                    break
                yield piece[:-2]
            whole = True
        except asyncio.IncompleteReadError:
            raise _down(f"worker {key[0]}") from None
        finally:
            self._give_back(key, way, kept=whole)

    def close(self) -> None:
        """Let go of connections that nobody uses."""
        for idle in self._idle.values():
            for way in idle:
                with contextlib.suppress(OSError, RuntimeError):
                    way.writer.close()


def _in_common(request: Request) -> bool:
    """Whether it is about what all workers have in common, though it names a vhost."""
    return request.target.startswith(_OF_WORKER_0)


def _nothing() -> None:
    pass


def replayed(request: Request) -> bytes:
    """The head of an HTTP/1.1 request without a body, as it may have come."""
    lines = [f"{request.method} {request.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name not in _OURS]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _head(request: Request, part: str, body: bytes, kind: str) -> bytes:
    # HEAD is made of the answer to GET where the client is.
    method = "GET" if request.method == "HEAD" else request.method
    lines = [f"{method} {request.target} HTTP/1.1"]
    for name, value in request.headers.items():
        if name not in _HOP_BY_HOP and name not in _OURS and name != "content-type":
            lines.append(f"{name}: {value}")
    if kind:
        lines.append(f"content-type: {kind}")
    if "host" not in request.headers:
        lines.append("host: penstock")
    if request.identity is not None:
        identity = request.identity
        lines.append(f"{USER}: {identity.username.encode('utf-8', 'surrogateescape').hex()}")
        if identity.grants is not None:
            said = [identity.grants.texts(), identity.grants.ends_at, sorted(identity.tags)]
            lines.append(f"{TOKEN}: {orjson.dumps(said).hex()}")
    if request.local:
        lines.append(f"{LOCAL}: 1")
    if request.secure:
        lines.append(f"{SECURE}: 1")
    lines.append(f"{PEER}: {request.peer_host}")
    if part:
        lines.append(f"{PART}: {part}")
    if body or method not in _READS:
        lines.append(f"content-length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def identity_of(user: str, token: str) -> Identity:
    """The caller, as `penstock-user` and `penstock-token` say."""
    texts, ends_at, tags = orjson.loads(bytes.fromhex(token))
    grants, _ = Grants.parse(texts, ends_at)
    name = bytes.fromhex(user).decode("utf-8", "surrogateescape")
    return Identity(name, frozenset(tags), grants=grants)


async def _response_head(reader: asyncio.StreamReader) -> tuple[Response, int | None]:
    """The beginning of an answer, and its body: of so many bytes, -1 in chunks, None without one."""
    while True:
        lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ", 2)[1])
        if status >= 200:
            break
    headers = [
        (name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])
    ]
    by_name = dict(headers)
    response = Response(
        status,
        b"",
        by_name.get("content-type", ""),
        [(name, value) for name, value in headers if name not in _MADE_ANEW],
    )
    if status in (204, 304):
        return response, None
    if "chunked" in by_name.get("transfer-encoding", ""):
        return response, -1
    return response, int(by_name.get("content-length", 0))


async def _body_of(response: Response) -> bytes:
    if response.stream is None:
        return response.body
    return b"".join([piece async for piece in response.stream])


async def _told(response: Response) -> Any:
    """The answer as JSON. Raises HttpError: it is no answer."""
    said = orjson.loads(await _body_of(response))
    if response.status != 200:
        reason = said.get("reason", "") if isinstance(said, dict) else ""
        raise HttpError(response.status, "bad_request", str(reason))
    return said


async def _limited(response: Response) -> AsyncGenerator[bytes, None]:
    """The body as it comes. Raises HttpError 503: for long nothing did."""
    stream = response.stream
    if stream is None:
        yield response.body
        return
    try:
        while True:
            try:
                async with asyncio.timeout(_PART_S):
                    piece = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise _down("a worker") from None
            yield piece
    finally:
        await stream.aclose()


def _down(who: str) -> HttpError:
    return HttpError(
        503, "worker_down", f"{who} is being started again; try again in a few seconds", retry_after_s=2
    )
