"""POST queues/Q/peek: what is ready in a queue, without taking it out.

    {"max": 10}    {"messages": [{"id": ..., "value": ..., "deliveries": ...}]}

Nobody else notices: the messages keep their places and are not marked as redelivered, no counter and no
event knows of it, and consumers get them as before. They are looked at within one turn of the loop: taken,
read, and put back like those that a consumer had no room for. `deliveries` says how often a message was
handed out before. Records that have left memory are read first, by a reader thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.data.pulling.polls import BYTES_MAX
from penstock.protocols.http.data.pulling.pull import shown
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.fields import Whole, check_fields, number_of, optional_object
from penstock.protocols.http.shared.taking import each_delivery
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Access
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Peek"]

MOST: Final = Whole(10, 1, 100)
_READS_MAX: Final = 20
"""Reads for one request, each at least of a block: then it answers what it has."""


class Peek:
    """The handler."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def peek(self, request: Request) -> Response:
        """Show messages that are ready."""
        queue = self._access.queue(request)
        if isinstance(queue, Stream):
            raise HttpError(
                409, "wrong_mode", f"'{queue.name}' is a stream: read it by GET streams/NAME/messages"
            )
        body = await optional_object(request)
        check_fields(body, ("max",))
        most = number_of(body, "max", MOST)
        items = self._look(queue, most)
        for _ in range(_READS_MAX):
            if len(items) >= most or queue.deleted or not await self._read(queue):
                break
            # A read makes room for itself, perhaps in place of what an earlier look saw.
            items = max(items, self._look(queue, most), key=len)
        return json_response({"messages": items})

    def _look(self, queue: Queue, most: int) -> list[dict[str, Any]]:
        """Show the messages that are in memory; nothing is out when it returns."""
        cursor, size = queue.cursor, 0
        items: list[dict[str, Any]] = []
        if queue.deleted:
            return items
        cursor.take(most)
        try:
            for delivery in each_delivery(queue, cursor):
                if size >= BYTES_MAX:
                    break
                size += len(delivery.record.body)
                items.append({**shown(self._access, delivery), "deliveries": delivery.deliveries})
        finally:
            cursor.put_back(0)
        return items

    async def _read(self, queue: Queue) -> bool:
        """Have in memory what the last look missed; False: it missed nothing."""
        cursor, log = queue.cursor, self._access.broker.log
        done = asyncio.get_running_loop().create_future()

        def told(*_: object) -> None:
            if not done.done():
                done.set_result(None)

        if cursor.cold:
            log.load(cursor.cold, told)
        elif cursor.cold_feed is not None:
            log.load_feed(cursor.cold_feed, cursor.cold_index, told)
        else:
            return False
        await done
        return True
