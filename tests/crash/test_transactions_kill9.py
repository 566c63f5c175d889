"""Transactions of three protocols over a few kills; `make transactions` does fifty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import transactions


@pytest.mark.timeout(900)
@pytest.mark.penstock_only("its own protocol, and its HTTP")
def test_transactions_over_kills_are_all_or_nothing(tmp_path: Path, seed: int) -> None:
    report = transactions.run(tmp_path, cycles=2, each=5, seed=seed)
    assert report.ok, report
    assert report.committed >= 2 * 3 * 5
    assert report.rolled_back
