"""A log seen from outside while it is written, closed, rewritten, deleted and started again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from penstock.log_core.errors import Damage
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.layout import WAL_HEAD_BYTES, Folder
from penstock.log_core.log import Log
from penstock.spark.errors import DataLoss, SparkError
from penstock.spark.logs.log_view import LogPart, LogView, Part
from penstock.spark.logs.planning import advance, ending_position, grouped, plan, starting_position
from penstock.spark.logs.reading import Selection, read_parts
from penstock.spark.options import ReadOptions
from tests.support.logs import KIB, Unsynced, append, durable_feed, fill, open_log, settle
from tests.support.spark_logs import NOBODY, rewrite, seen

OFFSETS = Selection(("offset",))


def options(**more: str) -> ReadOptions:
    return ReadOptions.parse({"path": "/unused", **more})


def offsets(
    view: LogView, first: int, last: int, selection: Selection = OFFSETS, split: int = 1 << 62
) -> list[int]:
    batches = read_parts(view.storage, view.parts(first, last, split), selection)
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    log = open_log(tmp_path, traffic_retention_bytes=1 << 40)
    yield log
    log.close_sync()


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="no log in"):
        LogView(tmp_path)


def test_closed_segments_and_the_one_being_written_are_one_log(log: Log, tmp_path: Path) -> None:
    lsns = fill(log, durable_feed(log), 400 * KIB)
    settle(log)
    view = seen(tmp_path)
    assert len(view.parts(view.first, view.end(), 1 << 62)) > 4
    assert offsets(view, view.first, view.end(written=True)) == lsns
    assert offsets(view, lsns[100], lsns[300]) == lsns[100:300]


def test_a_refresh_sees_new_records(log: Log, tmp_path: Path) -> None:
    feed = durable_feed(log)
    view = seen(tmp_path)
    at = view.end(written=True)
    for _ in range(30):
        lsns = fill(log, feed, 9 * KIB)
        view.refresh()
        end = view.end(written=True)
        assert offsets(view, at, end) == lsns
        at = end


def test_the_end_is_what_is_known_to_be_durable(tmp_path: Path) -> None:
    class Stuck(Unsynced):
        stuck = True

        def fdatasync(self, fd: int) -> None:
            assert not self.stuck, "nobody asked for a sync"

    files = Stuck()
    log = open_log(tmp_path, files, max_unsynced_bytes=1 << 40)
    feed = log.new_feed()
    first = append(log, [feed], b"x")
    log.flush()
    view = seen(tmp_path)
    assert view.end() <= first < view.end(written=True)
    assert offsets(view, view.first, view.end()) == []
    files.stuck = False
    log.wait_synced(log.written_lsn)
    log.tend(1 << 50)
    view.refresh()
    assert view.end() == first + 1
    log.close_sync()


def test_a_batch_larger_than_a_step_is_walked_over(log: Log, tmp_path: Path) -> None:
    big = append(log, [], bytes(5 << 20))
    log.flush()
    small = append(log, [], b"x")
    log.flush()
    view = seen(tmp_path)
    assert offsets(view, view.first, view.end(written=True)) == [big, small]


def test_after_an_unclean_stop_positions_jump_and_nothing_is_missing(tmp_path: Path) -> None:
    log = open_log(tmp_path, traffic_retention_bytes=1 << 40)
    feed = durable_feed(log)
    lsns = fill(log, feed, 20 * KIB)
    log.wait_synced(log.written_lsn)
    view = seen(tmp_path)
    log.close_sync()
    (tmp_path / "CLEAN").unlink()
    log = open_log(tmp_path, traffic_retention_bytes=1 << 40)
    lsns += fill(log, log.feed(feed.id), 20 * KIB)
    view.refresh()
    assert lsns[-1] - lsns[0] > 1 << 32
    end = view.end(written=True)
    assert offsets(view, view.first, end) == lsns
    assert view.loss_between(view.first, end) == []
    log.close_sync()


def test_a_torn_end_is_not_read(log: Log, tmp_path: Path) -> None:
    lsns = fill(log, durable_feed(log), 20 * KIB)
    log.wait_synced(log.written_lsn)
    segment = log._segments.live[-1]
    with segment.path.open("r+b") as file:
        file.seek(segment.end)
        file.write(b"\x60\x01\0\0" + bytes(200))
    view = seen(tmp_path)
    assert offsets(view, view.first, view.end(written=True)) == lsns


def test_damage_is_named_by_file_and_byte(log: Log, tmp_path: Path) -> None:
    fill(log, durable_feed(log), 20 * KIB)
    log.wait_synced(log.written_lsn)
    view = seen(tmp_path)
    segment = log._segments.live[-1]
    with segment.path.open("r+b") as file:
        file.seek(segment.end - 100)
        file.write(b"\xff")
    with pytest.raises(Damage, match=r"0000000001\.wal, byte \d+: blob CRC"):
        offsets(view, view.first, view.end(written=True))


def test_large_ranges_are_split_and_small_ones_grouped(log: Log, tmp_path: Path) -> None:
    lsns = fill(log, durable_feed(log), 1000 * KIB)
    settle(log)
    view = seen(tmp_path)
    end = view.end(written=True)
    whole = plan(view, options(), OFFSETS, view.first, end)
    assert len(whole) == 1, "small segments are one task"
    parts = plan(view, options(minPartitions="4"), OFFSETS, view.first, end)
    assert len(parts) >= 4
    large = dataclasses.replace(options(minPartitions="4"), task_bytes_min=8 << 20)
    assert len(plan(view, large, OFFSETS, view.first, end)) == 1, "not worth a second task"
    assert [
        at for task in parts for b in read_parts(tmp_path, task, OFFSETS) for at in b.column(0).to_pylist()
    ] == lsns
    big = open_log(tmp_path / "big", segment_bytes=4 << 20, traffic_retention_bytes=1 << 40)
    more = fill(big, durable_feed(big), 2000 * KIB)
    view = seen(tmp_path / "big")
    split = view.parts(view.first, view.end(written=True), 256 * KIB)
    assert len(split) >= 6
    assert {part.segment for part in split} == {1}
    assert offsets(view, view.first, view.end(written=True), split=256 * KIB) == more
    assert len(grouped(split, 1 << 30)) == 1
    big.close_sync()


@pytest.mark.parametrize(
    ("cores", "mib", "tasks"), [(2, 40, 2), (2, 512, 4), (8, 512, 8), (64, 512, 16), (1, 100, 1)]
)
def test_a_task_is_a_share_of_what_there_is__within_bounds(
    cores: int, mib: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class View(LogView):
        def __init__(self) -> None:
            pass

        def loss_between(self, first: int, last: int) -> list[tuple[int, int]]:
            return []

        def parts(self, first: int, last: int, split_bytes: int) -> list[Part]:
            return [
                LogPart(
                    1,
                    at >> 10,
                    min(at + split_bytes, mib << 20) >> 10,
                    at,
                    min(split_bytes, (mib << 20) - at),
                )
                for at in range(0, mib << 20, split_bytes)
            ]

    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert len(plan(View(), options(), OFFSETS, 0, mib << 10)) == tasks
    assert len(plan(View(), options(taskBytes=str(8 << 20)), OFFSETS, 0, mib << 10)) == -(-mib // 8)


def test_admission_by_records_and_by_bytes_goes_on_and_ends(log: Log, tmp_path: Path) -> None:
    fill(log, durable_feed(log), 500 * KIB)
    settle(log)
    view = seen(tmp_path)
    end = view.end(written=True)
    for records, nbytes in ((100, None), (None, 100 * KIB), (70, 64 * KIB), (None, 1)):
        at, steps = view.first, 0
        while at < end:
            further = advance(view, at, end, records, nbytes)
            assert at < further <= end
            if records is not None:
                assert further - at <= records
            at = further
            steps += 1
        assert steps > 3


def test_positions_by_time(tmp_path: Path) -> None:
    now = [1_000.0]
    log = open_log(tmp_path, clock=lambda: now[0], segment_bytes=16 * KIB, traffic_retention_bytes=1 << 40)
    feed = durable_feed(log)
    first_at: dict[int, int] = {}
    for second in range(1000, 1100):
        now[0] = second
        first_at[second] = fill(log, feed, 2 * KIB)[0]
    view = seen(tmp_path)
    end = view.end(written=True)
    for second in (1000, 1037, 1099):
        at = starting_position(
            view, options(startingTimestamp=str(second * 1000), isolation="written"), "earliest"
        )
        assert offsets(view, at, end)[0] == first_at[second]
    late = options(startingTimestamp="1100000", isolation="written")
    assert starting_position(view, late, "earliest") == end
    until = options(endingTimestamp="1037000", isolation="written")
    assert offsets(view, view.first, ending_position(view, until))[-1] == first_at[1037] - 1
    log.close_sync()


def filled(tmp_path: Path) -> tuple[Log, Feed, list[int]]:
    log = open_log(tmp_path, checkpoint_bytes=64 * KIB, traffic_retention_bytes=1 << 40)
    feed = durable_feed(log)
    lsns = fill(log, feed, 500 * KIB)
    settle(log)
    return log, feed, lsns


def test_a_rewritten_segment_gives_what_is_left_and_says_what_is_gone(tmp_path: Path) -> None:
    log, _, lsns = filled(tmp_path)
    before = seen(tmp_path)
    planned = before.parts(before.first, before.end(written=True), 1 << 62)
    kept = lsns[:200:20]
    log.low_water = lambda: kept[0]
    rewrite(
        log,
        kept,
        lambda: seen(tmp_path).complete_from > lsns[100] and log.statistics()["segments_sealed"] > 2,
    )
    view = seen(tmp_path)
    lenient = dataclasses.replace(OFFSETS, complete_from=view.complete_from)
    end = view.end(written=True)
    left = [lsn for lsn in lsns if lsn in kept or lsn >= view.complete_from]
    assert offsets(view, view.first, end, lenient) == left
    with pytest.raises(DataLoss, match="was rewritten or deleted") as caught:
        offsets(view, lsns[20], end)
    assert caught.value.ranges[0] == (lsns[20] + 1, lsns[40])
    # A query that was planned before finds the same rows and misses the same ranges.
    batches = read_parts(tmp_path, planned, dataclasses.replace(OFFSETS, fail_on_data_loss=False))
    assert [offset for batch in batches for offset in batch.column(0).to_pylist()] == left
    log.close_sync()


def test_a_task_that_begins_within_a_segment_finds_the_same_records_when_it_was_rewritten(
    tmp_path: Path,
) -> None:
    log = open_log(
        tmp_path, segment_bytes=256 * KIB, checkpoint_bytes=64 * KIB, traffic_retention_bytes=1 << 40
    )
    lsns = fill(log, durable_feed(log), 900 * KIB)
    settle(log)
    before = seen(tmp_path)
    planned = before.parts(before.first, before.end(written=True), 64 * KIB)
    within = [part for part in planned if part.offset > WAL_HEAD_BYTES]
    assert len(within) > 4
    kept = lsns[:1000:20]
    log.low_water = lambda: kept[0]
    rewrite(log, kept, lambda: log.statistics()["segments_sealed"] > 1)
    view = seen(tmp_path)
    lenient = dataclasses.replace(OFFSETS, fail_on_data_loss=False)
    left = [lsn for lsn in lsns if lsn in kept or lsn >= view.complete_from]
    for part in planned:
        found = [at for batch in read_parts(tmp_path, [part], lenient) for at in batch.column(0).to_pylist()]
        assert found == [lsn for lsn in left if part.first <= lsn < part.last]
    log.close_sync()


def test_a_log_is_complete_behind_its_last_hole(tmp_path: Path) -> None:
    log, _, lsns = filled(tmp_path)
    log.close_sync()
    folder = Folder(tmp_path)
    numbers = sorted(folder.segment_numbers())
    folder.segment(numbers[len(numbers) // 2]).unlink()
    view = seen(tmp_path)
    end = view.end(written=True)
    assert view.loss_between(lsns[0], end)
    assert lsns[0] < view.complete_from < end
    assert view.loss_between(view.complete_from, end) == []


def test_deleted_segments_are_named_exactly(tmp_path: Path) -> None:
    log, _, lsns = filled(tmp_path)
    before = seen(tmp_path)
    planned = before.parts(lsns[0], before.end(written=True), 1 << 62)
    log.low_water = lambda: NOBODY
    rewrite(log, [], lambda: seen(tmp_path).first > lsns[0])
    view = seen(tmp_path)
    assert view.first > lsns[0]
    assert view.loss_between(lsns[0], view.end(written=True)) == [(lsns[0], view.first)]
    with pytest.raises(DataLoss, match=rf"offsets \[{lsns[0]}, {view.first}\) are not in the log"):
        plan(view, options(), OFFSETS, lsns[0], view.end(written=True))
    with pytest.raises(DataLoss):
        list(read_parts(tmp_path, planned, OFFSETS))
    log.close_sync()


def test_another_log_in_the_folder_is_noticed(tmp_path: Path) -> None:
    open_log(tmp_path / "a").close_sync()
    view = seen(tmp_path / "a")
    open_log(tmp_path / "b").close_sync()
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    with pytest.raises(SparkError, match="another log"):
        view.refresh()


def test_names_of_vhosts_come_from_the_checkpoint_and_what_follows(tmp_path: Path) -> None:
    log = open_log(tmp_path, traffic_retention_bytes=1 << 40)
    log.tables.put("lp", b"\0\0\0\1", b"early")
    fill(log, durable_feed(log), 400 * KIB)
    settle(log)
    log.tables.put("lp", b"\0\0\0\2", b"late")
    log.appender.append_record(2, log.target((), False), b"k", body=b"of late")
    log.flush()
    view = seen(tmp_path)
    names = view.vhosts()
    assert names == {0: b"/", 1: b"early", 2: b"late"}
    selection = Selection(("vhost", "payload"), vhosts=tuple(names.items()), wanted_vhosts=(b"late",))
    (batch,) = read_parts(tmp_path, view.parts(view.first, view.end(written=True), 1 << 62), selection)
    assert batch.to_pylist() == [{"vhost": "late", "payload": b"of late"}]
    log.close_sync()
