"""The log of one shard, as the layers above see it.

Owns the data folder while it is open, and connects the parts. The Appender takes the records of a tick.
`flush` writes them with one call and moves the written end. The committer syncs behind it. The tail cache
keeps written batches. Upkeep works on closed segments, and the reader brings back data that left memory.

Everything here runs on the loop thread. Threads hand their results over through the mailbox. Without a
loop (`attach` was not called: tests, tools) `flush` and `wait_synced` take them in, and the owner of the
log calls `tend`.

Knows no queue and no protocol. It asks `low_water` for what queues still need. Its base class, in
`stored_log`, reads and keeps written data.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from penstock.errors import StartError
from penstock.log_core.batch._appender import Appender, Target
from penstock.log_core.delayed.delays import Delays
from penstock.log_core.errors import LogFailed
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.feeds.feeds import Feeds
from penstock.log_core.files.files import Files
from penstock.log_core.files.free_space import Watcher
from penstock.log_core.files.layout import Folder
from penstock.log_core.files.lock import Lock
from penstock.log_core.files.segment_folders import SegmentFolders
from penstock.log_core.history.content_search import ContentSearches
from penstock.log_core.history.histories import Histories
from penstock.log_core.maintenance._seal import Needs
from penstock.log_core.maintenance.feed_retention import RetentionFeeds
from penstock.log_core.maintenance.housekeeping import Housekeeping
from penstock.log_core.maintenance.leases import Leases
from penstock.log_core.maintenance.retention import Retention
from penstock.log_core.maintenance.scrub import Scrub
from penstock.log_core.maintenance.upkeep import Upkeep
from penstock.log_core.options import LogOptions
from penstock.log_core.producers import Producers
from penstock.log_core.reading._tail import Cache
from penstock.log_core.reading.raw import RawFiles
from penstock.log_core.reading.reader import Reader
from penstock.log_core.recovery.recovery import Recovered, Recovery, recover
from penstock.log_core.segments.damage import Damages
from penstock.log_core.segments.segment import OWN, Segment, Segments
from penstock.log_core.state.tables import Tables
from penstock.log_core.stored_log import StoredLog
from penstock.log_core.threads.callbacks import tell_all
from penstock.log_core.threads.mailbox import Mailbox
from penstock.log_core.wal._committer import Committer
from penstock.log_core.wal._unwritten import Unwritten
from penstock.log_core.wal.backpressure import Backpressure
from penstock.log_core.wal.committer_protocol import CommitterProtocol
from penstock.log_core.wal.wal import Wal

__all__ = ["Log", "Recovery"]

_LOG: Final = logging.getLogger("penstock.log")

_ROOM_SEGMENTS: Final = 4
"""Room for so many is kept free besides the least free space, at the cost of old traffic: publishers stop
only when what is needed fills the disk."""
_AGE_MIN_S: Final = 600.0  # segments are not closed by age more often than this

Callback = Callable[[bool], object]
MakeCommitter = Callable[[Files, Callable[[int, int, OSError | None], object]], CommitterProtocol]


class _Unit:
    """Of a log; it may be entered within itself. A generator would cost each connect more."""

    __slots__ = ("_appender",)

    def __init__(self, appender: Appender) -> None:
        self._appender = appender

    def __enter__(self) -> None:
        self._appender.begin_unit()

    def __exit__(self, *_: object) -> None:
        self._appender.end_unit()


class Log(StoredLog):
    """Made by `Log.open`. See the module text for threads."""

    cache: Cache
    """Batches in memory."""
    feeds: dict[int, Feed]
    """All feeds by id: those with a row in table `feed` after a start, and new ones."""
    tables: Tables
    """Durable state."""
    delays: Delays
    """Delayed records."""
    producers: Producers
    """Named producers, so that what they send again is appended once."""
    recovery: Recovery
    """The findings of the start."""
    low_water: Callable[[], int]
    """The lowest LSN that any queue still needs (2**64 - 1: none); until it is set, everything is kept."""

    def __init__(
        self,
        folder: Folder,
        options: LogOptions,
        clock: Callable[[], float],
        files: Files,
        lock: Lock,
        committer: MakeCommitter,
        holds_back: bool,
    ) -> None:
        """For `open` only."""
        self.cache = Cache(options.tail_cache_bytes, options.read_cache_bytes)
        appender = Appender(None if clock is time.time else lambda: int(clock() * 1000))
        syncs = options.fsync == "group"
        unwritten = Unwritten(appender, self.cache, holds_back and syncs)
        super().__init__(unwritten, appender, options.max_unsynced_bytes, syncs, options.confirm_settled)
        self.options = options
        self._files = files
        self._make_committer = committer
        self._folder = folder
        self._lock = lock
        self._clock = clock
        self.tables = Tables(self.appender, folder.root)
        self.log_id = ""
        """Hexadecimal; another log has another one, and so other positions."""
        self.low_water = lambda: 0
        self.mark_needs: Callable[[Needs, Callable[[], object]], object] | None = None
        """Marks which records of a segment some queue needs, then calls back; until it is set, no segment is
        rewritten."""
        self.before_checkpoint: list[Callable[[], object]] = []
        """Called when a checkpoint is about to be taken: what they put is in it."""
        self.usual_retention = Retention(options.traffic_retention_bytes, options.traffic_retention_s)
        self._retentions: dict[int, tuple[int | None, float | None]] = {}  # by partition
        self.on_failed: list[Callable[[], object]] = []
        """Called once when the log fails, before anything that waits for it is told."""
        self._backpressure = Backpressure()
        self._inbox = Mailbox()
        self.before_flush = self._inbox.drain
        self._segments = Segments(folder)
        self.raw = RawFiles(folder, self._inbox.post)
        """Its files as bytes."""
        self.leases = Leases(clock)
        """Leases of readers from outside."""
        self.damages = Damages()
        """Damage that was found since the start."""
        self._reader = Reader(self._segments, folder, self.cache, self._inbox.post, self.damages)
        self.resident = self._reader.resident
        """The state of the page cache, for readers that hand on whole batches."""
        self._feeds = Feeds(
            self.tables, self._segments, self._reader, self._inbox.post, options.feed_cache_bytes
        )
        self.retention_feeds = RetentionFeeds(self.tables, self._feeds, self._segments, self.wall_ms)
        """Retention that is longer or shorter than that of its partition."""
        self._unit = _Unit(self.appender)
        self._closing: list[tuple[Segment, int]] = []  # rolled, with descriptors, until they are synced
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell = -1
        self._needed_from = 0  # as of the last `tend`: the scrub's thread may not ask the queues
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
        committer: MakeCommitter = Committer,
        holds_back: bool = False,
    ) -> Log:
        """Take the folder, recover what it holds, and be ready to append.

        Args:
            data_dir: Made when it does not exist.
            options: Limits of retention, caches and syncs.
            clock: Seconds since the epoch.
            files: The operating system; a replica's, or a test's own to make it fail.
            committer: Makes that which syncs, from `files` and a function to tell (see `Committer`).
            holds_back: Nobody gets a message before it is durable. Without syncs it has no effect.

        Raises:
            StartError: The folder is locked, unusable, damaged or of another version; with the remedy.

        """
        folder = Folder(data_dir)
        files = files or Files()
        try:
            folder.make()
            lock = Lock(folder.lock)
            try:
                log = cls(folder, options, clock, files, lock, committer, holds_back)
                log._start()
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise StartError.data_unusable(str(data_dir), error) from error
        return log

    def _start(self) -> None:
        self._segment_folders = SegmentFolders(
            self._files, self._folder, self.options.folders, self.options.min_free_bytes
        )
        self._segment_folders.claim()
        found = recover(
            self._folder,
            self._files,
            self.tables,
            self._feeds.restored,
            salvage=self.options.salvage,
            sync=self.syncs,
        )
        self.feeds = found.feeds
        self._feeds.start(found.feeds)
        self.recovery = found.report
        manifest = found.manifest
        manifest.epoch += 1
        manifest.write(self._files, self._folder.manifest)
        self._files.reached("start.epoch")
        found.settle()
        self._files.reached("start.settled")
        self._files.unlink(self._folder.clean)
        self._files.sync_folder(self._folder.root)
        self._files.reached("start.unclean")
        self._upkeep = Upkeep(self._files, self._folder, manifest)
        self._wal = Wal(
            self._files,
            self._folder,
            self._segment_folders,
            manifest=manifest,
            segment_bytes=self.options.segment_bytes,
            now_ms=lambda: int(self._clock() * 1000),
        )
        self.delays = Delays(self)
        self.delays.restore(found.segments)
        self.producers = Producers(self)
        self._histories = Histories(
            self._files, self._folder, manifest, self._segments, self.tables, self._feeds, self._inbox.post
        )
        self._content_searches = ContentSearches(self._segments, self._inbox.post, self.pace)
        self._housekeeping = Housekeeping(
            self,
            self._files,
            self._folder,
            self._segments,
            manifest,
            self._upkeep,
            self._histories,
            self._feeds,
            self._inbox.post,
        )
        self._begin(found)
        self.retention_feeds.restore()
        self.recovery.warnings += self._histories.restore()
        self.committer = self._make_committer(
            self._files, lambda *result: self._inbox.post(self.synced, *result)
        )
        free_bytes = self._segment_folders.free_bytes
        self._watcher = Watcher(free_bytes, lambda free: self._inbox.post(self.tend, free))
        self.scrub = Scrub(
            self._folder,
            self._segments,
            self.damages,
            self.options.scrub_bytes_per_s,
            self.options.scrub_each_s,
            lambda: self._needed_from,
        )

    def _begin(self, found: Recovered) -> None:
        self.log_id = found.manifest.log_id.hex()
        segments = found.segments
        last_lsn = segments[-1].next_lsn - 1 if segments else found.report.last_lsn
        self._segments.live = segments
        self.appender.start(found.next_lsn, found.manifest.epoch)
        segments.append(self._wal.begin(found.number, found.next_lsn, last_lsn))
        self.begin(self._wal, found.next_lsn - 1)
        self.checkpoint_at = self.options.checkpoint_bytes
        for segment in segments[:-1]:
            if not segment.indexed:
                self._housekeeping.finish(segment)

    def attach(
        self, call_soon_threadsafe: Callable[..., object], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Say how the log's threads reach the loop, once; from now on results come without `flush`, and
        `tend` is called each second.

        With `loop`, the one that runs, syncs are heard of by a descriptor that it watches, which is quicker.
        """
        self._inbox.call_soon = call_soon_threadsafe
        if loop is not None:
            self._loop = loop
            self._bell = self.committer.hang_bell()
            loop.add_reader(self._bell, self.rung)
        self.before_flush = None
        call_soon_threadsafe(self._inbox.drain)
        self._watcher.start()

    async def close(self) -> None:
        """Sync everything, write a checkpoint and the mark of a clean stop, let go of the folder.

        The caller has stopped everything that appends. Waiting callbacks are called before it returns.
        """
        self.delays.mover.end()
        self.flush()
        if self.failed is None and self._inbox.call_soon is not None:
            done = asyncio.get_running_loop().create_future()
            self.when_synced(self.written_lsn, done.set_result)
            await done
        self._detach()
        await asyncio.to_thread(self._shut)

    def close_sync(self) -> None:
        """`close` for when no loop runs."""
        self._detach()
        self.delays.mover.end()
        self.flush()
        self._shut()

    def _detach(self) -> None:
        """Threads reach nobody; their results wait for who asks."""
        self._inbox.call_soon = None
        self.before_flush = self._inbox.drain
        if self._loop is not None:
            self._loop.remove_reader(self._bell)
            self._loop = None
            self.synced(*self.committer.take_bell_down(), None)

    def _shut(self) -> None:
        if self._closed:
            return
        self._closed = self._housekeeping.closed = True
        self._watcher.stop()
        self.scrub.stop()
        if self.failed is None:
            self.wait_synced(self.written_lsn)
        self.committer.stop()
        self._histories.close()
        self._content_searches.close()
        self._reader.close()
        self.raw.close()
        self._inbox.drain()
        kept = [segment for segment in self._segments.live[-2:] if not segment.is_empty]
        last = (kept[-1].number, kept[-1].end) if kept else (self._wal.segment.number - 1, 0)
        as_named = self._wal.close(last if self.failed is None else None)
        self._upkeep.stop()
        self._inbox.drain()
        for _, fd in self._closing:
            os.close(fd)
        os.close(self._wal.fd)
        if as_named and not self._wal.pending:
            with suppress(OSError):
                self._end()
        self.tables.close()
        self._lock.release()

    def _end(self) -> None:
        """Close the segment being written, and leave the folder so that a start scans nothing."""
        last = self._segments.live.pop()
        last.feeds += self.appender.roll()
        self.delays.closed(last)
        if last.is_empty:
            self._files.unlink(last.path)
        else:
            self._segments.live.append(last)
        self._housekeeping.end()

    # Appending

    def feed(self, feed_id: int) -> Feed:
        """The feed of that id. Raises KeyError."""
        return self.feeds[feed_id]

    def new_feed(self, *, keeps: bool = False) -> Feed:
        """A feed with an id that no feed ever had.

        It survives a restart only when the caller then puts a row `tables.feed_key(feed.id)` into the table
        `feed`; with `keeps` its records that are not persistent do, too.
        """
        return self._feeds.new(keeps=keeps)

    def drop_feed(self, feed: Feed) -> None:
        """Forget a feed; targets that still have it may go on pushing to it in vain."""
        if feed.is_history:
            self._histories.forget(feed)
        self.retention_feeds.forget(feed)
        self._feeds.drop(feed)

    def target(self, feeds: Sequence[Feed], durable: bool) -> Target:
        """Where the records of a route go."""
        return Target(feeds, durable)

    def unit(self) -> AbstractContextManager[None]:
        """All that is appended and put inside is one unit: after a crash all of it is there or none."""
        return self._unit

    def now_ms(self) -> int:
        """The time of this tick, ms since the epoch."""
        return self.appender.now_ms()

    def write_failed(self, error: OSError) -> None:
        """Part of `flush`: what is in the file is unknown."""
        self._fail("a write failed", error)

    def found_room(self, room: bool) -> None:
        """Part of `flush`: whether the disk took the batches has changed."""
        self._backpressure.set("the disk is full", not room, alarm="disk")

    def behind(self, late: bool) -> None:
        """Part of `flush` and `synced`: whether publishers must wait for the disk."""
        self._backpressure.set("too much waits for the disk", late)

    def checkpoint_due(self) -> None:
        """Part of `flush`: so much was written since the last checkpoint."""
        self._housekeeping.checkpoint()

    # Waiting

    def when_written(self, lsn: int, callback: Callback) -> None:
        """Call `callback(ok)` by the next flush that finds `lsn` written; False = the log failed."""
        self.waiting_written.add(lsn, callback)
        if self.failed is not None or lsn <= self.written_lsn:
            self._inbox.post(self._deliver)

    def when_visible(self, lsn: int, callback: Callback) -> None:
        """The same when cursors find `lsn`."""
        (self.when_synced if self.unwritten.holds_back else self.when_written)(lsn, callback)

    def tell_soon(self) -> None:
        """Part of `when_synced`: it has come about already."""
        self._inbox.post(self._deliver)

    def _deliver(self) -> None:
        if self.failed is not None:
            self.waiting_written.fail()
            self.waiting_synced.fail()
            self.waiting_kept.fail()
        self.waiting_written.reached(self.written_lsn)
        self.waiting_synced.reached(self.synced_lsn)
        self.waiting_kept.reached(self.kept_lsn)

    def wait_synced(self, lsn: int) -> bool:
        """Flush and block until `lsn` is durable, without a loop (tests, tools). False = the log failed."""
        done: list[bool] = []
        self.when_synced(lsn, done.append)
        self.flush()
        while not done:
            self._inbox.wait()
        return done[0]

    @property
    def on_backpressure(self) -> list[Callable[[bool], object]]:
        """Called with True when publishers must stop being read, with False when they may go on.

        Called again with the same value when only `alarms` changed.
        """
        return self._backpressure.callbacks

    @property
    def paused(self) -> bool:
        """Whether publishers must not be read now."""
        return bool(self._backpressure.reasons)

    @property
    def alarms(self) -> list[str]:
        """The resources that run low, of which publishers are told: of "disk" and "memory", in this order."""
        return sorted(set(self._backpressure.alarms.values()))

    @property
    def wait_reasons(self) -> list[str]:
        """Why publishers must not be read now; empty while they are."""
        return sorted(self._backpressure.reasons)

    def set_alarm(self, resource: str, reason: str, on: bool) -> None:
        """Have publishers wait while a resource that is not the log's runs low."""
        self._backpressure.set(reason, on, alarm=resource)

    def sync_failed(self, error: OSError) -> None:
        """Part of `synced`: nothing may be confirmed any more."""
        self._fail("a sync failed", error)

    def release_closed(self, lsn: int) -> None:
        """Part of `synced`: of the files that are full some may be durable now."""
        while self._closing and self._closing[0][0].next_lsn - 1 <= lsn:
            segment, fd = self._closing.pop(0)
            self.committer.release(fd)
            self._housekeeping.finish(segment)
        self.closing = tuple(fd for _, fd in self._closing)

    def _fail(self, what: str, error: OSError) -> None:
        if self.failed is not None:
            return
        self.failed = self.appender.failure = LogFailed(what, error)
        _LOG.critical("%s", self.failed)
        # First of all: the end of the process must not depend on what the others do when they are told.
        tell_all(self.on_failed)
        self.waiting_written.fail()
        self.waiting_synced.fail()
        self.waiting_kept.fail()
        self._backpressure.set("the log stopped", True)

    # Figures

    def statistics(self) -> dict[str, int]:
        """Counters and levels, for metrics."""
        return {
            "written_lsn": self.written_lsn,
            "synced_lsn": self.synced_lsn,
            "appended_bytes": self.appender.appended_bytes,
            "backlog_bytes": self.backlog_bytes,
            "syncs": self.committer.syncs,
            "sync_us": self.committer.ns // 1000,
            "write_us": self.write_ns // 1000,
            "cold_read_us": int(self._reader.seconds * 1e6),
            **self._housekeeping.statistics(),
            "feeds": len(self.feeds),
            "feed_bytes": self._feeds.resident_bytes,
            "tail_bytes": self.cache.tail_bytes,
            "read_bytes": self.cache.read_bytes,
            "tail_hits": self.cache.tail_hits,
            "read_hits": self.cache.read_hits,
            "cache_misses": self.cache.misses,
            "cold_reads": self._reader.reads,
            "damaged_ranges": len(self.damages),
            "scrubbed_bytes": self.scrub.bytes,
            "scrubbed_segments": self.scrub.segments,
            "delayed": self.delays.waiting,
            "delayed_moved": self.delays.mover.moved,
            "delayed_retrying": len(self.delays.retries),
            "delayed_lost": self.delays.lost,
            "producers": len(self.producers),
            "duplicates": self.producers.duplicates,
        }

    # Upkeep

    def tend(self, free_bytes: int | None) -> None:
        """Work that is due each second, and when a segment begins.

        `free_bytes` is what the file system has left; None: unknown.
        """
        if self.failed is not None or self._closed:
            return
        self.producers.expire()
        self._needed_from = min(self.low_water(), self.retention_feeds.low)
        self._reader.retry()
        least = self.options.min_free_bytes
        low = free_bytes is not None and free_bytes < least
        self._backpressure.set("the disk is nearly full", low, alarm="disk")
        wanted = least + _ROOM_SEGMENTS * self.options.segment_bytes
        self._housekeeping.lacks(0 if free_bytes is None else wanted - free_bytes)
        if self._wal.pending:
            self.flush()
        if self.synced_lsn == self.written_lsn > self.noted_lsn and not self.appender.in_unit:
            self.appender.append_note()  # so that damage below the synced end can be told from a torn tail
            self.flush()
        self.sync()
        self._roll_by_age()
        self._housekeeping.tend()

    def file_full(self) -> None:
        """Go on in the next file."""
        fd = self._wal.fd
        try:
            old = self._wal.roll(self.appender.next_lsn)
        except OSError as error:
            self._fail("the next file of the log could not be made", error)
            return
        if old is None:
            return
        old.feeds += self.appender.roll()
        self.delays.closed(old)
        self._segments.live.append(self._wal.segment)
        self._watcher.look()
        if self.syncs:
            self._closing.append((old, fd))
            self.closing = (*self.closing, fd)
            self.sync()
        else:
            os.close(fd)
            self._housekeeping.finish(old)

    def _roll_by_age(self) -> None:
        """Close a segment that little traffic keeps open past its retention; a checkpoint follows."""
        segment = self._wal.segment
        age_s = self._clock() - segment.min_ts / 1000
        held = segment.held or {}
        shortest_s = min((self.retention_of(lp).keep_s for lp in held if lp != OWN), default=age_s)
        limit_s = max(min(shortest_s, self.retention_feeds.shortest_s), _AGE_MIN_S)
        if not segment.min_ts or age_s < limit_s or self.appender.in_unit:
            return
        self.flush()
        if self.failed is None and not self._wal.pending and segment is self._wal.segment:
            self.file_full()
            self._housekeeping.checkpoint()
