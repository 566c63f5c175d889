"""/api/audit: the audit trail (`router.audit`), for the tags auditor and administrator.

GET /api/audit            all entries, the oldest first; as all lists of the API: pages, columns, sorting
    ?from=-1h | TIME      ?user=NAME   ?result=done | refused | ...
    ?action=user          "user", "user.put", ... : it, and what is below it
GET /api/audit/verify     whether the chain of hashes is whole, one verdict for each worker

Entries of several workers are in the order of their times; each worker has a chain of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.server.messages import HttpError, Request, Response
from penstock.protocols.http.shared.lists import reply_list
from penstock.router.queues.start_position import parse_since

if TYPE_CHECKING:
    from penstock.protocols.http.management.context import Management
    from penstock.router.audit import Audit, Verdict

__all__ = ["TAGS", "add"]

TAGS: Final = frozenset({"administrator", "auditor"})
"""The users who may read it."""
_SLICE: Final = 200

Item = dict[str, Any]


def add(api: Management) -> None:
    """Serve these paths."""
    handlers = _Handlers(api.broker.audit, api.broker.options.worker, api.broker.log.wall_ms)
    api.app.routes.add("GET", "/api/audit", handlers.index)
    api.app.routes.add("GET", "/api/audit/verify", handlers.verify)


class _Handlers:
    def __init__(self, audit: Audit, worker: int, wall_ms: Callable[[], int]) -> None:
        self._audit = audit
        self._worker = worker
        self._wall_ms = wall_ms

    async def index(self, request: Request) -> Response:
        _check(request)
        keys = await self._wanted(request)
        audit, worker = self._audit, self._worker

        def made(key: bytes) -> Item:
            # Retention may have taken it since it was looked for.
            return audit.entry(key) or {"seq": int.from_bytes(key[:8], "big"), "worker": worker, "at": 0}

        def name(key: bytes) -> tuple[str, ...]:
            return f"{audit.at_of(key):015d}", str(worker), key.hex()

        return await reply_list(request, keys, made, name)

    async def _wanted(self, request: Request) -> list[bytes]:
        audit, keys = self._audit, self._audit.keys()
        if since := request.parameter("from"):
            found = parse_since(since, self._wall_ms())
            if found is None or found.position:
                raise HttpError(400, "bad_request", 'from is a time with its zone, or an interval ("-1h")')
            keys = [key for key in keys if audit.at_of(key) >= found.time_ms]
        wanted = {name: request.parameter(name) for name in ("user", "result") if request.parameter(name)}
        action = request.parameter("action")
        if not wanted and not action:
            return keys
        chosen = []
        for count, key in enumerate(keys):
            if count and count % _SLICE == 0:
                await asyncio.sleep(0)
            entry = audit.entry(key)
            if entry is None or any(entry[name] != value for name, value in wanted.items()):
                continue
            if not action or f"{entry['action']}.".startswith(f"{action}."):
                chosen.append(key)
        return chosen

    async def verify(self, request: Request) -> Response:
        _check(request)
        verdict: Verdict | None = None
        for said in self._audit.verify():
            verdict = said
            await asyncio.sleep(0)
        assert verdict is not None  # the last one is
        shown = {"worker": self._worker, "whole": not verdict.broken, **asdict(verdict)}
        return await reply_list(request, [shown], lambda item: item, lambda item: (str(item["worker"]),))


def _check(request: Request) -> None:
    if request.identity is None or not request.identity.tags & TAGS:
        raise HttpError(403, "not_authorised", "Not auditor user")
