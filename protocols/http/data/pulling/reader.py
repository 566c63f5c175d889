"""GET .../streams/S/messages: read a stream from an offset or a time; nothing is kept here between requests.

    ?from=first | next | OFFSET | TIME     a time in RFC 3339 with its zone, or -1h for an hour ago
    ?max=   messages, [1, 1000], 100 unless said otherwise      ?wait_ms=   for the first one, [0, 60000], 0
    ?max_bytes=   of bodies, [1, 16 MiB], 1 MiB; one message comes whatever its size

    {"messages": [{"offset": 17, ...}, ...], "next": 18, "first_offset": 0, "next_offset": 40}

Go on with `from=<next>`. An offset that retention has dropped is 410 `position_deleted`: who goes on there
has missed something and is told where the stream begins (`earliest`). Only what is synced is shown, so that
an offset never comes back with another message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.pulling.polls import BYTES_MAX, Polls
from penstock.protocols.http.data.pulling.pull import shown
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.fields import Whole, number_in
from penstock.protocols.http.shared.positions import offset_of_time
from penstock.router.queues.start_position import parse_since

if TYPE_CHECKING:
    from penstock.router.queues.start_position import StartPosition
    from penstock.subscriptions.streams.stream import Stream

__all__ = ["StreamReader"]

MAX: Final = Whole(100, 1, 1000)
"""Default, least, most."""
WAIT_MS: Final = Whole(0, 0, 60_000)
BYTES: Final = Whole(BYTES_MAX, 1, 16 << 20)


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
        wanted = number_in(request, "max", MAX)
        wait_ms = number_in(request, "wait_ms", WAIT_MS)
        bytes_max = number_in(request, "max_bytes", BYTES)
        offset = await self.offset(stream, request.parameter("from", "first"))
        if offset < stream.first_offset:
            raise HttpError(
                410,
                "position_deleted",
                f"stream '{stream.name}' begins with offset {stream.first_offset}: retention has dropped "
                f"{offset}; go on with from=first, and count what is between as lost",
                more={"earliest": stream.first_offset},
            )
        reader = stream.reader(offset)
        deliveries = await self._polls.take(request, reader, wanted, wait_ms / 1000, bytes_max=bytes_max)
        self._access.messages.delivered += len(deliveries)
        messages = []
        following = max(offset, stream.first_offset)
        for one in deliveries:
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
        since: StartPosition | None = parse_since(text, now_ms)
        if since is None or since.position:
            raise HttpError(
                400,
                "bad_field",
                "from is first, next, an offset, a time with its zone (RFC 3339), or -1h",
            )
        return await offset_of_time(stream, since.time_ms)
