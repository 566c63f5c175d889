"""Clients that read too little of their answers."""

from __future__ import annotations

import pytest

from penstock.protocols.http.server.progress import LEAST, WITHIN_S, Progress


@pytest.mark.parametrize(("each_second", "stalls"), [(0, True), (1, True), (100, True), (200, False)])
def test_least_bytes_in_each_30_s(each_second: int, stalls: bool) -> None:
    progress = Progress()
    found = [progress.stalled(1, each_second * second, float(second)) for second in range(300)]
    assert any(found) is stalls
    assert not any(found[: int(WITHIN_S) + 1])


def test_time_in_which_nothing_waits_does_not_count() -> None:
    progress = Progress()
    for second in range(0, 300, 20):
        assert not progress.stalled(1, 0, float(second))
        assert not progress.stalled(0, 0, second + 19.0)


def test_the_time_begins_anew_with_what_was_taken() -> None:
    progress = Progress()
    assert not progress.stalled(1, 0, 0.0)
    assert not progress.stalled(1, LEAST, 29.0)
    assert not progress.stalled(1, LEAST, 59.0)
    assert progress.stalled(1, LEAST, 59.1)
