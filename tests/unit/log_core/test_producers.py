"""Named producers: what comes again, what is missing, who is fenced; over restarts, crashes and idle days."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from penstock.log_core.errors import OutOfSequence, ProducerFenced
from penstock.log_core.log import Log
from penstock.log_core.producers import Producers
from tests.support.logs import Unsynced, append, files_made, open_log

DAY_S = 86_400


def send(log: Log, name: bytes, first: int, last: int, epoch: int | None = None) -> int:
    """Append a producer's messages as a front end does; the LSN of the answer."""
    producers = log.producers
    if epoch is None:
        known = producers.admit_sequence(name, last)
    else:
        known = producers.admit_batch(name, epoch, first, last)
    if not known:
        producers.open()
        known = append(log, [], b"x")
        producers.note(name, first, last, known, epoch=epoch)
        producers.close()
    log.flush()
    return known


def test_a_number_that_is_not_higher_is_a_duplicate_of_its_name(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first = send(log, b"a", 5, 5)
    assert send(log, b"a", 5, 5) == send(log, b"a", 3, 3) == first
    assert send(log, b"b", 5, 5) > first
    assert send(log, b"a", 100, 100) > first
    assert log.producers.duplicates == 2
    log.close_sync()


def test_a_label_comes_with_a_message_and_is_there_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    began = log.now_ms()
    send(log, b"a", 5, 5)
    seen = log.producers.seen(b"a")
    assert seen is not None and began <= seen[2] <= log.now_ms()
    assert seen == (b"", 0, seen[2], 5, 1)
    log.producers.open()
    log.producers.note(b"a", 6, 6, append(log, [], b"x"), label=b"of a")
    log.producers.close()
    log.producers.begin(b"b", label=b"of b")
    send(log, b"a", 9, 9)
    before = {name: log.producers.seen(name) for name in log.producers.names()}
    assert [(one.label, one.epoch, one.last) for one in before.values() if one] == [
        (b"of b", 1, None),
        (b"of a", 0, 9),
    ]
    log.close_sync()
    log = open_log(tmp_path)
    assert {name: log.producers.seen(name) for name in log.producers.names()} == before
    assert log.producers.seen(b"c") is None
    log.close_sync()


def test_a_row_without_a_label_is_read(tmp_path: Path) -> None:
    """As version 1 wrote it."""
    log = open_log(tmp_path)
    row = struct.pack("<BBIqB", 1, 0, 0, log.now_ms(), 1) + struct.pack("<QQQ", 5, 5, 1)
    log.tables.put("producer", b"a", row)
    log.close_sync()
    log = open_log(tmp_path)
    found = log.producers.seen(b"a")
    assert found is not None and (found.label, found.last, found.lsn) == (b"", 5, 1)
    log.close_sync()


def test_the_last_five_batches_are_known_and_each_answers_with_its_own_place(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lsns = [send(log, b"a", n, n + 9, epoch=1) for n in range(0, 70, 10)]
    assert [send(log, b"a", n, n + 9, epoch=1) for n in range(20, 70, 10)] == lsns[2:]
    for first, last in ((10, 19), (75, 79), (80, 89), (60, 65)):
        with pytest.raises(OutOfSequence, match=f"sent number {first} where 70 follows"):
            send(log, b"a", first, last, epoch=1)
    log.close_sync()


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    send(log, b"a", 0, 9, epoch=3)
    with pytest.raises(OutOfSequence, match="where 0 follows"):
        send(log, b"a", 10, 19, epoch=4)
    send(log, b"a", 0, 4, epoch=4)
    with pytest.raises(ProducerFenced, match="epoch 3 was replaced by one of epoch 4"):
        send(log, b"a", 10, 19, epoch=3)
    log.close_sync()


def test_numbers_of_batches_begin_again_behind_the_last_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    end = 2**31 - 1
    send(log, b"a", end - 9, end, epoch=0)
    assert send(log, b"a", 0, 9, epoch=0) != send(log, b"a", 10, 19, epoch=0)
    log.close_sync()


@pytest.mark.parametrize("clean", [True, False])
def test_they_are_known_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path / "a")
    first = send(log, b"a", 7, 7)
    batch = send(log, b"b", 0, 9, epoch=2)
    folder = tmp_path / "a"
    if clean:
        log.close_sync()
    else:
        log.wait_synced(log.written_lsn)
        folder = tmp_path / "b"
        files_made(log)
        shutil.copytree(tmp_path / "a", folder)
        log.close_sync()
    again = open_log(folder)
    assert send(again, b"a", 7, 7) == first
    assert send(again, b"b", 0, 9, epoch=2) == batch
    assert send(again, b"a", 8, 8) > first
    again.close_sync()


def test_a_record_and_its_number_are_there_together_or_not_at_all(tmp_path: Path) -> None:
    """The log is cut at every batch of the unit."""
    log = open_log(tmp_path / "a")
    send(log, b"a", 1, 1)
    segment = log._wal.segment
    start = segment.end
    log.producers.open()
    lsn = 0
    for number in (2, 3):
        lsn = append(log, [], b"x")
        log.producers.note(b"a", number, number, lsn)
    log.producers.close()
    log.flush()
    raw = segment.path.read_bytes()
    log.close_sync()
    cuts = [start]
    while cuts[-1] < segment.end:
        cuts.append(cuts[-1] + int.from_bytes(raw[cuts[-1] : cuts[-1] + 4], "little"))
    assert len(cuts) == 3
    for i, cut in enumerate(cuts):
        folder = tmp_path / f"cut{i}"
        (folder / "shard-000/wal").mkdir(parents=True)
        (folder / segment.path.relative_to(tmp_path / "a")).write_bytes(raw[:cut].ljust(len(raw), b"\0"))
        again = open_log(folder, files=Unsynced())
        whole = cut == cuts[-1]
        assert (again.recovery.records == 3, again.producers.admit_sequence(b"a", 3) == lsn) == (whole, whole)
        assert again.producers.admit_sequence(b"a", 1) != 0
        again.close_sync()


def test_a_producer_idle_for_a_day_is_forgotten(tmp_path: Path) -> None:
    now = [1_700_000_000.0]
    log = open_log(tmp_path, clock=lambda: now[0])
    send(log, b"old", 1, 1)
    now[0] += DAY_S / 2
    send(log, b"new", 1, 1)
    now[0] += DAY_S / 2 + 1
    log.tend(1 << 40)
    assert (log.producers.admit_sequence(b"old", 1), len(log.producers)) == (0, 1)
    assert log.producers.admit_sequence(b"new", 1) != 0
    log.flush()
    log.close_sync()
    assert list(open_log(tmp_path).tables.keys("producer")) == [b"new"]


def test_of_too_many_the_one_idle_longest_is_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.producers = Producers(log, most=2)
    for name in (b"a", b"b", b"a", b"c"):
        send(log, name, 9 if name == b"a" else 1, 9 if name == b"a" else 1)
    send(log, b"a", 10, 10)
    assert [log.producers.admit_sequence(name, 1) != 0 for name in (b"a", b"b", b"c")] == [True, False, True]
    log.close_sync()
