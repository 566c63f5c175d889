"""The order of rows of which few differ is that of a sort of all of them."""

from __future__ import annotations

import random

import pytest

from penstock.protocols.http.shared.sparse_order import Sparse, sparse_order

COUNT = 500


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_it_is_that_of_a_sort(seed: int, reverse: bool) -> None:
    rng = random.Random(seed)
    rows = [f"q{number:04}" for number in range(COUNT)]
    # Rates may fall below 0, and a row that moved may have the usual one all the same.
    values = {
        row: rng.choice((-2.0, -0.5, 0.0, 1.0, 1.0, 7.0)) for row in rng.sample(rows, rng.randrange(25))
    }
    elsewhere = {"another list's": 3.0}
    looked: list[str] = []

    def read(row: str) -> float:
        looked.append(row)
        return values.get(row, 0.0)

    key = Sparse(read, 0.0, lambda: list(values | elsewhere))
    order = sparse_order(rows, key, lambda row: row, reverse=reverse)
    assert order is not None and len(order) == COUNT
    wanted = sorted(range(COUNT), key=lambda at: values.get(rows[at], 0.0), reverse=reverse)
    assert list(order[:]) == wanted
    for first in (0, 3, 480):
        assert order[first : first + 30] == wanted[first : first + 30]
    assert order[-1] == wanted[-1]
    assert set(looked) <= values.keys()  # nobody looks at the others


def test_where_many_differ_all_are_sorted() -> None:
    key = Sparse(float, 0.0, lambda: [str(number) for number in range(100)])
    assert sparse_order([str(number) for number in range(1000)], key, lambda row: row, reverse=False) is None
