"""A list whose rows are spread over workers is the list that one process would show."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from penstock.protocols.http.server.messages import HttpError, Request, Response, split_target
from penstock.protocols.http.shared.lists import reply_list

Row = tuple[str, str, int | None]


def view(row: Row) -> dict[str, Any]:
    vhost, name, messages = row
    return {"vhost": vhost, "name": name, **({} if messages is None else {"totals": {"messages": messages}})}


def asked(query: dict[str, object], part: str = "") -> Request:
    _, words = split_target(f"/api/queues?{urlencode(query)}")
    return Request("GET", "/api/queues", {}, "1.1", query=words, part=part)


class Workers:
    """The other workers, who have these rows each."""

    def __init__(self, query: dict[str, object], rows: Sequence[Sequence[Row]]) -> None:
        self.count = len(rows)
        self.rows_sent = 0
        self._query = query
        self._rows = rows

    async def _answer(self, rows: Sequence[Row], word: str) -> Response:
        return await shown(asked(self._query, word), rows)

    async def ask(self, words: Sequence[str]) -> list[Any]:
        said = []
        for rows, word in zip(self._rows, words, strict=True):
            answer = orjson.loads((await self._answer(rows, word)).body) if word else None
            if word.startswith("rows"):
                self.rows_sent += len(answer)
            said.append(answer)
        return said

    async def streams(self, word: str) -> list[AsyncGenerator[bytes, None]]:
        answers = [await self._answer(rows, word) for rows in self._rows]
        return [in_pieces(answer.stream) for answer in answers if answer.stream is not None]


async def in_pieces(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """As a socket would bring it: cut anywhere."""
    async for piece in stream:
        for at in range(0, len(piece), 77):
            yield piece[at : at + 77]


async def shown(request: Request, rows: Sequence[Row]) -> Response:
    return await reply_list(request, rows, view, lambda row: row[:2])


async def body(response: Response) -> Any:
    whole = response.body
    if response.stream is not None:
        whole = b"".join([piece async for piece in response.stream])
    return orjson.loads(whole)


def some_rows(count: int) -> list[Row]:
    chance = random.Random(count)
    rows: list[Row] = [
        (f"v{chance.randrange(3)}", f"q{number:04}", chance.choice([None, chance.randrange(10_000)]))
        for number in range(count)
    ]
    chance.shuffle(rows)
    return rows


def spread(rows: Sequence[Row], workers: int) -> list[list[Row]]:
    """A vhost is one worker's."""
    return [[row for row in rows if int(row[0][1:]) % workers == number] for number in range(workers)]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("sort", ["", "name", "totals.messages"])
@pytest.mark.parametrize("reverse", ["false", "true"])
@pytest.mark.parametrize("count", [0, 7, 1009])
async def test_it_is_the_list_of_one_process(workers: int, sort: str, reverse: str, count: int) -> None:
    rows = some_rows(count)
    own, *others = spread(rows, workers)
    query: dict[str, object] = {"sort": sort, "sort_reverse": reverse, "name": "q", "columns": "name,totals"}
    pages: list[dict[str, object]] = [
        {},
        {"page": 1},
        {"page": 2, "page_size": 3},
        {"page": 11, "page_size": 90},
    ]
    for page in pages:
        request = asked(query | page)
        request.others = elsewhere = Workers(query | page, others)
        try:
            expected = await body(await shown(asked(query | page), rows))
        except HttpError as error:
            with pytest.raises(HttpError, match=str(error)):
                await shown(request, own)
            continue
        found = await body(await shown(request, own))
        if sort == "totals.messages":  # equal values may come in any order
            assert values(found) == values(expected)
        else:
            assert found == expected
        assert elsewhere.rows_sent <= 100, "no more than the page"


def values(answer: Any) -> list[Any]:
    items = answer["items"] if isinstance(answer, dict) else answer
    return [item.get("totals") for item in items]


async def test_names_that_are_asked_for_are_counted_in_all_workers() -> None:
    rows = some_rows(50)
    own, *others = spread(rows, 3)
    query: dict[str, object] = {"name": "q001", "page": 1, "page_size": 5}
    request = asked(query)
    request.others = Workers(query, others)
    found = await body(await shown(request, own))
    assert (found["total_count"], found["filtered_count"], found["item_count"]) == (50, 10, 5)


async def test_no_worker_knows_another_part() -> None:
    with pytest.raises(HttpError, match="no part 'keys'"):
        await shown(asked({}, "keys"), [])
