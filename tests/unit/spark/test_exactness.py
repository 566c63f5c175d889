"""Queries get each record once while the log is written, thinned, deleted and archived under them."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log_core.maintenance._seal import Needs
from penstock.spark.logs import reading
from penstock.spark.logs.planning import plan, selection_of
from penstock.spark.logs.reading import read_parts
from tests.support.logs import KIB, durable_feed, fill, keep_house, open_log, settle
from tests.support.spark_archives import archived, rows, run_tier
from tests.support.spark_logs import NOBODY

STEPS = 2 * ["write", "tier", "plan"] + 3 * ["keep house", "read on"]


class Query:
    """One that was planned, and is read a batch at a time; its tasks are pickled, as Spark does."""

    def __init__(self, tmp_path: Path, draw: random.Random, lsns: list[int]) -> None:
        view, options = archived(tmp_path)
        first, last = sorted(draw.choices(lsns, k=2))
        selection = selection_of(view, options, ["offset"], 0)
        tasks = plan(view, options, selection, first, last)
        self.wanted = [lsn for lsn in lsns if first <= lsn < last]
        self.found: list[int] = []
        self._batches = self._read(tmp_path / "data", pickle.dumps((tasks, selection)))

    @staticmethod
    def _read(data: Path, pickled: bytes) -> Iterator[pa.RecordBatch]:
        tasks, selection = pickle.loads(pickled)
        for task in tasks:
            yield from read_parts(data, task, selection)

    def read_on(self) -> bool:
        """Whether there was more; what comes is checked as it comes."""
        batch = next(self._batches, None)
        if batch is None:
            assert sorted(self.found) == self.wanted
            return False
        self.found += batch.column(0).to_pylist()
        assert set(self.found) <= set(self.wanted)
        return True


@pytest.mark.parametrize(("seed", "thinned"), [(1, True), (3, True), (4, True), (5, False)])
def test_queries_stay_exact_while_the_log_is_written_thinned_deleted_and_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, thinned: bool
) -> None:
    """Steps in an order drawn by `seed`; queries are planned in one and read in others, bit by bit.

    Segments are of one mark of the sparse index, or of several: then tasks begin within segments.
    """
    monkeypatch.setattr(reading, "ROWS_MAX", 40)
    monkeypatch.setattr(reading, "_READ_BYTES", 16 * KIB)
    scale = 1 + 4 * (seed % 2)
    log = open_log(
        tmp_path / "data",
        segment_bytes=scale * 64 * KIB,
        checkpoint_bytes=scale * 64 * KIB,
        traffic_retention_bytes=0,
    )
    draw = random.Random(seed)
    feed = durable_feed(log)
    kept: list[int] = []
    lsns: list[int] = []
    queries: list[Query] = []
    log.low_water = lambda: kept[0] if kept else NOBODY

    def mark(needs: Needs, done: Callable[[], None]) -> None:
        for lsn in kept:
            needs.need(lsn)
        done()

    log.mark_needs = mark
    checked = archived_to = 0

    for _ in range(90):
        match draw.choice(STEPS):
            case "write":
                lsns += fill(log, feed, draw.randrange(10, 90) * scale * KIB)
                if draw.random() < 0.3:
                    kept = sorted(draw.sample(lsns, min(5, len(lsns)))) if draw.random() < 0.8 else []
            case "keep house":
                # The tier job keeps records that are not archived yet.
                log.leases.acquire("tier", "test", archived_to or 1, 3600)
                keep_house(log)
            case "tier":
                settle(log)
                archived_to = max([archived_to, *run_tier(tmp_path)])
            case "plan" if lsns:
                queries.append(Query(tmp_path, draw, lsns))
            case "read on" if queries:
                query = draw.choice(queries)
                if not query.read_on():
                    queries.remove(query)
                    checked += 1
    for query in queries:
        while query.read_on():
            pass
        checked += 1
    view, options = archived(tmp_path)
    assert rows(view, options) == lsns
    assert checked > 5
    statistics = log.statistics()
    assert statistics["first_lsn"] > 1, "nothing was deleted: take another seed"
    assert (statistics["segments_sealed"] > 0) == thinned, "take another seed"
    log.close_sync()
