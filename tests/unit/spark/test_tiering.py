"""Cold segments become an archive, which with the log is one table, whatever retention did meanwhile."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.log_core.batch._batch import AMQP091, MQTT5
from penstock.log_core.log import Log
from penstock.spark.errors import DataLoss, SparkError, SparkOptionError
from penstock.spark.logs.planning import plan, selection_of, starting_position
from penstock.spark.logs.reading import read_parts
from penstock.spark.logs.tiering import Cold, tier
from penstock.spark.options import ReadOptions
from penstock.spark.schema import COLUMNS
from penstock.spark.tables.files import DataFile
from penstock.spark.tables.parquet import ParquetFormat
from tests.support.logs import KIB, durable_feed, fill, open_log, settle
from tests.support.spark_archives import LATER_MS, archived, forget, rows, run_tier
from tests.support.spark_logs import seen


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(tmp_path / "data", checkpoint_bytes=64 * KIB, traffic_retention_bytes=1 << 40)
    yield log
    log.close_sync()


def test_archive_and_log_are_one_table_also_after_retention(log: Log, tmp_path: Path) -> None:
    lsns = fill(log, durable_feed(log), 500 * KIB)
    settle(log)
    reached = run_tier(tmp_path)
    assert len(reached) > 4
    assert rows(*archived(tmp_path)) == lsns
    forget(log, tmp_path)
    view, options = archived(tmp_path)
    assert view.log.first > lsns[0], "the log itself has less"
    assert rows(view, options) == lsns
    assert view.complete_from <= lsns[0]
    # Any part of it, across the border too.
    border = reached[-1]
    for first, last in ((lsns[7], lsns[9]), (lsns[3], border + 5), (border - 3, border), (border, lsns[-1])):
        assert rows(view, options, first=first, last=last) == [lsn for lsn in lsns if first <= lsn < last]


def test_a_second_run_goes_on_and_a_third_has_nothing_to_do(log: Log, tmp_path: Path) -> None:
    feed = durable_feed(log)
    lsns = fill(log, feed, 200 * KIB)
    settle(log)
    first = run_tier(tmp_path)
    lsns += fill(log, feed, 200 * KIB)
    settle(log)
    second = run_tier(tmp_path)
    assert first and second and second[0] > first[-1]
    assert run_tier(tmp_path) == []
    assert rows(*archived(tmp_path)) == lsns


def test_only_segments_without_anything_young_are_cold(tmp_path: Path) -> None:
    now = [1_000.0]
    log = open_log(tmp_path / "data", clock=lambda: now[0], traffic_retention_bytes=1 << 40)
    feed = durable_feed(log)
    fill(log, feed, 150 * KIB)
    now[0] = 2_000.0
    fill(log, feed, 150 * KIB)
    settle(log)
    (border,) = [last for _, last, newest in seen(tmp_path / "data").closed() if newest == 1_000_000][-1:]
    assert run_tier(tmp_path, before_ms=1_500_000)[-1] == border
    assert run_tier(tmp_path, before_ms=1_000_000) == []
    assert run_tier(tmp_path, before_ms=2_000_001)
    log.close_sync()


def test_a_run_that_is_killed_at_any_point_is_taken_up(log: Log, tmp_path: Path) -> None:
    lsns = fill(log, durable_feed(log), 400 * KIB)
    settle(log)

    def killed(
        translate: Callable[[Cold], Sequence[DataFile]], todo: Iterable[Cold]
    ) -> Iterator[Sequence[DataFile]]:
        for index, cold in enumerate(todo):
            files = translate(cold)
            if index == 2:
                raise KeyboardInterrupt
            yield files

    with pytest.raises(KeyboardInterrupt):
        run_tier(tmp_path, run=killed)
    table = ParquetFormat(tmp_path / "archive")
    found = set((tmp_path / "archive").glob("event_date=*/*.parquet"))
    assert len(found) == len(table.files()) + 1, "the killed run left a file that does not count"
    run_tier(tmp_path)
    assert rows(*archived(tmp_path)) == lsns


def test_of_two_runs_at_once_one_ends_and_nothing_is_there_twice(log: Log, tmp_path: Path) -> None:
    lsns = fill(log, durable_feed(log), 300 * KIB)
    settle(log)
    slow = tier(tmp_path / "data", tmp_path / "archive", LATER_MS)
    next(slow)
    run_tier(tmp_path)
    with pytest.raises(SparkError, match=r"another job has put \[\d+, \d+\) into"):
        next(slow)
    assert rows(*archived(tmp_path)) == lsns
    found = set((tmp_path / "archive").glob("event_date=*/*.parquet"))
    assert len(found) == len(ParquetFormat(tmp_path / "archive").files())


def test_records_deleted_before_they_were_copied_are_named(log: Log, tmp_path: Path) -> None:
    feed = durable_feed(log)
    lsns = fill(log, feed, 200 * KIB)
    settle(log)
    reached = run_tier(tmp_path)[-1]
    lsns += fill(log, feed, 500 * KIB)
    settle(log)
    forget(log, tmp_path, beyond=reached)
    gone = (reached, seen(tmp_path / "data").first)
    lsns += fill(log, feed, 200 * KIB)
    settle(log)
    with pytest.raises(DataLoss, match="deleted by retention") as caught:
        run_tier(tmp_path)
    assert caught.value.ranges == (gone,)
    assert run_tier(tmp_path, allow_loss=True)
    view, options = archived(tmp_path, failOnDataLoss="false")
    assert rows(view, options) == [lsn for lsn in lsns if not gone[0] <= lsn < gone[1]]


def test_a_query_that_was_planned_on_the_log_finds_in_the_archive_what_moved(
    log: Log, tmp_path: Path
) -> None:
    lsns = fill(log, durable_feed(log), 500 * KIB)
    settle(log)
    view, options = archived(tmp_path)
    selection = selection_of(view, options, ["offset"], view.complete_from)
    tasks = plan(view, options, selection, view.first, view.end(written=True))
    run_tier(tmp_path)
    forget(log, tmp_path)
    found = [
        offset
        for task in tasks
        for batch in read_parts(view.storage, task, pickle.loads(pickle.dumps(selection)))
        for offset in batch.column(0).to_pylist()
    ]
    assert found == lsns
    without = dataclasses.replace(selection, archive=None)
    with pytest.raises(DataLoss):
        [list(read_parts(view.storage, task, without)) for task in tasks]


def mixed(log: Log, records: int) -> None:
    """MQTT and AMQP records of two vhosts, with properties."""
    log.tables.put("lp", b"\0\0\0\1", b"second")
    target = log.target((), False)
    for index in range(records):
        key = f"plant/{index % 3}/t".encode() if index % 2 else b"\x09amq.topic\x09plant.%d.t" % (index % 3)
        block = b"\x26\0\1k\0\1v" if index % 2 else b"\x10\x00\x02"
        encoding = MQTT5 if index % 2 else AMQP091
        log.appender.append_record(index // 2 % 2, target, key, block, b"body %d" % index, 0, 0, encoding)
        if index % 10 == 9:
            log.flush()
    log.flush()
    fill(log, log.new_feed(), 140 * KIB, bytes(2000))
    settle(log)


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"topics": "plant/1/+"},
        {"routingKeys": "plant.2.#", "protocols": "mqtt"},
        {"exchanges": "amq.topic", "vhosts": "second"},
        {"vhosts": "second", "payload": "head:6"},
        {"protocols": "amqp091", "payload": "none"},
    ],
)
def test_the_archive_gives_the_rows_that_the_log_gives(
    log: Log, tmp_path: Path, chosen: dict[str, str]
) -> None:
    mixed(log, 200)
    columns = [name for name in COLUMNS if chosen.get("payload") != "none" or name != "payload"]
    view, options = archived(tmp_path, **chosen)
    before = rows(view, options, columns)
    assert len(before) > 20
    run_tier(tmp_path)
    forget(log, tmp_path)
    view, options = archived(tmp_path, **chosen)
    assert rows(view, options, columns) == before


def test_a_time_that_only_the_archive_has_is_found(tmp_path: Path) -> None:
    now = [1_000.0]
    log = open_log(
        tmp_path / "data",
        clock=lambda: now[0],
        checkpoint_bytes=64 * KIB,
        traffic_retention_bytes=1 << 40,
    )
    feed = durable_feed(log)
    first_at = {}
    for second in range(1000, 1100):
        now[0] = second
        first_at[second] = fill(log, feed, 5 * KIB)[0]
    settle(log)
    run_tier(tmp_path)
    forget(log, tmp_path)
    for second in (1000, 1002, 1050, 1099):
        view, options = archived(tmp_path, startingTimestamp=str(second * 1000))
        start = starting_position(view, options, "earliest")
        assert rows(view, options, first=start)[0] == first_at[second]
    log.close_sync()


def test_an_archive_that_has_nothing_of_this_log_is_no_part_of_it(log: Log, tmp_path: Path) -> None:
    lsns = fill(log, durable_feed(log), 200 * KIB)
    settle(log)
    other = open_log(tmp_path / "other", traffic_retention_bytes=1 << 40)
    fill(other, durable_feed(other), 200 * KIB)
    settle(other)
    assert list(tier(tmp_path / "other", tmp_path / "archive", LATER_MS))
    other.close_sync()
    assert rows(*archived(tmp_path)) == lsns


def test_an_archive_is_named_by_its_format() -> None:
    with pytest.raises(SparkOptionError, match="give parquet:PATH"):
        ReadOptions.parse({"path": "/x", "archive": "delta:/y"})


def test_the_command_copies_in_processes_of_its_own(
    log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lsns = fill(log, durable_feed(log), 300 * KIB)
    settle(log)
    words = ["spark", "tier", "--data", str(tmp_path / "data"), "--to", f"parquet:{tmp_path / 'archive'}"]
    assert main([*words, "--older-than", "0s", "--cores", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) > 3
    segments = len(ParquetFormat(tmp_path / "archive").positions(seen(tmp_path / "data").log_id))
    assert said[-1].startswith(f"{segments} segments, ")
    assert rows(*archived(tmp_path)) == lsns
    assert main([*words, "--older-than", "6h"]) == 0
    assert capsys.readouterr().out.startswith("0 segments, 0 messages")


def test_a_machine_without_semaphores_is_told_what_it_lacks(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")  # what a machine without /dev/shm says

    monkeypatch.setattr("penstock.spark.jobs.tier.ProcessPoolExecutor", refuse)
    words = ["spark", "tier", "--data", str(tmp_path / "data"), "--to", f"parquet:{tmp_path / 'archive'}"]
    assert main([*words, "--cores", "2"]) != 0
    assert "/dev/shm, where processes keep their semaphores, or give --cores 1" in capsys.readouterr().err
