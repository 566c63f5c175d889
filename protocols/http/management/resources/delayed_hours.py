"""GET /api/delayed-hours: how many delayed messages are due in each hour, of all virtual hosts.

    {"hours": [{"at": MS, "messages": N}, ...], "more": false}

They are counted by their entries in the indexes; no message is read. A request counts `COUNTED` at most:
`more` says that there are later ones. It is for who sees all virtual hosts.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.log_core.delayed.listing import BEFORE_ALL, count_waiting
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.messages import Request, Response, json_response
from penstock.protocols.http.shared.positions import answer_of

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
        found = await answer_of(
            partial(count_waiting, api.broker.log, behind, _AT_ONCE, _HOUR_MS), api.broker.tick
        )
        counts.update(found.counts)
        behind = found.next
    return counts, behind is not None
