"""When the heads of queues were published: by what is in memory, or after a read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.log_core.batch._batch import LOST
from penstock.subscriptions.queue.head import Head, head_of
from penstock.subscriptions.streams.lag import age_ms, when_known
from penstock.subscriptions.streams.subscription import Subscription

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["HeadTimes", "heads_known"]

_READING_MAX: Final = 500
"""Queues whose heads are read at once, and those that one request asks for: the rows of a page."""
_KNOWN_MAX: Final = 20_000
"""Heads whose times are remembered, at some 150 bytes each."""
_READS_MAX: Final = 10
"""Reads for one queue: entries of its feeds, then its head, which may be another one by then."""


async def heads_known(log: Log, queues: Iterable[Queue]) -> None:
    """Return when `heads.age_ms` can tell of each subscription to a stream among `queues`; a head that is not
    in memory is read first."""
    known: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def told() -> None:
        if not known.done():
            known.set_result(None)

    when_known(log, [one for one in queues if isinstance(one, Subscription)], told)
    await known


class HeadTimes:
    """Of the queues of a gateway, for lists: they never wait for the disk.

    When a head was published is remembered by its position, so that one that waits for long is read once.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._published: dict[int, int] = {}
        """When heads were published, ms since the epoch, by their positions; 0: the record is lost."""
        self._reading: set[Queue] = set()

    def of_request(self) -> Callable[[Queue], int | None]:
        """Tells when a queue's head was published, ms since the epoch. None: it has none, or it is not known.

        A time, not an age: the answer stays the same while nothing moves. A head that is not in memory is
        asked for, for so many queues as a page has rows: a later request has its time.
        """
        left = _READING_MAX

        def published(queue: Queue) -> int | None:
            nonlocal left
            if isinstance(queue, Subscription):  # see `heads_known`
                return None if age_ms(self._log, queue) is None else queue.head_time[1]
            head = head_of(queue.cursor)
            published_ms = self._published_ms(head)
            if published_ms is None and left:
                left -= 1
                self._ask(queue)
            return published_ms or None

        return published

    def _published_ms(self, head: Head) -> int | None:
        """When the head was published; 0: there is none, or nobody can tell; None: memory does not tell."""
        position = head.position
        if not position:
            return 0 if head.unread is None else None
        published_ms = self._published.get(position)
        if published_ms is None:
            batch = self._log.cache.get(position)
            if batch is None:
                return None
            published_ms = 0 if batch.kind == LOST else batch.record(position - batch.base_lsn).ts
            if len(self._published) >= _KNOWN_MAX:
                del self._published[next(iter(self._published))]
            self._published[position] = published_ms
        return published_ms

    def _ask(self, queue: Queue) -> None:
        if queue not in self._reading and len(self._reading) < _READING_MAX:
            self._reading.add(queue)
            self._read(queue, _READS_MAX)

    def _read(self, queue: Queue, left: int) -> None:
        """Have the head in memory; `left`: reads that may be needed yet."""
        head = Head() if queue.deleted else head_of(queue.cursor)
        again = partial(self._read, queue, left - 1)
        if left == 0 or self._published_ms(head) is not None:
            self._reading.discard(queue)
        elif head.unread is not None:
            self._log.load_feed(*head.unread, again)
        else:
            self._log.load(head.position, again)
