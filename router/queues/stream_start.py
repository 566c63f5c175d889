"""Where a consumer of a stream begins: first, last, next, an offset, a time, or an interval such as "7D"."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from penstock.router.queues.start_position import StartPosition, interval_s

if TYPE_CHECKING:
    from penstock.subscriptions.streams.stream import Stream

__all__ = ["StreamStart", "find_offset", "stream_start"]

StreamStart: TypeAlias = int | Callable[[Callable[[int | None], None]], None]
"""An offset, or a call that finds it and hands it to what it is given; None: it cannot be found."""


def stream_start(stream: Stream, value: object, now_ms: int) -> StreamStart | None:
    """The start that a client names; `StartPosition` stands for a time. None: it names none."""
    match value:
        case "next":
            return stream.next_offset
        case "first":
            return stream.first_offset
        case "last":
            return stream.next_offset - 1
        case StartPosition():
            time_ms = value.time_ms
        case bool():
            return None
        case int():
            return value
        case str() if (ago_s := interval_s(value)) is not None:
            time_ms = now_ms - ago_s * 1000
        case _:
            return None
    return lambda found: stream.offset_of_time(time_ms, found)


def find_offset(start: StreamStart, found: Callable[[int | None], None]) -> None:
    """Call `found` with the offset, perhaps at once; None: it could not be looked for."""
    if callable(start):
        start(found)
    else:
        found(start)
