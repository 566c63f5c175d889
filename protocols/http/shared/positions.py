"""Answers of the log that may need the disk, awaited: mostly places in the log and in streams.

The client may have gone when the answer comes: then it is for nobody. All raise HttpError 503 where the
disk could not be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from penstock.protocols.http.server.messages import HttpError
from penstock.router.queues.backfill import find_position
from penstock.router.queues.replays import find_replay

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.log_core.log import Log
    from penstock.router.broker import Broker
    from penstock.router.queues.start_position import StartPosition
    from penstock.subscriptions.queue.queue import Queue
    from penstock.subscriptions.streams.stream import Stream
    from penstock.subscriptions.tick.tick import Tick

__all__ = [
    "answer_of",
    "begin_of_replay",
    "indexed",
    "offset_at",
    "offset_of_time",
    "position_of",
    "position_of_time",
]

T = TypeVar("T")


async def position_of(log: Log, lp: int, since: StartPosition) -> int:
    """The position of the first record kept of the partition `lp` that is not older; see `find_position`."""
    return await answer_of(lambda tell: find_position(log, lp, since, tell))


async def begin_of_replay(broker: Broker, queue: Queue, since: StartPosition) -> int:
    """Where a replay of a queue begins, which may be made then; see `find_replay`."""
    return await answer_of(lambda tell: find_replay(broker, queue, since, tell))


async def position_of_time(log: Log, time_ms: int) -> int:
    """The position of the first record in the log that is not older, whoever keeps it; or the next one."""
    return await answer_of(lambda tell: log.seek_time(time_ms, tell))


async def offset_of_time(stream: Stream, time_ms: int) -> int:
    """The offset of the first message that is not older, or the next one."""
    return await answer_of(lambda tell: stream.offset_of_time(time_ms, tell))


async def offset_at(stream: Stream, position: int) -> int:
    """The offset of the first message from a position of the log on."""
    return await answer_of(lambda tell: stream.offset_at(position, tell))


async def indexed(log: Log, wanted: Sequence[tuple[Feed, int]]) -> None:
    """Have in memory what cursors need that begin there; see `Log.when_indexed`."""

    def ask(tell: Callable[[int | None], None]) -> None:
        log.when_indexed(wanted, lambda: tell(0))

    await answer_of(ask)


async def answer_of(ask: Callable[[Callable[[T | None], None]], object], tick: Tick | None = None) -> T:
    """The answer to `ask`, now or when the disk was read; the disk does not answer with None.

    `tick`: what was appended last has to be written before that.
    """
    found: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def tell(answer: T | None) -> None:
        if found.done():
            return
        if answer is None:
            found.set_exception(HttpError(503, "unavailable", "the disk could not be read; see the log"))
        else:
            found.set_result(answer)

    ask(tell)
    if tick is not None:
        tick.schedule()
    return await found
