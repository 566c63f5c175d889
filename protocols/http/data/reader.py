"""GET .../streams/S/messages: read a stream from an offset or a time; nothing is kept here between requests.

    ?from=first | next | OFFSET | TIME     a time in RFC 3339 with its zone, or -1h for an hour ago
    ?max=   messages, [1, 1000], 100 unless said otherwise      ?wait_ms=   for the first one, [0, 60000], 0

    {"messages": [{"offset": 17, ...}, ...], "next": 18, "first_offset": 0, "next_offset": 40}

Go on with `from=<next>`. What retention has dropped is left out: the first offset given may be higher than
the one asked for. Only what is synced is shown, so that an offset never comes back with another message.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.polls import Polls
from penstock.protocols.http.data.pull import shown
from penstock.protocols.http.messages import HttpError, Request, Response, json_response
from penstock.router.since import parse_since

if TYPE_CHECKING:
    from penstock.router.since import Since
    from penstock.subscriptions.stream import Stream

__all__ = ["StreamReader"]

_MAX: Final = 1000
_WAIT_MAX_MS: Final = 60_000


class StreamReader:
    """The handler."""

    def __init__(self, access: Access, polls: Polls) -> None:
        self._access = access
        self._polls = polls

    async def read(self, request: Request) -> Response:
        """Messages from an offset on."""
        with self._access.watched(request, self._access.stream):
            return await self.read_stream(request, self._access.stream(request))

    async def read_stream(self, request: Request, stream: Stream) -> Response:
        """The same, of a stream that the user may read."""
        wanted = _number(request, "max", 100, 1, _MAX)
        wait_ms = _number(request, "wait_ms", 0, 0, _WAIT_MAX_MS)
        offset = await self.offset(stream, request.parameter("from", "first"))
        reader = stream.reader(offset)
        taken = await self._polls.take(request, reader, wanted, wait_ms / 1000)
        self._access.messages.delivered += len(taken)
        messages = []
        following = max(offset, stream.first_offset)
        for one in taken:
            at = stream.base + stream.feed.index_of(one.record.lsn)
            following = at + 1
            messages.append({"offset": at, **shown(self._access, one)})
        body = {
            "messages": messages,
            "next": following,
            "first_offset": stream.first_offset,
            "next_offset": stream.next_offset,
        }
        return json_response(body, headers=(("etag", f'"{following}"'),))

    async def offset(self, stream: Stream, text: str) -> int:
        """The offset that `text` stands for. Raises HttpError 400."""
        if text == "first":
            return stream.first_offset
        if text == "next":
            return stream.next_offset
        if text.isascii() and text.isdigit() and len(text) < 20:
            return int(text)
        now_ms = stream.log.now_ms()
        since: Since | None = parse_since(text, now_ms)
        if since is None or since.position:
            raise HttpError(
                400,
                "bad_field",
                "from is first, next, an offset, a time with its zone (RFC 3339), or -1h",
            )
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def told(offset: int) -> None:
            if not found.done():
                found.set_result(offset)

        stream.offset_of_time(since.time_ms, told)
        return await found


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    text = request.parameter(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise HttpError(400, "bad_field", f"{name} is a whole number from {least} to {most}")
    return int(text)
