"""The log as the layers above see it: appending, waiting, restarting."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from penstock.errors import StartError
from penstock.log_core.batch._appender import Target
from penstock.log_core.batch._batch import AMQP091, LIST, MORE, MQTT5, PERSISTENT, UNROUTED
from penstock.log_core.batch._crc import crc32c
from penstock.log_core.log import Log
from penstock.log_core.recovery.recovery import LSN_JUMP
from penstock.log_core.state.tables import FEED_TABLE, feed_key
from tests.support.limits import LIMIT_S
from tests.support.logs import (
    FULL,
    KIB,
    FailingFiles,
    Unsynced,
    append,
    body_of,
    durable_feed,
    fill,
    load_entries,
    open_log,
    settle,
    wait,
)


def test_a_new_data_folder_is_its_owners_alone_and_one_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        open_log(tmp_path / "new").close_sync()
        (tmp_path / "there").mkdir(mode=0o750)
        open_log(tmp_path / "there").close_sync()
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("new", "there")] == [0o700, 0o750]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_record_is_in_the_feeds_of_its_target_and_in_the_tail_after_the_flush(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    one, two = log.new_feed(), log.new_feed()
    first = append(log, [one], b"a")
    second = append(log, [one, two], b"b", 0)
    third = append(log, [], b"c")
    assert log.cache.get(first) is None
    log.flush()
    assert one.positions(0, 9) == [first, second]
    assert two.positions(0, 9) == [second]
    batch = log.cache.get(first)
    assert batch is not None
    records = [batch.record(lsn - batch.base_lsn) for lsn in (first, second, third)]
    assert [record.body for record in records] == [b"a", b"b", b"c"]
    assert [record.feeds for record in records] == [(one.id,), (one.id, two.id), ()]
    assert [record.flags for record in records] == [PERSISTENT, LIST, PERSISTENT | UNROUTED]
    assert log.unwritten.take_dirty() == [one, two]
    assert log.unwritten.take_dirty() == []
    log.close_sync()


def test_a_published_batch_is_found_before_its_write_and_written_once(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path, files)
    feed = log.new_feed()
    first = append(log, [feed], b"a")
    log.unwritten.publish()
    assert log.cache.get(first) is not None and log.written_lsn < first
    second = append(log, [feed], b"b")
    assert log.cache.get(second) is None
    log.flush()
    assert log.written_lsn == second and log.cache.get(second) is not None
    files.write_error, files.write_most = FULL, 0
    third = append(log, [feed], b"c")
    log.unwritten.publish()
    log.flush()
    assert log.written_lsn == second, "there was no room for it"
    fourth = append(log, [feed], b"d")
    files.write_error = None
    log.flush()
    assert log.written_lsn == fourth
    assert [log.cache.get(lsn) is not None for lsn in (first, second, third, fourth)] == [True] * 4
    log.close_sync()
    log = open_log(tmp_path)
    assert [body_of(log, lsn) for lsn in (first, second, third, fourth)] == [b"a", b"b", b"c", b"d"]
    log.close_sync()


def test_written_and_synced_callbacks_come_in_the_order_of_lsns(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    feed = log.new_feed()
    seen: list[tuple[str, int, bool]] = []
    lsns = [append(log, [feed], b"x") for _ in range(3)]
    for lsn in reversed(lsns):
        log.when_synced(lsn, lambda ok, lsn=lsn: seen.append(("synced", lsn, ok)))
        log.when_written(lsn, lambda ok, lsn=lsn: seen.append(("written", lsn, ok)))
    assert seen == []
    log.flush()
    assert seen == [("written", lsn, True) for lsn in lsns]
    wait(log, lambda: len(seen) == 6)
    assert seen[3:] == [("synced", lsn, True) for lsn in lsns]
    assert log.synced_lsn == log.written_lsn == lsns[-1]
    assert log.backlog_bytes == 0
    log.close_sync()


def test_waiting_for_what_is_long_durable_is_answered_without_a_write(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lsn = append(log, [log.new_feed()], b"x")
    assert log.wait_synced(lsn)
    seen: list[bool] = []
    log.when_synced(lsn, seen.append)
    log.when_written(lsn, seen.append)
    log.flush()
    assert seen == [True, True]
    log.close_sync()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_a_restart_keeps_tables_feeds_and_records(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path)
    kept, forgotten, dropped = durable_feed(log), log.new_feed(), durable_feed(log)
    log.tables.put("queue", b"q1", b"one")
    log.tables.put("queue", b"q2", b"two")
    lsns = fill(log, kept, 300 * KIB)
    transient = append(log, [kept, forgotten], b"gone", 0)
    last = append(log, [kept, dropped], b"last")
    log.tables.put("queue", b"q1", b"changed")
    log.tables.delete("queue", b"q2")
    log.tables.delete(FEED_TABLE, feed_key(dropped.id))
    log.flush()
    again = _restart(log, tmp_path, clean)
    assert again.recovery.clean == clean
    assert dict(again.tables.items("queue")) == {b"q1": b"changed"}
    assert set(again.feeds) == {kept.id}
    feed = again.feed(kept.id)
    assert len(feed) == len(lsns) + 1
    assert feed.index_of(transient) == feed.end - 1
    assert feed.index_of(0) == 0
    for index in range(feed.end):
        load_entries(again, feed, index)
    assert feed.positions(0, 1 << 20) == [*lsns, last]
    assert body_of(again, lsns[0]) == bytes(400)
    assert body_of(again, last) == b"last"
    assert again.appender.next_lsn == again.recovery.last_lsn + 1 + (0 if clean else LSN_JUMP)
    assert append(again, [feed], b"new") > last
    assert again.new_feed().id > dropped.id
    again.close_sync()


def _restart(log: Log, path: Path, clean: bool) -> Log:
    if clean:
        log.close_sync()
        return open_log(path)
    copy = path / "copy"
    settle(log)
    os.system(f"cp -r {path} {path}.copy && mv {path}.copy {copy}")
    log.close_sync()
    return open_log(copy)


def test_a_clean_start_scans_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, durable_feed(log), 300 * KIB)
    log.close_sync()
    again = open_log(tmp_path)
    assert again.recovery.clean
    assert again.recovery.bytes == again.recovery.records == 0
    assert again.recovery.warnings == []
    again.close_sync()


def test_a_start_after_a_start_without_traffic_is_clean_and_adds_no_files(tmp_path: Path) -> None:
    for _ in range(3):
        log = open_log(tmp_path)
        assert log.recovery.clean
        log.close_sync()
    assert list((tmp_path / "shard-000" / "wal").iterdir()) == []


def test_an_atomic_unit_is_one_chain_of_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    feed = log.new_feed()
    before = append(log, [feed], b"before")
    with log.unit():
        first = append(log, [feed], b"in")
        log.tables.put("t", b"k", b"v")
        last = append(log, [feed], b"in too")
    log.flush()
    batches = [log.cache.get(lsn) for lsn in (before, first, last)]
    assert [batch.attrs & MORE for batch in batches if batch is not None] == [0, MORE, 0]
    log.close_sync()


@pytest.mark.parametrize(
    ("others", "attrs"),
    [([], 2 | 4), ([(AMQP091, 5)], 2), ([(MQTT5, 0)], 4), ([(MQTT5, 0), (AMQP091, 5)], 0)],
)
def test_a_batch_says_what_all_of_its_records_are(
    tmp_path: Path, others: list[tuple[int, int]], attrs: int
) -> None:
    log = open_log(tmp_path)
    target = Target([log.new_feed()])
    for enc, ttl_ms in [(AMQP091, 0), *others, (AMQP091, 0)]:
        log.appender.append_record(0, target, b"", b"", b"body", enc=enc, ttl_ms=ttl_ms)
    [*_, batch] = log.appender.take_closed()
    assert batch.attrs == attrs
    log.close_sync()


def test_a_unit_whose_last_batch_was_closed_by_its_size_has_an_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    feed = log.new_feed()
    with log.unit():
        large = append(log, [feed], bytes(2 * KIB * KIB))
        log.appender.append_note()
    [*_, last] = log.appender.take_closed()
    assert not last.attrs & MORE
    assert last.base_lsn == large + 1
    log.close_sync()


def test_a_tick_may_not_end_inside_a_unit(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with log.unit(), pytest.raises(AssertionError, match="atomic unit"):
        log.flush()
    log.close_sync()


def test_records_larger_than_a_segment_get_a_larger_file(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    feed = durable_feed(log)
    body = os.urandom(3 * 64 * KIB)
    lsns = [append(log, [feed], body) for _ in range(3)]
    small = append(log, [feed], b"small")
    assert log.wait_synced(small)
    log.close_sync()
    again = open_log(tmp_path)
    for lsn in lsns:
        assert body_of(again, lsn) == body
    assert body_of(again, small) == b"small"
    again.close_sync()


def test_a_second_process_is_told_who_has_the_folder(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(StartError, match=rf"locked by another penstock \(pid {os.getpid()}\).*--data"):
        open_log(tmp_path)
    log.close_sync()
    open_log(tmp_path).close_sync()


def _set_version(path: Path, version: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[8:10] = version.to_bytes(2, "little")
    raw[84:88] = crc32c(raw[:84]).to_bytes(4, "little")
    path.write_bytes(raw)


def test_another_version_of_the_format_is_refused(tmp_path: Path) -> None:
    open_log(tmp_path).close_sync()
    _set_version(tmp_path / "shard-000" / "MANIFEST", 4)
    with pytest.raises(StartError, match="format version 4; this penstock knows versions 1 to 3"):
        open_log(tmp_path)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_of_version_1_is_read_and_gone_on_with(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path)
    lsns = fill(log, durable_feed(log), 200 * KIB)
    settle(log)
    log.close_sync()
    if not clean:
        (tmp_path / "CLEAN").unlink()
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "LOCK":
            _set_version(path, 1)
    log = open_log(tmp_path)
    (feed,) = log.feeds.values()
    assert len(feed) == len(lsns)
    lsns += fill(log, feed, 10 * KIB)
    settle(log)
    log.close_sync()
    log = open_log(tmp_path)
    assert len(log.feeds[feed.id]) == len(lsns)
    log.close_sync()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"cannot use the data folder .*file"):
        open_log(tmp_path / "file")


def test_feed_ids_are_never_used_twice(tmp_path: Path) -> None:
    seen: set[int] = set()
    for _ in range(3):
        log = open_log(tmp_path)
        ids = {log.new_feed().id for _ in range(5)}
        assert not ids & seen
        seen |= ids
        log.close_sync()


def test_results_of_threads_come_through_the_loop(tmp_path: Path) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        log = open_log(tmp_path)
        log.attach(loop.call_soon_threadsafe, loop)
        synced = loop.create_future()
        lsn = append(log, [log.new_feed()], b"x")
        log.when_synced(lsn, synced.set_result)
        log.flush()
        assert await asyncio.wait_for(synced, LIMIT_S)
        await log.close()

    asyncio.run(run())
    log = open_log(tmp_path)
    assert log.recovery.clean
    log.close_sync()


def test_the_time_of_a_tick_is_asked_once(tmp_path: Path) -> None:
    times = iter(range(1000, 2000))
    log = open_log(tmp_path, clock=lambda: next(times))
    feed = log.new_feed()
    lsns = [append(log, [feed], b"x") for _ in range(2)]
    now = log.now_ms()
    log.flush()
    later = append(log, [feed], b"y")
    log.flush()
    batch = log.cache.get(lsns[0])
    assert batch is not None and batch.base_ts == now
    after = log.cache.get(later)
    assert after is not None and after.base_ts > now
    log.close_sync()


def test_without_syncing_everything_written_counts_as_synced(tmp_path: Path) -> None:
    log = open_log(tmp_path, fsync="never")
    seen: list[bool] = []
    lsn = append(log, [log.new_feed()], b"x")
    log.when_synced(lsn, seen.append)
    log.flush()
    assert seen == [True]
    assert log.statistics()["syncs"] == 0
    log.close_sync()


def test_a_target_holds_each_feed_once(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    feed = log.new_feed()
    with pytest.raises(ValueError, match="once"):
        Target([feed, feed])
    log.close_sync()


def test_oversized_records_are_refused_and_harm_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    target = log.target([log.new_feed()], False)
    with pytest.raises(ValueError, match="key block of 65536"):
        log.appender.append_record(0, target, bytes(65536))
    lsn = log.appender.append_record(0, target, bytes(65535), b"", b"fits")
    log.flush()
    assert body_of(log, lsn) == b"fits"
    log.close_sync()


def test_a_sync_note_follows_when_the_log_is_idle(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lsn = append(log, [durable_feed(log)], b"x")
    log.wait_synced(lsn)
    before = log.appender.appended_bytes
    log.tend(1 << 60)
    assert log.appender.appended_bytes == before + 96
    settle(log)
    log.tend(1 << 60)
    assert log.appender.appended_bytes == before + 96
    assert log.appender.next_lsn == lsn + 1
    log.close_sync()


class _Watched(Unsynced):
    """Knows which segments were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def fsync(self, fd: int) -> None:
        self.synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)


def test_a_start_syncs_what_is_not_known_to_be_durable_and_no_more(tmp_path: Path) -> None:
    log = open_log(tmp_path / "data", checkpoint_bytes=1 << 30)
    feed = durable_feed(log)
    fill(log, feed, 300 * KIB)
    settle(log)
    log.tend(1 << 60)  # notes in the last file what is synced, however late the disk was with it
    append(log, [feed], b"behind the note")
    settle(log)  # all of it is in the file that is copied
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    numbers = [segment.number for segment in log._segments.live]
    last = log.written_lsn
    log.close_sync()
    files = _Watched()
    again = open_log(tmp_path / "killed", files, checkpoint_bytes=1 << 30)
    assert again.written_lsn >= last and len(numbers) > 4
    found = {int(name[:10]) for name in files.synced if name.endswith(".wal")} & set(numbers)
    assert numbers[-1] in found and found <= set(numbers[-2:])
    again.close_sync()
