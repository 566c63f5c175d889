"""The planner of a stream, without Spark: how far each micro-batch goes, and when one is due."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.log_core.log import Log
from penstock.spark import source
from penstock.spark.errors import DataLoss, SparkError
from penstock.spark.options import ReadOptions
from penstock.spark.source import Task, TrafficStream
from tests.support.logs import KIB, durable_feed, fill, open_log, settle
from tests.support.spark_logs import NOBODY, rewrite, seen

LIMIT = ReadAllAvailable()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the planner."""
    moment = [100.0]
    monkeypatch.setattr(source, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    return moment


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(tmp_path, checkpoint_bytes=64 * KIB, traffic_retention_bytes=1 << 40)
    yield log
    log.close_sync()


def stream(path: Path, **options: str) -> TrafficStream:
    given = {"path": str(path), "isolation": "written", "startingOffsets": "earliest", **options}
    return TrafficStream(ReadOptions.parse(given), ["offset"])


def offsets(found: TrafficStream, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """The offsets that the tasks of a micro-batch read, after Spark has pickled them."""
    fresh = TrafficStream(found.options, found.columns)
    reader, tasks = pickle.loads(pickle.dumps((fresh, list(found.partitions(start, end)))))
    assert all(isinstance(task, Task) for task in tasks)
    return [row for task in tasks for batch in reader.read(task) for row in batch.column(0).to_pylist()]


def test_a_micro_batch_waits_for_enough_but_not_for_ever(log: Log, tmp_path: Path, now: list[float]) -> None:
    feed = durable_feed(log)
    found = stream(tmp_path, minOffsetsPerTrigger="200", maxTriggerDelay="15m")
    start = found.initialOffset()
    lsns = fill(log, feed, 20 * KIB)
    assert len(lsns) < 150
    assert found.latestOffset(start, LIMIT) == start, "not enough yet"
    now[0] += 890
    assert found.latestOffset(start, LIMIT) == start
    now[0] += 20
    end = found.latestOffset(start, LIMIT)
    assert offsets(found, start, end) == lsns, "it has waited 15 minutes"
    # The wait begins anew with what comes next, and enough ends it at once.
    now[0] += 3600
    more = fill(log, feed, 20 * KIB)
    assert found.latestOffset(end, LIMIT) == end
    more += fill(log, feed, 100 * KIB)
    assert offsets(found, end, found.latestOffset(end, LIMIT)) == more


def test_records_present_at_the_start_are_read_below_the_minimum(log: Log, tmp_path: Path) -> None:
    lsns = fill(log, durable_feed(log), 10 * KIB)
    found = stream(tmp_path, minOffsetsPerTrigger="100000")
    start = found.initialOffset()
    found.prepareForTriggerAvailableNow()
    later = fill(log, log.new_feed(), 10 * KIB)
    assert later
    assert offsets(found, start, found.latestOffset(start, LIMIT)) == lsns, "and no more than that"


def test_both_limits_of_a_micro_batch_hold(log: Log, tmp_path: Path) -> None:
    lsns = fill(log, durable_feed(log), 400 * KIB)
    settle(log)
    for options in (
        {"maxOffsetsPerTrigger": "90", "maxBytesPerTrigger": "10000000"},
        {
            "maxOffsetsPerTrigger": "100000",
            "maxBytesPerTrigger": "70000",
        },
    ):
        found = stream(tmp_path, **options)
        at = found.initialOffset()
        rows: list[int] = []
        batches = 0
        while (end := found.latestOffset(at, LIMIT)) != at:
            part = offsets(found, at, end)
            assert len(part) <= 200
            rows += part
            at = end
            batches += 1
        assert rows == lsns
        assert batches > 4


def test_a_checkpoint_of_another_log_or_a_later_one_is_refused(log: Log, tmp_path: Path) -> None:
    fill(log, durable_feed(log), 10 * KIB)
    found = stream(tmp_path)
    start = found.initialOffset()
    with pytest.raises(SparkError, match="the log was put back to an older state"):
        found.latestOffset({**start, "0": 1 << 40}, LIMIT)
    with pytest.raises(SparkError, match="holds another log"):
        stream(tmp_path).latestOffset({**start, "log": "00" * 16}, LIMIT)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_deleted_before_they_were_read_are_named_exactly(log: Log, tmp_path: Path, fail: str) -> None:
    lsns = fill(log, durable_feed(log), 500 * KIB)
    settle(log)
    found = stream(tmp_path, failOnDataLoss=fail)
    start = found.initialOffset()
    end = found.latestOffset(start, LIMIT)
    log.low_water = lambda: NOBODY
    rewrite(log, [], lambda: seen(tmp_path).first > lsns[0])
    first = seen(tmp_path).first
    if fail == "true":
        with pytest.raises(DataLoss) as caught:
            found.partitions(start, end)
        assert caught.value.ranges == ((int(start["0"]), first),)
    else:
        assert offsets(found, start, end) == [lsn for lsn in lsns if lsn >= first]


def test_progress_says_where_the_log_ends(log: Log, tmp_path: Path) -> None:
    found = stream(tmp_path)
    assert found.reportLatestOffset() is None
    lsns = fill(log, durable_feed(log), 10 * KIB)
    found.initialOffset()
    assert found.reportLatestOffset() == {"0": lsns[-1] + 1}


def test_a_micro_batch_that_comes_again_has_the_same_tasks_though_the_log_was_changed(
    tmp_path: Path,
) -> None:
    """The sink numbers the rows of a task, so what is numbered may not move from one to another."""
    log = open_log(tmp_path, segment_bytes=1024 * KIB, traffic_retention_bytes=1 << 40)
    feed = durable_feed(log)
    lsns = fill(log, feed, 600 * KIB)
    settle(log)

    def tasks(found: TrafficStream, start: dict[str, Any], end: dict[str, Any]) -> list[list[int]]:
        planned = found.partitions(start, end)
        return [[row for b in found.read(task) for row in b.column(0).to_pylist()] for task in planned]

    found = stream(tmp_path, minPartitions="3")
    start = found.initialOffset()
    end = found.latestOffset(start, LIMIT)
    kept = json.loads(json.dumps(end))
    before = tasks(found, start, end)
    assert len(before) >= 3
    assert [row for task in before for row in task] == lsns
    # The segment is filled up and closed, and the job runs on a machine that would cut elsewhere.
    fill(log, feed, 900 * KIB)
    settle(log)
    elsewhere = stream(tmp_path, minPartitions="5")
    assert tasks(elsewhere, start, kept) == before
    assert tasks(elsewhere, start, {**kept, "cuts": []}) == [lsns], "what the checkpoint says, and that alone"
    del kept["cuts"]
    again = tasks(elsewhere, start, kept)
    assert again != before, "of an older version: this is what they are for"
    assert [row for task in again for row in task] == lsns
    log.close_sync()
