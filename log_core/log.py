"""The log of one shard, as the layers above see it.

Owns the data folder while it is open, and puts the parts together: the Appender takes the records of a
tick, `flush` writes them with one call and moves the written end, the committer syncs behind it, the tail
cache keeps what was written, upkeep works on closed segments, the reader brings back what left memory.

Everything here runs on the loop thread. Threads hand their results over through `_post`; without a loop
(`attach` was not called: tests, tools) these are taken in by `flush` and `wait_synced`.

Knows no queue and no protocol. What a queue still needs is asked through `low_water`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from penstock.errors import StartError
from penstock.log_core._batch import Appender, Batch, Target
from penstock.log_core._feed import Feed, drop_all_before
from penstock.log_core._tail import Cache
from penstock.log_core.checkpoint import Checkpoint
from penstock.log_core.committer import Committer, Waiters
from penstock.log_core.errors import Damage, LogFailed
from penstock.log_core.feed_memory import FeedMemory
from penstock.log_core.files import Files
from penstock.log_core.layout import Folder
from penstock.log_core.lock import Lock
from penstock.log_core.manifest import CleanMark
from penstock.log_core.options import LogOptions
from penstock.log_core.pressure import Pressure
from penstock.log_core.reader import Reader
from penstock.log_core.recovery import Recovered, Recovery, recover
from penstock.log_core.segment import Segment, Segments
from penstock.log_core.tables import Tables
from penstock.log_core.upkeep import Upkeep, deletable
from penstock.log_core.wal import Wal

__all__ = ["Log", "Recovery"]

_LOG: Final = logging.getLogger("penstock.log")

_OWN_TABLE: Final = "log"
_FEED_BOUND: Final = b"feed_ids"
_FEED_BLOCK: Final = 1024
_WATCH_S: Final = 1.0
_AGE_MIN_S: Final = 600.0  # segments are not closed by age more often than this

Callback = Callable[[bool], object]


class Log:
    """Made by `Log.open`. See the module text for threads."""

    appender: Appender
    """The open batch; front ends append to it in C."""
    cache: Cache
    """Batches in memory."""
    feeds: dict[int, Feed]
    """All feeds by id: those with a row in table `feed` after a start, and new ones."""
    tables: Tables
    """Durable state."""
    recovery: Recovery
    """What the start found."""
    written_lsn: int
    """The last LSN that survives a kill -9."""
    synced_lsn: int
    """The last LSN that survives a power cut."""
    failed: Exception | None
    """Set once a write or sync failed; nothing is accepted or confirmed any more."""
    low_water: Callable[[], int]
    """The lowest LSN that any queue still needs (2**64 - 1: none); until it is set, everything is kept."""

    def __init__(
        self, folder: Folder, options: LogOptions, clock: Callable[[], float], files: Files, lock: Lock
    ) -> None:
        """For `open` only."""
        self.options = options
        self._files = files
        self._folder = folder
        self._lock = lock
        self._clock = clock
        self.appender = Appender(lambda: int(clock() * 1000))
        self.cache = Cache(options.tail_cache_bytes, options.read_cache_bytes)
        self.tables = Tables(self.appender)
        self.low_water = lambda: 0
        self.failed = None
        self._pressure = Pressure()
        self._inbox: queue.SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = queue.SimpleQueue()
        self._call_soon: Callable[..., object] | None = None
        self._written = Waiters()
        self._synced = Waiters()
        self._syncs = options.fsync == "group"
        self._segments = Segments(folder)
        self._feed_memory = FeedMemory(options.feed_cache_bytes)
        self._reader = Reader(self._segments, folder, self.cache, self._post)
        self._closing: list[tuple[Segment, int]] = []  # rolled, with descriptors, until they are synced
        self._unfinished: list[Segment] = []  # synced, until their index files are made
        self._written_bytes = 0
        self._synced_bytes = 0
        self._noted_lsn = 0  # the synced LSN that the last batch on disk carries
        self._checkpoint_mark = 0  # appended bytes at the last checkpoint
        self._checkpointing = False
        self._deleting = False
        self._closed = False

    # Opening and closing

    @classmethod
    def open(
        cls,
        data_dir: Path,
        options: LogOptions,
        *,
        clock: Callable[[], float] = time.time,
        files: Files | None = None,
    ) -> Log:
        """Take the folder, recover what it holds, and be ready to append.

        Args:
            data_dir: Made when it does not exist.
            options: What to keep and when to sync.
            clock: Seconds since the epoch.
            files: The operating system; a test's own to make it fail.

        Raises:
            StartError: The folder is locked, unusable, damaged or of another version; with the remedy.

        """
        folder = Folder(data_dir)
        files = files or Files()
        try:
            folder.make()
            lock = Lock(folder.lock)
            try:
                log = cls(folder, options, clock, files, lock)
                log._start()
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise StartError.data_unusable(str(data_dir), error) from error
        return log

    def _start(self) -> None:
        self.feeds = {}
        found = recover(
            self._folder,
            self._files,
            self.tables,
            lambda feed: Feed(feed, self),
            salvage=self.options.salvage,
            sync=self._syncs,
        )
        self.feeds = found.feeds
        self.recovery = found.report
        manifest = found.manifest
        manifest.epoch += 1
        manifest.write(self._files, self._folder.manifest)
        self._files.reached("start.epoch")
        self._files.unlink(self._folder.clean)
        self._files.sync_folder(self._folder.root)
        self._files.reached("start.unclean")
        self._manifest = manifest
        self._checkpoints = manifest.checkpoints
        self._upkeep = Upkeep(self._files, self._folder, manifest)
        self._wal = Wal(
            self._files,
            self._folder,
            self._upkeep.pool,
            log_id=manifest.log_id,
            epoch=manifest.epoch,
            segment_bytes=self.options.segment_bytes,
            now_ms=lambda: int(self._clock() * 1000),
        )
        self._begin(found)
        self._next_feed = int.from_bytes(self.tables.get(_OWN_TABLE, _FEED_BOUND) or b"\1", "little")
        self._committer = Committer(self._files, lambda *result: self._post(self._on_synced, *result))
        self._stop_watching = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="penstock-watcher", daemon=True)
        self._watcher.start()

    def _begin(self, found: Recovered) -> None:
        segments = found.segments
        last_lsn = segments[-1].next_lsn - 1 if segments else found.report.last_lsn
        self._segments.live = segments
        self.appender.start(found.next_lsn, found.manifest.epoch)
        segments.append(self._wal.begin(found.number, found.next_lsn, last_lsn))
        self.written_lsn = self.synced_lsn = self._noted_lsn = self.appender.synced_lsn = found.next_lsn - 1
        for segment in segments[:-1]:
            if not segment.indexed:
                self._finish(segment)

    def attach(self, call_soon_threadsafe: Callable[..., object]) -> None:
        """Say how the log's threads reach the loop; from now on results come without `flush`."""
        self._call_soon = call_soon_threadsafe
        call_soon_threadsafe(self._drain)

    async def close(self) -> None:
        """Sync everything, write a checkpoint and the mark of a clean stop, let go of the folder.

        The caller has stopped everything that appends. Waiting callbacks are called before it returns.
        """
        self.flush()
        if self.failed is None and self._call_soon is not None:
            done = asyncio.get_running_loop().create_future()
            self.when_synced(self.written_lsn, done.set_result)
            await done
        self._call_soon = None
        await asyncio.to_thread(self._shut)

    def close_sync(self) -> None:
        """`close` for when no loop runs."""
        self._call_soon = None
        self.flush()
        self._shut()

    def _shut(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_watching.set()
        self._watcher.join()
        if self.failed is None:
            self.wait_synced(self.written_lsn)
        self._committer.stop()
        self._reader.close()
        self._drain()
        self._wal.close()
        self._upkeep.pool.shutdown(wait=True)
        self._drain()
        for _, fd in self._closing:
            os.close(fd)
        os.close(self._wal.fd)
        if self.failed is None and not self._wal.pending:
            with suppress(OSError):
                self._seal()
        self._lock.release()

    def _seal(self) -> None:
        """Leave the folder so that the next start need not scan anything."""
        last = self._segments.live.pop()
        last.feeds = self.appender.roll()
        if last.next_lsn == last.base_lsn:
            self._files.unlink(last.path)
        else:
            self._segments.live.append(last)
        try:
            for segment in self._segments.live:
                if not segment.indexed:
                    self._upkeep.finish(segment, needed=True)
            number = self._segments.live[-1].number if self._segments.live else 0
            end = self._segments.live[-1].end if number else 0
            self._upkeep.checkpoint(Checkpoint(self.written_lsn, number), self.tables.snapshot())
            self._files.reached("stop.checkpoint")
            mark = CleanMark(self._manifest.log_id, self._manifest.epoch, number, self.written_lsn, end)
            mark.write(self._files, self._folder.clean)
        except OSError as error:
            _LOG.error("the log is safe, but could not be closed cleanly: %s", error)
            raise

    # Appending

    def feed(self, feed_id: int) -> Feed:
        """The feed of that id. Raises KeyError."""
        return self.feeds[feed_id]

    def new_feed(self) -> Feed:
        """A feed with an id that no feed ever had.

        It survives a restart only when the caller puts a row `tables.feed_key(feed.id)` into table `feed`.
        """
        bound = int.from_bytes(self.tables.get(_OWN_TABLE, _FEED_BOUND) or b"\1", "little")
        if self._next_feed >= bound:
            bound = self._next_feed + _FEED_BLOCK
            self.tables.put(_OWN_TABLE, _FEED_BOUND, bound.to_bytes(8, "little"))
        feed = Feed(self._next_feed, self)
        self._next_feed += 1
        self.feeds[feed.id] = feed
        return feed

    def drop_feed(self, feed: Feed) -> None:
        """Forget a feed; targets that still have it may go on pushing to it in vain."""
        feed.dropped = True
        self.feeds.pop(feed.id, None)

    def target(self, feeds: Sequence[Feed], durable: bool) -> Target:
        """Where the records of a route go."""
        return Target(feeds, durable)

    @contextmanager
    def unit(self) -> Iterator[None]:
        """What is appended and put inside is one atomic unit: after a crash all of it is there or none."""
        self.appender.begin_unit()
        try:
            yield
        finally:
            self.appender.end_unit()

    def now_ms(self) -> int:
        """The time of this tick, ms since the epoch."""
        return self.appender.now_ms()

    def take_dirty(self) -> list[Feed]:
        """The feeds pushed to since the last call."""
        return self.appender.take_dirty()

    def flush(self) -> None:
        """End the tick: write what was appended with one call, then call back who waits for that."""
        if self._call_soon is None:
            self._drain()
        batches = self.appender.take_closed()
        if self.failed is not None:
            self._written.fail()
            self._synced.fail()
            return
        if batches or self._wal.pending:
            self._write(batches)
        if self._written:
            self._written.reached(self.written_lsn)
        if self._synced:
            self._synced.reached(self.synced_lsn)
            if self._synced:
                self._sync()

    def _write(self, batches: list[Batch]) -> None:
        wal = self._wal
        try:
            written = wal.write(batches)
        except OSError as error:
            self._fail("a write failed", error)
            return
        self._pressure.set("the disk is full", not written)
        if not written:
            return
        self._noted_lsn = self.appender.synced_lsn
        self.cache.add_written(written)
        self.written_lsn = self.appender.next_lsn - 1
        self._written_bytes = self.appender.appended_bytes
        if not self._syncs:
            self.synced_lsn = self.appender.synced_lsn = self.written_lsn
            self._synced_bytes = self._written_bytes
        elif self.backlog_bytes > self.options.max_unsynced_bytes // 8:
            self._sync()
            if self.backlog_bytes > self.options.max_unsynced_bytes:
                self._pressure.set("too much waits for the disk", True)
        if wal.wants_roll:
            self._roll()
        if self.appender.appended_bytes - self._checkpoint_mark >= self.options.checkpoint_bytes:
            self._begin_checkpoint()

    # Waiting

    def when_written(self, lsn: int, callback: Callback) -> None:
        """Call `callback(ok)` by the next flush that finds `lsn` written; False = the log failed."""
        self._written.add(lsn, callback)
        if self.failed is not None or lsn <= self.written_lsn:
            self._post(self._deliver)

    def when_synced(self, lsn: int, callback: Callback) -> None:
        """Call `callback(ok)` when `lsn` is durable, in the order of LSNs; False = the log failed."""
        self._synced.add(lsn, callback)
        if self.failed is not None or lsn <= self.synced_lsn:
            self._post(self._deliver)
        elif lsn <= self.written_lsn:
            self._sync()

    def _deliver(self) -> None:
        if self.failed is not None:
            self._written.fail()
            self._synced.fail()
        self._written.reached(self.written_lsn)
        self._synced.reached(self.synced_lsn)

    def wait_synced(self, lsn: int) -> bool:
        """Flush and block until `lsn` is durable, without a loop (tests, tools). False = the log failed."""
        done: list[bool] = []
        self.when_synced(lsn, done.append)
        self.flush()
        while not done:
            function, arguments = self._inbox.get()
            function(*arguments)
        return done[0]

    @property
    def backlog_bytes(self) -> int:
        """Bytes appended and not yet durable."""
        return self.appender.appended_bytes - self._synced_bytes

    @property
    def on_pressure(self) -> list[Callable[[bool], object]]:
        """Called with True when publishers must stop being read, with False when they may go on."""
        return self._pressure.callbacks

    @property
    def paused(self) -> bool:
        """Whether publishers must not be read now."""
        return bool(self._pressure.reasons)

    def _sync(self) -> None:
        """Have everything written made durable."""
        if self._syncs and self._synced_bytes < self._written_bytes:
            descriptors = (*(fd for _, fd in self._closing), self._wal.fd)
            self._committer.want(descriptors, self.written_lsn, self._written_bytes)

    def _on_synced(self, lsn: int, mark: int, error: OSError | None) -> None:
        if self.failed is not None:
            return
        if error is not None:
            self._fail("a sync failed", error)
            return
        self._synced_bytes = max(self._synced_bytes, mark)
        if lsn > self.synced_lsn:
            self.synced_lsn = self.appender.synced_lsn = lsn
        while self._closing and self._closing[0][0].next_lsn - 1 <= lsn:
            segment, fd = self._closing.pop(0)
            self._committer.release(fd)
            self._finish(segment)
        self._synced.reached(lsn)
        if self._synced and self._synced.first_lsn <= self.written_lsn:
            self._sync()
        if self.backlog_bytes <= self.options.max_unsynced_bytes // 2:
            self._pressure.set("too much waits for the disk", False)

    def _fail(self, what: str, error: OSError) -> None:
        self.failed = self.appender.failure = LogFailed(what, error)
        _LOG.critical("%s", self.failed)
        self._written.fail()
        self._synced.fail()
        self._pressure.set("the log stopped", True)

    # Reading

    def load(self, lsn: int, callback: Callable[[], object]) -> None:
        """Bring the batch with `lsn` into the cache off the loop, then call back: `cache.find` has it then.

        What can no longer be read comes as a batch of kind LOST: settle and skip its records.
        """
        if lsn > self.written_lsn:
            self.when_written(lsn, lambda ok: callback())
            return
        segment = self._segments.find(lsn)
        self._reader.load(segment or self._segments.live[-1], lsn, callback)

    def load_feed(self, feed: Feed, index: int, callback: Callable[[], object]) -> None:
        """Bring the entries around `index` of a feed into memory off the loop, then call back."""
        base = feed.base_of(index)
        segment = self._segments.at_base(base)
        if segment is None or feed.is_resident(index):
            self._post(callback)
            return

        def loaded(entries: bytes) -> None:
            if entries:
                self._feed_memory.reloaded(feed, base, feed.restore_chunk(base, entries))
            else:
                feed.drop_before(base + 1)
            callback()

        self._reader.load_entries(segment, feed, loaded)

    def load_feed_now(self, feed: Feed, index: int) -> bool:
        """`load_feed` at once, on the calling thread: for a few chunks. False: it cannot be read."""
        base = feed.base_of(index)
        segment = self._segments.at_base(base)
        if segment is None:
            return False
        try:
            entries = self._reader.read_entries(segment, feed)
        except (OSError, Damage) as error:
            _LOG.error("%s: the entries of feed %d cannot be read: %s", segment.path, feed.id, error)
            return False
        self._feed_memory.reloaded(feed, base, feed.restore_chunk(base, entries))
        return True

    def load_chunk(self, feed: Feed, base: int) -> bytes:
        """The entries of a feed in the segment at `base`, read at once; for `Feed.index_of`."""
        segment = self._segments.at_base(base)
        if segment is None:
            raise LookupError(f"no segment begins with LSN {base}")
        return self._reader.read_entries(segment, feed)

    def position_for_time(self, time_ms: int) -> int:
        """The LSN of the first record kept that is not older than `time_ms`; the next LSN when there is none.

        Reads up to about 1 MiB from disk at once: call it off the loop when that matters.
        """
        for segment in list(self._segments.live):
            if segment.max_ts >= time_ms:
                lsn = self._reader.lsn_at_time(segment, time_ms)
                if lsn is not None:
                    return lsn
        return self.appender.next_lsn

    def statistics(self) -> dict[str, int]:
        """Counters and levels, for metrics."""
        live = self._segments.live
        return {
            "written_lsn": self.written_lsn,
            "synced_lsn": self.synced_lsn,
            "appended_bytes": self.appender.appended_bytes,
            "backlog_bytes": self.backlog_bytes,
            "syncs": self._committer.syncs,
            "segments": len(live),
            "segment_bytes": sum(segment.end for segment in live),
            "first_lsn": live[0].base_lsn,
            "feeds": len(self.feeds),
            "feed_bytes": self._feed_memory.resident,
            "tail_bytes": self.cache.tail_bytes,
            "read_bytes": self.cache.read_bytes,
            "cold_reads": self._reader.reads,
        }

    # Upkeep

    def _post(self, function: Callable[..., object], *arguments: object) -> None:
        self._inbox.put((function, arguments))
        if self._call_soon is not None:
            with suppress(RuntimeError):  # the loop is closed: `flush` or `close_sync` takes it in
                self._call_soon(self._drain)

    def _drain(self) -> None:
        while True:
            try:
                function, arguments = self._inbox.get_nowait()
            except queue.Empty:
                return
            function(*arguments)

    def _background(
        self, work: Callable[[], object], done: Callable[[object, OSError | None], object]
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except OSError as error:
                self._post(done, None, error)
            else:
                self._post(done, result, None)

        self._upkeep.pool.submit(run)

    def _watch(self) -> None:
        while not self._stop_watching.wait(_WATCH_S):
            try:
                free = self._files.free_bytes(self._folder.root)
            except OSError as error:
                _LOG.warning("the free space of %s is unknown: %s", self._folder.root, error)
                free = self.options.min_free_bytes
            self._post(self.tend, free)

    def tend(self, free_bytes: int) -> None:
        """What is due each second; `free_bytes` is what the file system has left."""
        if self.failed is not None or self._closed:
            return
        self._pressure.set("the disk is nearly full", free_bytes < self.options.min_free_bytes)
        if self._wal.pending:
            self.flush()
        for segment in self._unfinished[:]:
            self._unfinished.remove(segment)
            self._finish(segment)
        if self.synced_lsn == self.written_lsn > self._noted_lsn and not self.appender.in_unit:
            self.appender.append_note()  # so that damage below the synced end can be told from a torn tail
            self.flush()
        self._sync()
        self._roll_by_age()
        while self._feed_memory.trim():
            pass
        self._delete_old()

    def _roll(self) -> None:
        fd = self._wal.fd
        try:
            old = self._wal.roll(self.appender.next_lsn)
        except OSError as error:
            self._fail("the next file of the log could not be made", error)
            return
        if old is None:
            return
        old.feeds = self.appender.roll()
        self._segments.live.append(self._wal.segment)
        if self._syncs:
            self._closing.append((old, fd))
            self._sync()
        else:
            os.close(fd)
            self._finish(old)

    def _roll_by_age(self) -> None:
        """Close a segment that little traffic keeps open past its retention; a checkpoint follows."""
        segment = self._wal.segment
        age_s = self._clock() - segment.min_ts / 1000
        if not segment.min_ts or age_s < max(self.options.retention_s, _AGE_MIN_S) or self.appender.in_unit:
            return
        self.flush()
        if self.failed is None and not self._wal.pending and segment is self._wal.segment:
            self._roll()
            self._begin_checkpoint()

    def _finish(self, segment: Segment) -> None:
        def done(nbytes: object, error: OSError | None) -> None:
            if error is not None:
                _LOG.warning("no index for %s yet: %s", segment.path, error)
                self._unfinished.append(segment)
                return
            assert isinstance(nbytes, int)
            segment.indexed = True
            segment.marks = None
            self._feed_memory.closed(segment, nbytes)
            self._feed_memory.trim()
            self._delete_old()

        needed = self.low_water() < segment.next_lsn
        self._background(lambda: self._upkeep.finish(segment, needed), done)

    def _begin_checkpoint(self) -> None:
        if self._checkpointing:
            return
        self._checkpointing = True
        self._checkpoint_mark = self.appender.appended_bytes
        where = Checkpoint(self.written_lsn, self._wal.segment.number)
        rows = self.tables.snapshot()

        def done(kept: object, error: OSError | None) -> None:
            self._checkpointing = False
            if error is not None:
                _LOG.warning("no checkpoint at LSN %d: %s", where.lsn, error)
                return
            assert isinstance(kept, list)
            self._checkpoints = kept
            self._delete_old()

        def synced(ok: bool) -> None:
            if ok:
                self._background(lambda: list(self._upkeep.checkpoint(where, rows)), done)

        self.when_synced(where.lsn, synced)

    def _delete_old(self) -> None:
        """Delete what nobody needs; see `upkeep.deletable`."""
        if self._deleting or self._closed or len(self._checkpoints) < 2:
            return
        live = self._segments.live
        count = deletable(
            live,
            self.low_water(),
            self._checkpoints[-1],
            int(self._clock() * 1000),
            self.options.retention_bytes,
            self.options.retention_s,
        )
        if not count:
            return
        gone = live[:count]
        del live[:count]
        base = live[0].base_lsn
        for segment in gone:
            self._feed_memory.freed(drop_all_before(segment.feeds, base))
        self._deleting = True

        def done(_: object, error: OSError | None) -> None:
            self._deleting = False
            if error is not None:
                _LOG.warning("old files of the log are still there: %s", error)

        self._background(lambda: self._upkeep.delete(gone), done)
