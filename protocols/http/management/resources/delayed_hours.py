"""GET /api/delayed-hours: how many delayed messages are due in each hour, of all virtual hosts.

    {"hours": [{"at": MS, "messages": N}, ...], "more": false}

They are counted by their entries in the indexes; no message is read. A request counts `COUNTED` at most:
`more` says that there are later ones. It is for who sees all virtual hosts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from penstock.log_core.delayed.listing import BEFORE_ALL, Counted, count_waiting
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response

if TYPE_CHECKING:
    from penstock.log_core.delayed._delays import Key

__all__ = ["COUNTED", "add"]

COUNTED: Final = 5_000_000
_AT_ONCE: Final = 65_536
"""Entries of one read, of 32 bytes."""
_HOUR_MS: Final = 3_600_000


def add(api: Management) -> None:
    """Serve this path."""

    async def hours(request: Request) -> Response:
        api.require(request, "monitoring")
        counts, more = await _count(api)
        if request.others is not None:
            for part in await request.others.ask(["hours"] * request.others.count):
                counts.update({one["at"]: one["messages"] for one in part["hours"]})
                more = more or part["more"]
        return json_response(
            {"hours": [{"at": at, "messages": n} for at, n in sorted(counts.items())], "more": more}
        )

    api.app.routes.add("GET", "/api/delayed-hours", api.answers.shared(hours))


async def _count(api: Management) -> tuple[Counter[int], bool]:
    """The counts of this worker, and whether there are more."""
    counts: Counter[int] = Counter()
    behind: Key | None = BEFORE_ALL
    for _ in range(COUNTED // _AT_ONCE):
        if behind is None:
            break
        found = await _next(api, behind)
        counts.update(found.counts)
        behind = found.next
    return counts, behind is not None


async def _next(api: Management, behind: Key) -> Counted:
    done: asyncio.Future[Counted | None] = asyncio.get_running_loop().create_future()

    def told(found: Counted | None) -> None:
        if not done.done():
            done.set_result(found)

    count_waiting(api.broker.log, behind, _AT_ONCE, _HOUR_MS, told)
    api.broker.tick.schedule()  # messages scheduled last have to be written first
    found = await done
    if found is None:
        raise HttpError(503, "unavailable", "the log could not be read; see its lines")
    return found
