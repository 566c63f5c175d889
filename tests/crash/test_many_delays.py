"""A few thousand random delays over kills; `make delays` does a million."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import delays


@pytest.mark.timeout(900)
@pytest.mark.penstock_only("its own protocol")
def test_random_delays_over_kills_are_kept(tmp_path: Path, seed: int) -> None:
    report = delays.run(tmp_path, count=3000, spread_s=10.0, kills=4, seed=seed)
    assert report.ok, report
    assert report.scheduled == 3000
