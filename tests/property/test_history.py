"""A search finds exactly what a look at each record finds; a damaged file is told from a good one."""

from __future__ import annotations

import os
import tempfile
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StartError
from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.errors import Damage
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.layout import Folder
from penstock.log_core.history.history import read_history, read_history_entries
from penstock.log_core.log import Log
from penstock.log_core.state.tables import FEED_TABLE, feed_key
from penstock.log_tools.inspection import verify
from tests.support.logs import FULL, Unsynced, open_log, settle
from tests.support.pasts import Wanted, search

KEYS = [b"", b"a", b"b", b"ab", b"topic/1", b"topic/2", bytes(300)]


def positions(log: Log, feed: Feed | None) -> list[int]:
    got: list[int] = []
    while feed is not None and len(got) < len(feed):
        index = feed.start + len(got)
        if not feed.is_resident(index):
            assert log.load_feed_now(feed, index)
        got += feed.positions(index, len(feed))
    return got


@given(
    ticks=st.lists(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 255)), max_size=60), max_size=12),
    yes=st.sets(st.sampled_from(KEYS)),
    ask=st.sets(st.sampled_from(KEYS)),
    cut=st.tuples(st.integers(0, 500), st.integers(0, 500)),
)
def test_a_search_finds_what_a_look_at_each_record_finds(
    ticks: list[list[tuple[bytes, int]]], yes: set[bytes], ask: set[bytes], cut: tuple[int, int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder), segment_bytes=16384, traffic_retention_bytes=1 << 30)
        nobody = log.target([], False)
        published = []
        for tick in ticks:
            for key, body in tick:
                lsn = log.appender.append_record(0, nobody, key, b"pp", bytes((body,)) * 99, 0)
                published.append((lsn, key, body))
            log.tables.put("t", b"k", b"v")
            log.flush()
        first, last = min(cut), min(max(cut), log.appender.next_lsn)
        wanted = Wanted(yes, ask)
        feed = search(log, first, last, wanted)
        assert positions(log, feed) == [
            lsn
            for lsn, key, body in published
            if first <= lsn < last and (body % 2 == 0 if key in ask else key in yes)
        ]
        assert len(wanted.asked) == len(set(wanted.asked)), "each key is decided once"
        log.close_sync()


def test_a_feed_of_the_past_survives_restarts_and_a_forgotten_one_leaves_no_file(tmp_path: Path) -> None:
    log = open_log(tmp_path, traffic_retention_bytes=1 << 30)
    lsns = [log.appender.append_record(0, log.target([], False), b"k", body=bytes(500)) for _ in range(500)]
    log.flush()
    kept = search(log, 1, log.appender.next_lsn, Wanted({b"k"}, set()))
    lost = search(log, 1, log.appender.next_lsn, Wanted({b"k"}, set()))
    assert kept is not None and lost is not None
    log.tables.put(FEED_TABLE, feed_key(kept.id), b"")
    log.flush()
    settle(log)
    log.close_sync()
    log = open_log(tmp_path, traffic_retention_bytes=1 << 30)
    assert positions(log, log.feed(kept.id)) == lsns
    assert [path.stem for path in (tmp_path / "shard-000/history").iterdir()] == [f"{kept.id:08x}"]
    log.drop_feed(log.feed(kept.id))
    log.close_sync()
    assert not list((tmp_path / "shard-000/history").iterdir())


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, int]:
    folder = tmp_path_factory.mktemp("history")
    log = open_log(folder, traffic_retention_bytes=1 << 30)
    target = log.target([], False)
    for i in range(40):
        log.appender.append_record(0, target, b"k", body=bytes((i,)), flags=PERSISTENT)
    log.flush()
    feed = search(log, 1, log.appender.next_lsn, Wanted({b"k"}, set()))
    assert feed is not None
    path = folder / f"shard-000/history/{feed.id:08x}.his"
    base = feed.base_of(feed.start)
    log.close_sync()
    copy = folder / "copy.his"
    copy.write_bytes(path.read_bytes() if path.exists() else b"")
    return copy, copy.read_bytes(), base


def test_every_flipped_byte_of_it_is_found(history: tuple[Path, bytes, int]) -> None:
    path, good, base = history
    assert len(good) > 96
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises((Damage, StartError)):  # another version is told as such
            read_history(path)
            read_history_entries(path, base)
    path.write_bytes(good)


class FullForHistories(Unsynced):
    """No room for the file of a search."""

    def write_all(self, fd: int, data: bytes, offset: int) -> None:
        if ".his" in os.readlink(f"/proc/self/fd/{fd}"):
            raise FULL
        super().write_all(fd, data, offset)


def test_a_search_that_finds_no_room_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, FullForHistories(), traffic_retention_bytes=1 << 30)
    log.appender.append_record(0, log.target([], False), b"k", body=b"x")
    log.flush()
    found: list[tuple[Feed | None, bool]] = []
    last = log.appender.next_lsn
    log.search(1, Wanted({b"k"}, set()), lambda *told: found.append(told), last=last, durable=True)
    log.flush()
    while not found:
        log._inbox.wait()
    assert found == [(None, False)]
    assert not list((tmp_path / "shard-000/history").iterdir())
    log.close_sync()


def test_verify_finds_a_damaged_one(tmp_path: Path) -> None:
    log = open_log(tmp_path, traffic_retention_bytes=1 << 30)
    log.appender.append_record(0, log.target([], False), b"k", body=b"x")
    log.flush()
    feed = search(log, 1, log.appender.next_lsn, Wanted({b"k"}, set()))
    assert feed is not None
    log.tables.put(FEED_TABLE, feed_key(feed.id), b"")
    log.close_sync()
    assert verify(Folder(tmp_path), StringIO()) == 0
    path = tmp_path / f"shard-000/history/{feed.id:08x}.his"
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1
    path.write_bytes(damaged)
    told = StringIO()
    assert verify(Folder(tmp_path), told) == 1
    assert str(path) in told.getvalue()


def test_every_cut_of_it_is_found(history: tuple[Path, bytes, int]) -> None:
    path, good, base = history
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(Damage):
            read_history_entries(path, base)
    path.write_bytes(good)


def test_records_of_another_partition_are_passed_over(tmp_path: Path) -> None:
    log = open_log(tmp_path, traffic_retention_bytes=1 << 30)
    nobody = log.target([], False)
    mine = [log.appender.append_record(lp, nobody, b"k", body=b"x") for lp in (0, 1, 0, 2, 1)][::2][:2]
    log.flush()
    wanted = Wanted({b"k"}, set())
    feed = search(log, 1, log.appender.next_lsn, wanted)
    assert feed is not None
    assert positions(log, feed) == mine
    log.close_sync()
