"""A page of very many rows is made in slices: between two of them the loop moves messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from functools import total_ordering
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from penstock.protocols.http.server.messages import Request, Response, split_target
from penstock.protocols.http.shared.lists import reply_list, sorted_in_parts

COUNT = 20_000
WORK_MAX = 60_000
"""Of a slice: a look at a row costs 1, a comparison too, and a row that is made 1,000."""


class Work:
    """Units of work since the loop had its turn, and the most of all turns."""

    done = most = 0

    def costs(self, units: int) -> None:
        self.done += units
        self.most = max(self.most, self.done)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine that waits for nothing but its next turn."""
        while True:
            self.done = 0
            try:
                coroutine.send(None)
            except StopIteration as end:
                return end.value


@pytest.fixture
def work() -> Work:
    return Work()


def key_of(work: Work) -> type[Any]:
    @total_ordering
    class Key:
        def __init__(self, value: int) -> None:
            self.value = value

        def __lt__(self, other: Any) -> bool:
            work.costs(1)
            return bool(self.value < other.value)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and self.value == other.value

        def __hash__(self) -> int:
            return hash(self.value)

    return Key


ORDERS: dict[str, Callable[[random.Random], int]] = {
    "distinct": lambda rng: rng.randrange(1 << 40),
    "few": lambda rng: rng.randrange(3),
    "mostly the same": lambda rng: rng.randrange(9) * (rng.random() < 0.01),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("values", ORDERS)
def test_many_rows_are_sorted_in_slices(work: Work, values: str, reverse: bool) -> None:
    rng, key = random.Random(23), key_of(work)
    rows = [(ORDERS[values](rng), number) for number in range(COUNT)]
    found = work.run(sorted_in_parts(rows, lambda row: key(row[0]), reverse=reverse))
    assert found == sorted(rows, key=lambda row: row[0], reverse=reverse)  # equal ones as they were
    assert 0 < work.most < WORK_MAX


@pytest.mark.parametrize("sort", ["name", "messages", "absent", "of_all"])
def test_a_page_of_many_rows_is_made_in_slices(work: Work, sort: str) -> None:
    rng = random.Random(7)
    rows = [(f"q{number:06}", rng.randrange(50)) for number in range(COUNT)]

    def make(row: tuple[str, int]) -> dict[str, Any]:
        work.costs(1000)
        return {"name": row[0], "of_all": row[1]}

    def read(row: tuple[str, int]) -> int:
        work.costs(1)
        return row[1]

    def name_of(row: tuple[str, int]) -> tuple[str, ...]:
        work.costs(1)
        return ("/", row[0])

    asked = {"sort": sort, "page": 2, "page_size": 100, "name": "q"}
    _, words = split_target(f"/api/queues?{urlencode(asked)}")
    request = Request("GET", "/api/queues", {}, "1.1", query=words)
    answer: Response = work.run(
        reply_list(request, rows, make, name_of, is_sorted=True, keys={"messages": read})
    )
    shown = [one["name"] for one in orjson.loads(answer.body)["items"]]
    column = {"messages": 1, "of_all": 1}.get(sort, 0)
    assert shown == [row[0] for row in sorted(rows, key=lambda row: row[column])[100:200]]
    assert 0 < work.most < WORK_MAX
