"""One list of rows that several workers have, each some of them.

Every worker sorts its own, and worker 0 puts the sorted lists together; it never has all rows:

- a page: it asks each for the keys of the rows that may come before the end of the page, and so learns which
  of its rows each has on the page: they are neighbours in that worker's list. These it asks for.
- the whole list: each streams its rows, a line each, and worker 0 passes on the next one of all.

    penstock-part   answer
    keys N          {"total", "filtered", "keys": of the first N rows}
    rows A B        [row A, ... row B - 1], counted in that worker's list
    all             NDJSON: [key, row]

A list that changes between the two questions of a page may show a row twice, or not: as a list does that
changes between two pages.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from itertools import islice, repeat
from typing import Any, Final, Generic, Protocol, TypeVar

import orjson

from penstock.protocols.http.server.messages import HttpError, Others, Request, Response, dumps, json_response

__all__ = ["AT_ONCE", "Item", "Joined", "Ordered", "Source", "each_made", "joined", "part_of"]

Item = dict[str, Any]
Key = tuple[Any, ...]
Shape = Callable[[list[Item]], list[Item]]
Row = TypeVar("Row")

AT_ONCE: Final = 200
"""Rows that are sent at once; longer lists are streamed."""
_MADE_AT_ONCE: Final = 10
"""Rows made before the loop does something else: some 100 µs each."""


class Source(Protocol):
    """A list, of which a page is asked for."""

    total: int
    """Rows before they were filtered."""

    def __len__(self) -> int: ...

    async def made(self, start: int, stop: int) -> list[Item]:
        """The rows [start, stop) as JSON."""


class Ordered(Generic[Row]):
    """The rows of this worker, filtered and sorted."""

    def __init__(
        self,
        total: int,
        rows: Sequence[Row],
        make: Callable[[Row], Item],
        key: Callable[[Row], Key],
        reverse: bool,
    ) -> None:
        """`rows` are sorted by `key`, the largest first when `reverse`."""
        self.total = total
        self.reverse: Final = reverse
        self._rows = rows
        self._make = make
        self._key = key

    def __len__(self) -> int:
        return len(self._rows)

    async def made(self, start: int, stop: int) -> list[Item]:
        return [item async for item in each_made(self._rows[start:stop], self._make)]

    def keys(self, count: int) -> Iterator[Key]:
        """Of the first `count` rows."""
        return map(self._key, self._rows[:count])

    async def keyed(self) -> AsyncGenerator[tuple[Key, Item], None]:
        """All, one by one."""
        for at, row in enumerate(self._rows):
            if at % _MADE_AT_ONCE == 0:
                await asyncio.sleep(0)
            yield self._key(row), self._make(row)


async def each_made(rows: Sequence[Row], make: Callable[[Row], Item]) -> AsyncGenerator[Item, None]:
    """The rows as JSON; the loop does something else in between."""
    for at, row in enumerate(rows):
        if at % _MADE_AT_ONCE == 0:
            await asyncio.sleep(0)
        yield make(row)


# The answer of a worker


async def part_of(request: Request, ordered: Ordered[Any]) -> Response:
    """The lines that worker 0 asked for."""
    match request.part.split():
        case ["keys", count]:
            keys = list(ordered.keys(int(count)))
            return json_response({"total": ordered.total, "filtered": len(ordered), "keys": keys})
        case ["rows", start, stop]:
            return json_response(await ordered.made(int(start), int(stop)))
        case ["all"]:
            return Response(content_type="application/x-ndjson", stream=_lines(ordered))
    raise HttpError(400, "bad_request", f"there is no part '{request.part}' of a list")


async def _lines(ordered: Ordered[Any]) -> AsyncGenerator[bytes, None]:
    lines: list[bytes] = []
    async with aclosing(ordered.keyed()) as rows:
        async for row in rows:
            lines.append(dumps(row) + b"\n")
            if len(lines) == AT_ONCE:
                yield b"".join(lines)
                lines.clear()
    yield b"".join(lines)


# Joining by worker 0


class Joined:
    """The rows of all workers around one page. Made by `of`."""

    def __init__(self, others: Others, own: Ordered[Any], said: Sequence[dict[str, Any]], stop: int) -> None:
        self.total = own.total + sum(one["total"] for one in said)
        self._others = others
        self._own = own
        self._filtered: int = len(own) + sum(one["filtered"] for one in said)
        lists = [own.keys(stop), *(map(tuple, one["keys"]) for one in said)]
        # Each row as the number of its worker, 0 for this one, in the order of the whole.
        self._order = list(islice(_merged(lists, reverse=own.reverse), stop))

    @classmethod
    async def of(cls, others: Others, own: Ordered[Any], page: tuple[int, int]) -> Joined:
        """Ask the others for what comes before the end of a page, by its number and size."""
        stop = page[0] * page[1]
        return cls(others, own, await others.ask([f"keys {stop}"] * others.count), stop)

    def __len__(self) -> int:
        return self._filtered

    async def made(self, start: int, stop: int) -> list[Item]:
        before, page = Counter(self._order[:start]), Counter(self._order[start:stop])
        slices = [(before[who], before[who] + page[who]) for who in range(self._others.count + 1)]
        words = [f"rows {first} {last}" if last > first else "" for first, last in slices[1:]]
        said = await self._others.ask(words)
        rows = [iter(await self._own.made(*slices[0])), *(iter(one or ()) for one in said)]
        found = (next(rows[who], None) for who in self._order[start:stop])
        return [item for item in found if item is not None]  # None: it is gone meanwhile


async def joined(others: Others, own: Ordered[Any], shape: Shape) -> Response:
    """All rows of all workers. Raises HttpError 503: one of them does not answer."""
    streams = await others.streams("all")
    return Response(stream=_streamed([own.keyed(), *map(_rows, streams)], own.reverse, shape))


async def _streamed(
    lists: Sequence[AsyncGenerator[tuple[Key, Item], None]], reverse: bool, shape: Shape
) -> AsyncGenerator[bytes, None]:
    separator = b"["
    items: list[Item] = []

    def encoded() -> bytes:
        return separator + b",".join(map(dumps, shape(items)))

    async with AsyncExitStack() as stack:
        for one in lists:
            stack.push_async_callback(one.aclose)
        heads = [head for one in lists if (head := await _head(one)) is not None]
        while heads:
            at = (max if reverse else min)(range(len(heads)), key=lambda at: heads[at][0])
            _, item, rest = heads[at]
            items.append(item)
            if len(items) == AT_ONCE:
                yield encoded()
                separator = b","
                items.clear()
            head = await _head(rest)
            if head is not None:
                heads[at] = head
            else:
                del heads[at]
    yield (encoded() if items or separator == b"[" else b"") + b"]"


_Head = tuple[Key, Item, AsyncGenerator[tuple[Key, Item], None]]


async def _head(rows: AsyncGenerator[tuple[Key, Item], None]) -> _Head | None:
    async for key, item in rows:
        return key, item, rows
    return None


async def _rows(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[tuple[Key, Item], None]:
    """The answer of `_lines` of another worker."""
    rest = b""
    async with aclosing(stream):
        async for piece in stream:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                key, item = orjson.loads(line)
                yield tuple(key), item


def _merged(lists: Sequence[Iterable[Key]], *, reverse: bool) -> Iterator[int]:
    """Whose the rows are, in the order of the whole: the numbers of sorted lists."""
    numbered = [zip(keys, repeat(who)) for who, keys in enumerate(lists)]
    return (who for _, who in heapq.merge(*numbered, key=lambda one: one[0], reverse=reverse))
