"""Logs for tests: small files, no waiting, an operating system that can be made to fail."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.log_core.batch._batch import PERSISTENT, Batch
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.files import Files
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.log_core.state.tables import FEED_TABLE, feed_key

KIB = 1024


def options(**changes: Any) -> LogOptions:
    """Options for a small log: segments of 64 KiB, checkpoints every 256 KiB, nothing kept for replay."""
    small: dict[str, Any] = {
        "segment_bytes": 64 * KIB,
        "tail_cache_bytes": 64 * KIB,
        "read_cache_bytes": 64 * KIB,
        "checkpoint_bytes": 256 * KIB,
        "traffic_retention_bytes": 0,
        "min_free_bytes": 0,
        "scrub_bytes_per_s": 0,
    }
    return LogOptions(**(small | changes))


class Unsynced(Files):
    """Syncs nothing: a test ends no power supply, and syncs are what makes tests slow."""

    def __init__(self) -> None:
        super().__init__("")
        self.syncs = 0

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1

    def fsync(self, fd: int) -> None:
        self.syncs += 1


def open_log(
    path: Path, files: Files | None = None, clock: Callable[[], float] = time.time, **changes: Any
) -> Log:
    """A log with those options."""
    return Log.open(path, options(**changes), clock=clock, files=files or Unsynced())


def durable_feed(log: Log) -> Feed:
    """A new feed that survives a restart."""
    feed = log.new_feed()
    log.tables.put(FEED_TABLE, feed_key(feed.id), b"")
    return feed


def append(log: Log, feeds: list[Feed], body: bytes, flags: int = PERSISTENT) -> int:
    """One record."""
    return log.appender.append_record(0, log.target(feeds, True), b"key", b"props", body, flags)


def fill(log: Log, feed: Feed, nbytes: int, body: bytes = bytes(400)) -> list[int]:
    """Append and flush, ten records per tick, until `nbytes` more are in the log; their LSNs."""
    end = log.appender.appended_bytes + nbytes
    lsns = []
    while log.appender.appended_bytes < end:
        lsns += [append(log, [feed], body) for _ in range(10)]
        log.flush()
    return lsns


def files_made(log: Log) -> None:
    """Wait until no file of the log is being made: a copy of its folder is then of one moment."""
    with suppress(OSError):
        log._wal.prepared()


def settle(log: Log) -> None:
    """Wait until everything is synced, and the work on closed segments and on the next one is done."""
    log.wait_synced(log.written_lsn)
    files_made(log)
    log._upkeep.pool.submit(lambda: None).result()
    log.flush()
    log._upkeep.pool.submit(lambda: None).result()
    log.flush()


@contextmanager
def held_readers(log: Log) -> Iterator[None]:
    """No reader thread gets on inside: as if the disk did not answer."""
    held, there = threading.Event(), threading.Barrier(3)

    def hold() -> None:
        there.wait(60)
        held.wait()

    for _ in range(2):
        log.reader._pool.submit(hold)
    try:
        there.wait(60)
        yield
    finally:
        held.set()


def keep_house(log: Log) -> None:
    """Let the log do what is due each second, and what it began; until nothing but retention and needs keep a
    segment: both checkpoints lie behind all that is written, and how quick the disk was does not matter.
    """
    for _ in range(2):
        log.tables.put("test", b"house", b"")  # two checkpoints of the same position are one
        settle(log)
        log._housekeeping.checkpoint()
        settle(log)
    log.tend(1 << 60)
    settle(log)


def body_of(log: Log, lsn: int) -> bytes:
    """The body of a record, from memory or from disk."""
    batch = batch_of(log, lsn)
    return batch.record(lsn - batch.base_lsn).body


def batch_of(log: Log, lsn: int) -> Batch:
    """The batch that holds `lsn`, from memory or from disk."""
    batch = log.cache.get(lsn)
    if batch is None:
        done: list[bool] = []
        log.load(lsn, lambda: done.append(True))
        wait(log, lambda: bool(done))
        batch = log.cache.get(lsn)
    assert batch is not None
    return batch


def load_entries(log: Log, feed: Feed, index: int) -> None:
    """Have entry `index` of a feed in memory."""
    if not feed.is_resident(index):
        done: list[bool] = []
        log.load_feed(feed, index, lambda: done.append(True))
        wait(log, lambda: bool(done))


def wait(log: Log, condition: Callable[[], bool]) -> None:
    """Take in results of the log's threads until `condition` holds."""
    while not condition():
        log._inbox.wait(120)


class FailingFiles(Unsynced):
    """Fails on demand: set the attribute, and the next call of that kind raises it."""

    def __init__(self) -> None:
        super().__init__()
        self.write_error: OSError | None = None
        self.write_most = 1 << 60
        """Bytes that a write takes before `write_error`."""
        self.sync_error: OSError | None = None
        self.create_error: OSError | None = None
        self.allocate_most = 1 << 60
        """The largest file for which there is room."""
        self.free = 1 << 60

    def write_batches(self, fd: int, batches: list[Batch], offset: int, skip: int = 0) -> int:
        if self.write_error is None:
            return super().write_batches(fd, batches, offset, skip)
        if self.write_most == 0:
            raise self.write_error
        raw = b"".join(bytes(batch) for batch in batches)[skip:][: self.write_most]
        self.write_most -= len(raw)
        return os.pwrite(fd, raw, offset)

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        if self.sync_error is not None:
            raise self.sync_error

    def create(self, path: Path) -> int:
        if self.create_error is not None:
            raise self.create_error
        return super().create(path)

    def allocate(self, fd: int, size: int) -> None:
        if size > self.allocate_most:
            raise FULL
        super().allocate(fd, size)

    def free_bytes(self, folder: Path) -> int:
        return self.free


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))
