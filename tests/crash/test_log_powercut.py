"""A power cut loses any pages that were written and not synced. Confirmed syncs survive it.

The operating system below the log is a fake that remembers what each file held at its last sync. At the cut,
each page of 4 KiB that changed since then is kept or goes back, by the draw of the test, and so is each size
and each removal. The start must succeed without being told to salvage.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.files import Files
from penstock.log_core.log import Log
from tests.support.examples import histories
from tests.support.logs import KIB, append, batch_of, durable_feed, load_entries, open_log, settle

PAGE = 4096


class PoweredFiles(Files):
    """Keeps what each file of the segments' folder held when it was last synced."""

    def __init__(self, folder: Path) -> None:
        """The files in `folder` survived a power cut: they are durable."""
        super().__init__("")
        self.durable = {path: path.read_bytes() for path in folder.rglob("*.wal")}

    def _keep(self, fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.is_file():
            self.durable[path] = path.read_bytes()
        else:  # a folder: what was removed from it stays removed
            for gone in [kept for kept in list(self.durable) if kept.parent == path and not kept.exists()]:
                del self.durable[gone]

    def fdatasync(self, fd: int) -> None:
        self._keep(fd)

    def fsync(self, fd: int) -> None:
        self._keep(fd)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if source in self.durable:
            self.durable[target] = self.durable.pop(source)

    def lose(self, folder: Path, data: st.DataObject) -> None:
        """Give each page, size and name that is not durable its old content or leave it."""
        for path in sorted({*folder.rglob("*.wal"), *self.durable}):
            old = self.durable.get(path, b"")
            if not path.exists():
                if data.draw(st.booleans(), label=f"{path.name} is there again"):
                    path.write_bytes(old)
                continue
            new = path.read_bytes()
            if len(old) > len(new) and data.draw(st.booleans(), label=f"{path.name} has its old size"):
                new = new.ljust(len(old), b"\0")
            old = old.ljust(len(new), b"\0")
            raw = bytearray(new)
            for at in range(0, len(new), PAGE):
                page = slice(at, at + PAGE)
                if old[page] != new[page] and not data.draw(st.booleans(), label=f"{path.name} page {at}"):
                    raw[page] = old[page]
            path.write_bytes(raw)


def _all_positions(log: Log, feed: Feed) -> list[int]:
    for index in range(feed.start, feed.end):
        load_entries(log, feed, index)
    return feed.positions(feed.start, 1 << 20)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9000)),
        st.tuples(st.just("unit"), st.integers(1, 5000)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("sync"), st.just(0)),
        st.tuples(st.just("tend"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=histories(60), deadline=None)
@given(st.data(), st.lists(STEPS, min_size=1, max_size=3))
def test_synced_records_survive_any_loss_of_unsynced_pages(
    data: st.DataObject, lives: list[list[tuple[str, int]]]
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="penstock-power-"))
    log: Log | None = None
    try:
        safe: dict[int, int] = {}
        units: list[tuple[int, int]] = []
        for steps in lives:
            files = PoweredFiles(folder)
            log = open_log(folder, files, segment_bytes=32 * KIB, checkpoint_bytes=64 * KIB)
            assert log.recovery.holes == []
            feed = next(iter(log.feeds.values()), None) or durable_feed(log)
            kept = _all_positions(log, feed)
            assert set(safe) <= set(kept)
            for lsn in kept:
                batch = batch_of(log, lsn)
                record = batch.record(lsn - batch.base_lsn)
                assert record.body == bytes([len(record.body) % 251]) * len(record.body)
                assert safe.get(lsn, len(record.body)) == len(record.body)
            for first, last in units:
                assert (first in kept) == (last in kept)
            waiting: dict[int, int] = {}
            for what, size in steps:
                body = bytes([size % 251]) * size
                if what == "append":
                    waiting[append(log, [feed], body)] = size
                elif what == "unit":
                    with log.unit():
                        first = append(log, [feed], body)
                        log.tables.put("t", b"k", b"%d" % first)
                        last = append(log, [feed], body)
                    units.append((first, last))
                    waiting[first] = waiting[last] = size
                elif what == "flush":
                    log.flush()
                elif what == "sync":
                    assert log.wait_synced(log.appender.next_lsn - 1)
                    safe |= waiting
                else:
                    log.tend(1 << 60)
            log.flush()
            settled = data.draw(st.booleans(), label="background work done")
            if settled:
                settle(log)
                safe |= waiting
            _stop_threads(log)
            log = None
            files.lose(folder, data)
        log = open_log(folder)
        assert log.recovery.holes == []
        if log.feeds:
            assert set(safe) <= set(_all_positions(log, next(iter(log.feeds.values()))))
        else:
            assert not safe
    finally:
        if log is not None:
            _stop_threads(log)
        shutil.rmtree(folder)


def _stop_threads(log: Log) -> None:
    """End the log's threads and let go of the folder without a clean stop."""
    log._closed = True
    log._watcher.stop()
    log.committer.stop()
    log._reader.close()
    log._wal.close(None)
    log._upkeep.stop()
    for _, fd in log._closing:
        os.close(fd)
    os.close(log._wal.fd)
    log._lock.release()
