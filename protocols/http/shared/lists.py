"""Lists as RabbitMQ answers them: filtered by name, sorted, cut into pages, reduced to columns.

    ?name=&use_regex=   ?sort=&sort_reverse=   ?page=&page_size=   ?columns=a,b.c

Rows are turned into JSON as late as possible: a page of a hundred thousand queues costs one page, also in the
order of a counter for which the list has a key, and less if the key says which rows differ
(`sparse_order`). Long lists without pages are streamed; others travel compressed, and not at all if the
client has them (`compact`). With several workers each has some of the rows: see `joined`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

from penstock.protocols.http.server.messages import HttpError, Request, Response, dumps
from penstock.protocols.http.shared.compact import compact_json
from penstock.protocols.http.shared.joined_lists import (
    AT_ONCE,
    Item,
    Joined,
    Ordered,
    Source,
    each_made,
    joined,
    part_of,
)
from penstock.protocols.http.shared.sparse_order import Sparse, sparse_order
from penstock.router.authorization.patterns import compile_pattern
from penstock.router.errors import RoutingError

__all__ = ["chosen_in_parts", "gathered", "one_of", "reply_list", "sorted_in_parts"]

Row = TypeVar("Row")

_PAGE_SIZE: Final = 100
_PAGE_MAX: Final = 500
Keys = Mapping[str, "Callable[[Row], Any] | Sparse[Row]"]
_GATHERED_AT_ONCE: Final = 200
"""Rows of a generator before the loop does something else."""
_KEYS_AT_ONCE: Final = 500
"""Counters read before the loop does something else."""
_SORTED_AT_ONCE: Final = 4000
"""Values sorted before the loop does something else."""
_SPLITTERS_EACH: Final = 2000
"""Of so many values of a sorted part one tells where the whole is cut to be put together."""
_LOOKED_AT_ONCE: Final = 2000
"""Rows that are chosen from before the loop does something else."""


async def reply_list(
    request: Request,
    rows: Sequence[Row],
    make: Callable[[Row], Item],
    name_of: Callable[[Row], tuple[str, ...]],
    *,
    is_sorted: bool = False,
    in_common: bool = False,
    keys: Keys[Row] | None = None,
) -> Response:
    """The answer to a request for a list.

    Args:
        request: Its query says how.
        rows: Everything the user may see.
        make: A row as JSON.
        name_of: The default sort key of a row; its last part is the name, filtered by.
        is_sorted: The rows are in that order already.
        in_common: Every worker has the same rows; otherwise each has some.
        keys: By the name of a column, how to read it from a row that is not JSON yet.

    Raises:
        HttpError: 400, the query makes no sense.

    """
    ordered = await _ordered(request, rows, make, name_of, keys or {}, is_sorted=is_sorted)
    if request.part:
        return await part_of(request, ordered)
    shape = partial(_columns, request)
    page = _page(request)
    if request.others is not None and not in_common:
        if page is None:
            return await joined(request.others, ordered, shape)
        whole: Source = await Joined.of(request.others, ordered, page)
    else:
        if page is None:
            if len(ordered) > AT_ONCE:
                return Response(stream=_streamed(ordered, shape))
            return compact_json(request, shape(await ordered.made(0, len(ordered))))
        whole = ordered
    number, size = page
    filtered = len(whole)
    pages = max(-(-filtered // size), 1)
    if number > pages:
        raise HttpError(
            400,
            "page_out_of_range",
            f"Page out of range, page: {number} page size: {size}, len: {filtered}",
        )
    start = (number - 1) * size
    shown = shape(await whole.made(start, min(start + size, filtered)))
    return compact_json(
        request,
        {
            "filtered_count": filtered,
            "item_count": len(shown),
            "items": shown,
            "page": number,
            "page_count": pages,
            "page_size": size,
            "total_count": whole.total,
        },
    )


def one_of(request: Request, item: Item) -> Response:
    """The answer to a request for one thing."""
    return compact_json(request, _columns(request, [item])[0])


async def _ordered(
    request: Request,
    rows: Sequence[Row],
    make: Callable[[Row], Item],
    name_of: Callable[[Row], tuple[str, ...]],
    keys: Keys[Row],
    *,
    is_sorted: bool,
) -> Ordered[Any]:
    """The rows that are asked for, in the order that is asked for."""
    total = len(rows)
    wanted = await _filtered(request, rows, name_of)
    sort = request.parameter("sort")
    reverse = request.flag("sort_reverse")
    if sort in ("", "vhost"):
        if not is_sorted:
            wanted = await sorted_in_parts(wanted, name_of, reverse=reverse)
        elif reverse:
            wanted.reverse()
        return Ordered(total, wanted, make, name_of, reverse)

    def by_name(row: Row) -> tuple[str, ...]:
        name = name_of(row)
        return (name[-1], *name)

    if sort == "name":
        if not (is_sorted and _of_one_place(wanted, name_of)):
            wanted = await sorted_in_parts(wanted, by_name, reverse=reverse)
        elif reverse:
            wanted.reverse()
        return Ordered(total, wanted, make, by_name, reverse)
    read = keys.get(sort)
    if isinstance(read, Sparse):
        order = sparse_order(wanted, read, name_of, reverse=reverse) if is_sorted else None
        if order is not None:
            of = read.read
            return Ordered(
                total, order, lambda at: make(wanted[at]), lambda at: _sort_key(of(wanted[at])), reverse
            )
        read = read.read
    if read is not None:
        return await _by_key(wanted, make, read, total, reverse=reverse)
    path = sort.split(".")

    def by_value(item: Item) -> tuple[int, Any]:
        return _sort_key(_at(item, path))

    items = await sorted_in_parts([item async for item in each_made(wanted, make)], by_value, reverse=reverse)
    return Ordered(total, items, lambda item: item, by_value, reverse)


def _of_one_place(rows: list[Row], name_of: Callable[[Row], tuple[str, ...]]) -> bool:
    """Whether sorted rows differ in their names only: they are in the order of these, then."""
    return not rows or name_of(rows[0])[:-1] == name_of(rows[-1])[:-1]


async def gathered(rows: Iterable[Row]) -> list[Row]:
    """All of them; the loop does something else in between."""
    found: list[Row] = []
    for row in rows:
        found.append(row)
        if len(found) % _GATHERED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


async def sorted_in_parts(
    rows: Sequence[Row], key: Callable[[Row], Any], *, reverse: bool = False
) -> list[Row]:
    """The rows in the order of their keys; the loop does something else in between."""
    order = await _order_of(await _read_in_parts(rows, key), reverse=reverse)
    return [rows[at] for at in order]


async def chosen_in_parts(rows: Sequence[Row], matches: Callable[[Row], bool]) -> list[Row]:
    """The rows that match; the loop does something else in between."""
    found: list[Row] = []
    for at in range(0, len(rows), _LOOKED_AT_ONCE):
        if at:
            await asyncio.sleep(0)
        found += filter(matches, rows[at : at + _LOOKED_AT_ONCE])
    return found


async def _by_key(
    rows: list[Row], make: Callable[[Row], Item], read: Callable[[Row], Any], total: int, *, reverse: bool
) -> Ordered[Any]:
    """The rows in the order of what `read` finds in each, as it is at this moment."""
    values = await _read_in_parts(rows, read)
    kinds = set(await _read_in_parts(values, type))
    # Values of one kind are sorted as they are, which costs a fifth.
    compared = values if len(kinds) == 1 else await _read_in_parts(values, _sort_key)
    order: Sequence[int] = range(len(rows))
    if kinds != {type(None)}:
        order = await _order_of(compared, reverse=reverse)
    return Ordered(total, order, lambda at: make(rows[at]), lambda at: _sort_key(values[at]), reverse)


async def _read_in_parts(rows: Sequence[Row], read: Callable[[Row], Any]) -> list[Any]:
    """The values that `read` finds, one of each row."""
    values: list[Any] = []
    for at in range(0, len(rows), _KEYS_AT_ONCE):
        if at:
            await asyncio.sleep(0)
        values += map(read, rows[at : at + _KEYS_AT_ONCE])
    return values


async def _order_of(values: Sequence[Any], *, reverse: bool) -> list[int]:
    """The places of the values in their order, equal ones in the order they have.

    Parts are sorted one by one. Then the whole is cut at some of the values: what all parts have between two
    of them is put together at once. Places that equal one of them are in order as they are.
    """
    read = values.__getitem__
    places = range(len(values))[:: -1 if reverse else 1]
    parts: list[list[int]] = []
    for at in range(0, len(places), _SORTED_AT_ONCE):
        if at:
            await asyncio.sleep(0)
        parts.append(sorted(places[at : at + _SORTED_AT_ONCE], key=read))
    order = parts[0] if len(parts) == 1 else []
    if len(parts) > 1:
        splitters: set[Any] = set()
        for number, part in enumerate(parts):
            first = number * _SPLITTERS_EACH // len(parts)  # so that all of the order is cut
            splitters.update(map(read, part[first::_SPLITTERS_EACH]))
        begins = [0] * len(parts)
        for splitter in sorted(splitters):
            await asyncio.sleep(0)
            ends = [bisect_left(part, splitter, key=read) for part in parts]
            order += sorted(_between(parts, begins, ends), key=read)
            begins = [bisect_right(part, splitter, key=read) for part in parts]
            order += _between(parts, ends, begins)
        order += sorted(_between(parts, begins, map(len, parts)), key=read)
    if reverse:
        order.reverse()
    return order


def _between(parts: list[list[int]], begins: list[int], ends: Iterable[int]) -> Iterator[int]:
    """The items between two places of each part."""
    return chain.from_iterable(part[begin:end] for part, begin, end in zip(parts, begins, ends, strict=True))


async def _streamed(
    ordered: Ordered[Any], shape: Callable[[list[Item]], list[Item]]
) -> AsyncGenerator[bytes, None]:
    """A long list, some at a time: neither the loop nor the memory holds all of it."""
    separator = b"["
    for at in range(0, len(ordered), AT_ONCE):
        items = shape(await ordered.made(at, min(at + AT_ONCE, len(ordered))))
        yield separator + b",".join(dumps(item) for item in items)
        separator = b","
        await asyncio.sleep(0)
    yield b"]"


async def _filtered(
    request: Request, rows: Sequence[Row], name_of: Callable[[Row], tuple[str, ...]]
) -> list[Row]:
    name = request.parameter("name")
    if not name:
        return list(rows)
    if request.flag("use_regex"):
        try:
            pattern = compile_pattern(f"(?i){name}")
        except RoutingError as error:
            raise HttpError(400, "bad_request", str(error)) from error

        def matches(row: Row) -> bool:
            return pattern.search(name_of(row)[-1].encode("utf-8", "surrogateescape")) is not None
    else:
        folded = name.casefold()

        def matches(row: Row) -> bool:
            return folded in name_of(row)[-1].casefold()

    return await chosen_in_parts(rows, matches)


def _page(request: Request) -> tuple[int, int] | None:
    number, size = request.parameter("page"), request.parameter("page_size")
    if not number:
        return None
    told = f"Invalid pagination parameters: page number {number}, page size {size or 'undefined'}"
    if not _is_number(number) or (size and not _is_number(size)):
        raise HttpError(400, "invalid_pagination_parameters", told)
    page, each = int(number), int(size) if size else _PAGE_SIZE
    if page < 1 or not 1 <= each <= _PAGE_MAX:
        raise HttpError(400, "invalid_pagination_parameters", told)
    return page, each


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _at(item: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(item, dict):
            return None
        item = item.get(name)
    return item


def _sort_key(value: Any) -> tuple[int, Any]:
    match value:
        case bool():
            return 1, int(value)
        case int() | float():
            return 2, value
        case str():
            return 3, value
        case None:
            return 0, 0
    return 4, str(value)


def _columns(request: Request, items: list[Item]) -> list[Item]:
    columns = request.parameter("columns")
    if not columns:
        return items
    paths = [path.split(".") for path in columns.split(",")[:100]]
    return [_reduced(item, paths) for item in items]


def _reduced(item: Item, paths: list[list[str]]) -> Item:
    reduced: Item = {}
    for path in paths:
        source: Any = item
        target = reduced
        for depth, name in enumerate(path):
            if not isinstance(source, dict) or name not in source:
                break
            source = source[name]
            if depth == len(path) - 1:
                target[name] = source
            else:
                inner = target.setdefault(name, {})
                if not isinstance(inner, dict) or inner is source:
                    break
                target = inner
    return reduced
