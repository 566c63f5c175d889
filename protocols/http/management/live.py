"""GET /v1/live: totals of what is on a screen, as server-sent events.

    ?of=overview,queue:V/Q,queue:V/R    at most `OBJECTS_MAX`; V and Q are percent-encoded once more
    &each_ms=1000                       from 250 to 60000

    event: totals
    data: {"at": 1764316987120, "of": {"overview": {...}, "queue:%2F/orders": {...}, "queue:%2F/gone": null}}

    {"messages": N, "messages_ready": N, "messages_unacknowledged": N, "message_stats": {"publish": N, ...}}

Totals have the names of `/api/overview` and `/api/queues`; a rate is the growth between two events. The first
event has all objects, later ones those that changed. null: there is no such queue, or the user may not see
it. `event: end` says why nothing more comes. Nothing is computed while nobody watches, and once for all who
watch at the same moment. A slow client gets fewer events.

A user has at most `_OF_USER_MAX` of these streams, a gateway `_STREAMS_MAX`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final
from urllib.parse import unquote

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.node.overview import totals_of_all
from penstock.protocols.http.management.queue_totals import QUEUE_COUNTERS, queue_counters
from penstock.protocols.http.management.rates import TOTALS, total_counters
from penstock.protocols.http.server.messages import HttpError, Request, Response, dumps, json_response
from penstock.router.authorization.identity import Identity
from penstock.router.exchanges.entries import QueueEntry

__all__ = ["OBJECTS_MAX", "add"]

OBJECTS_MAX: Final = 200
_EACH_MS: Final = (250, 60_000)
_STREAMS_MAX: Final = 200
_OF_USER_MAX: Final = 50
_SHARED_S: Final = 0.2
"""How long totals of the whole are good for others who ask."""
_OVERVIEW: Final = "overview"
_QUEUE: Final = "queue:"

Totals = dict[str, Any]
Values = dict[str, Totals | None]


def add(api: Management) -> None:
    """Serve this path."""
    api.app.routes.add("GET", "/v1/live", _Live(api).follow)


@dataclass(slots=True)
class _Wanted:
    """An object: its text in the query, and what it stands for."""

    text: str
    vhost: str = ""
    queue: str = ""
    entry: QueueEntry | None = None


class _Live:
    def __init__(self, api: Management) -> None:
        self._api = api
        self._streams: Counter[str] = Counter()
        self._whole: tuple[float, dict[str, tuple[int, int]], dict[str, int]] = (-1.0, {}, {})

    async def follow(self, request: Request) -> Response:
        """The stream; of another worker only the totals of now."""
        user = self._api.identity(request).username
        wanted, each_s = _wanted(request.parameter("of")), _each_s(request.parameter("each_ms", "1000"))
        if request.part:
            return json_response(self._values(request, wanted))
        if self._streams.total() >= _STREAMS_MAX or self._streams[user] >= _OF_USER_MAX:
            raise HttpError(
                503,
                "too_many_tails",
                f"there are {_OF_USER_MAX} of these streams of '{user}' already, or {_STREAMS_MAX} in all",
                retry_after_s=60,
            )
        return Response(
            200,
            content_type="text/event-stream",
            headers=(("cache-control", "no-store"),),
            stream=self._events(request, user, wanted, each_s),
        )

    async def _events(
        self, request: Request, user: str, wanted: Sequence[_Wanted], each_s: float
    ) -> AsyncGenerator[bytes, None]:
        ended, why = asyncio.Event(), ""

        def stop() -> None:
            nonlocal why
            why = "the gateway stops"
            ended.set()

        request.on_shutdown = stop
        self._streams[user] += 1
        sent: Values = {}
        due = time.monotonic()
        try:
            with self._api.access.watched(request, _may_wait):
                while True:
                    why = why or ("" if self._sees(request) else "your user may not see this any more")
                    if why or request.gone or request.refusal:
                        break
                    values = await self._joined(request, wanted)
                    request.on_gone = ended.set  # asking another worker has taken it
                    changed = {
                        name: one for name, one in values.items() if name not in sent or sent[name] != one
                    }
                    sent |= changed
                    at = int(self._api.clock() * 1000)
                    yield b"event: totals\ndata: %b\n\n" % dumps({"at": at, "of": changed})
                    due = max(due + each_s, time.monotonic())
                    if not (request.gone or request.refusal):
                        await _until(ended, due)
                if why or request.refusal:
                    reason = request.refusal.detail if request.refusal else why
                    yield b"event: end\ndata: %b\n\n" % dumps({"reason": reason})
        finally:
            self._streams[user] -= 1
            if not self._streams[user]:
                del self._streams[user]

    def _identity(self, request: Request) -> Identity:
        """The caller, with the tags of now."""
        identity = self._api.identity(request)
        if identity.grants is not None:
            return identity
        return self._api.broker.users.identity(identity.username) or identity

    def _sees(self, request: Request) -> bool:
        """Whether the user still has a tag for the API."""
        try:
            self._api.require_tag(self._identity(request))
        except HttpError:
            return False
        return True

    # Totals

    async def _joined(self, request: Request, wanted: Sequence[_Wanted]) -> Values:
        """Those of all workers."""
        values = self._values(request, wanted)
        if request.others is not None:
            try:
                parts = await request.others.ask(["all"] * request.others.count)
            except HttpError:  # a worker is started again: the next event has it
                return {}
            for part in parts:
                for name, theirs in (part or {}).items():
                    ours = values.get(name)
                    values[name] = _sum(ours, theirs) if ours and theirs else ours or theirs
        return values

    def _values(self, request: Request, wanted: Sequence[_Wanted]) -> Values:
        identity = self._identity(request)
        return {
            one.text: self._of_queue(identity, one) if one.queue else self._overview(identity)
            for one in wanted
        }

    def _enters(self, identity: Identity, vhost: str) -> bool:
        return identity.sees_all or self._api.broker.authorizer.enter(identity, vhost)

    def _overview(self, identity: Identity) -> Totals:
        api, now = self._api, time.monotonic()
        if now - self._whole[0] > _SHARED_S:
            lengths: dict[str, tuple[int, int]] = {}
            for (vhost, _, _), one in api.sampler.queues.sums().items():
                ready, unacked = lengths.get(vhost, (0, 0))
                lengths[vhost] = ready + one.ready, unacked + one.unacked
            counted = dict(zip(TOTALS, total_counters(totals_of_all(api)), strict=True))
            self._whole = now, lengths, counted
        _, lengths, counted = self._whole
        seen = [both for vhost, both in lengths.items() if self._enters(identity, vhost)]
        return _totals(sum(one for one, _ in seen), sum(one for _, one in seen), counted)

    def _of_queue(self, identity: Identity, one: _Wanted) -> Totals | None:
        vhost = self._api.broker.vhosts.get(one.vhost)
        if vhost is None or not self._enters(identity, one.vhost):
            return None
        if one.entry is None or one.entry.queue.deleted:
            one.entry = vhost.listed(one.queue)
            if one.entry is None:
                return None
        queue = one.entry.queue
        counted = dict(zip(QUEUE_COUNTERS, queue_counters(queue), strict=True))
        return _totals(queue.ready_count, queue.cursor.outstanding, counted)


def _totals(ready: int, unacked: int, counted: dict[str, int]) -> Totals:
    return {
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "message_stats": counted,
    }


def _sum(ours: Totals, theirs: Totals) -> Totals:
    """The sum of totals of two workers."""
    return {
        name: _sum(value, theirs[name]) if isinstance(value, dict) else value + theirs[name]
        for name, value in ours.items()
    }


async def _until(ended: asyncio.Event, due: float) -> None:
    try:
        async with asyncio.timeout(due - time.monotonic()):
            await ended.wait()
    except TimeoutError:
        pass


def _may_wait(_: Request) -> None:
    """Rights in vhosts are looked at with each event; only the login can end."""


def _wanted(text: str) -> list[_Wanted]:
    """The objects of a query. Raises HttpError 400."""
    names = list(dict.fromkeys(text.split(","))) if text else []
    if not 1 <= len(names) <= OBJECTS_MAX:
        raise HttpError(
            400, "bad_field", f"of: 1 to {OBJECTS_MAX} of overview and queue:V/Q, with commas between"
        )
    found: list[_Wanted] = []
    for name in names:
        vhost, slash, queue = name.removeprefix(_QUEUE).partition("/")
        if name == _OVERVIEW:
            found.append(_Wanted(name))
        elif name.startswith(_QUEUE) and slash and queue and "/" not in queue:
            vhost, queue = (unquote(part, errors="surrogateescape") for part in (vhost, queue))
            found.append(_Wanted(name, vhost, queue))
        else:
            raise HttpError(
                400, "bad_field", f"of: {name[:100]!r} is neither overview nor queue:V/Q, percent-encoded"
            )
    return found


def _each_s(text: str) -> float:
    least, most = _EACH_MS
    if not (text.isascii() and text.isdigit() and len(text) < 6 and least <= int(text) <= most):
        raise HttpError(400, "bad_field", f"each_ms: a number from {least} to {most}")
    return int(text) / 1000
