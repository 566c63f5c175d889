"""POST log/search: messages of a vhost by time, place, header, id or body, in what the log still holds.

    {"from": "-1h", "to": TIME, "exchange": X, "routing_key": PATTERN | "topic": FILTER,
     "queue": Q | "stream": S, "headers": {NAME: VALUE | null}, "message_id": ID, "correlation_id": ID,
     "body": {"contains": TEXT}, "max": 100, "max_scan_bytes": 268435456, "wait_ms": 1000, "cursor": C}

    {"messages": [...], "progress": 0.25, "scanned_bytes": N, "reached": TIME, "damaged": 0, "cursor": C}

Oldest first. All that is asked for must hold. A request ends after `max` messages, `max_scan_bytes` or
`wait_ms`, whichever is first. `cursor` goes on from there with the same fields, and is missing at the end.
So a search is stopped by not going on, and nothing is kept for it. Messages published after its first
request are not in it. With `"count": true` the answer has a `count` instead of messages; headers and ids
cannot be counted.

A user finds what a tail would show: messages of exchanges that they may read, with keys that
they may read, or with `queue` those of a queue that they may read. Messages that retention has let go of
are found while they lie in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.log_core.history._content import Content
from penstock.log_core.history.content_search import SearchLimits
from penstock.protocols.http.data.log.query import IDS, Query
from penstock.protocols.http.data.log.search_scope import SCOPE_FIELDS, SearchScope
from penstock.protocols.http.data.log.searching import look
from penstock.protocols.http.data.pulling.polls import BYTES_MAX
from penstock.protocols.http.data.pulling.pull import shown_record
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.server.numbers import whole
from penstock.protocols.http.shared.fields import Whole, check_fields, number_of, optional_object
from penstock.protocols.http.shared.positions import position_of_time
from penstock.router.queues.start_position import parse_since

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record
    from penstock.protocols.http.data.access import Access

__all__ = ["SEARCH", "LogSearch"]

SEARCH: Final = {
    "max": Whole(100, 1, 1000),
    "max_scan_bytes": Whole(256 << 20, 1 << 20, 4 << 30),
    "wait_ms": Whole(1000, 10, 30_000),
}
"""Numbers of a search."""
_FIELDS: Final = (
    *("from", "to", *SCOPE_FIELDS, "headers", *IDS, "body"),
    *("count", "max", "max_scan_bytes", "wait_ms", "cursor"),
)
_DIGITS_MAX: Final = 19


class LogSearch:
    """The handler."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def search(self, request: Request) -> Response:
        """Find messages."""
        access = self._access
        vhost = access.vhost(request)
        body = await optional_object(request)
        check_fields(body, _FIELDS)
        query = Query.read(body)
        scope = SearchScope(access.broker, access.identity(request), vhost, body)
        limits = SearchLimits(
            number_of(body, "max_scan_bytes", SEARCH["max_scan_bytes"]),
            number_of(body, "wait_ms", SEARCH["wait_ms"]) / 1000,
        )
        most = number_of(body, "max", SEARCH["max"])
        begin, position, end = await self._span(body)
        content = Content(query.clauses(), query.contains, feeds=scope.feeds)
        messages: list[dict[str, Any]] = []
        size = 0

        def found(record: Record) -> bool:
            nonlocal size
            if len(messages) >= most or size >= BYTES_MAX:
                return False
            item = shown_record(access, record)
            if query.is_met(item):
                messages.append(item)
                size += len(record.body)
            return True

        counts = body.get("count", False)
        if not isinstance(counts, bool) or (counts and not query.is_exact):
            raise HttpError(400, "bad_field", "count: true or false; true without headers and ids")
        reached = await look(access, (position, end), scope, content, limits, None if counts else found)
        answer: dict[str, Any] = {
            **({"count": reached.count} if counts else {"messages": messages}),
            "progress": 1.0 if reached.lsn >= end else (reached.lsn - begin) / (end - begin),
            "scanned_bytes": reached.nbytes,
            "reached": reached.time_ms or None,
            "damaged": reached.damaged,
        }
        if reached.lsn < end:
            answer["cursor"] = f"{begin}:{reached.lsn}:{end}"
        return json_response(answer)

    async def _span(self, body: dict[str, Any]) -> tuple[int, int, int]:
        """Where the search began, goes on and ends, as LSNs. Raises HttpError 400, 503."""
        if (cursor := body.get("cursor")) is not None:
            parts = cursor.split(":") if isinstance(cursor, str) else []
            if len(parts) != 3 or not all(
                part.isascii() and part.isdigit() and len(part) <= _DIGITS_MAX for part in parts
            ):
                raise HttpError(400, "bad_field", "cursor: send it as the answer before had it")
            begin, position, end = (int(part) for part in parts)
            following = self._access.broker.log.appender.next_lsn
            return begin, max(position, 1), min(end, following)
        log = self._access.broker.log
        end = log.appender.next_lsn
        begin = 1
        if "from" in body:
            begin = await self._position(body, "from")
        if "to" in body:
            end = min(end, await self._position(body, "to"))
        return begin, begin, end

    async def _position(self, body: dict[str, Any], name: str) -> int:
        log = self._access.broker.log
        number = whole(body[name])
        since = parse_since(body[name] if number is None else number, log.now_ms())
        if since is None:
            raise HttpError(
                400,
                "bad_field",
                f'{name} is "-1h", "pos:N", or a time with its zone (RFC 3339)',
            )
        return since.position or await position_of_time(log, since.time_ms)
