"""Reads of what is no longer in memory: batches and feed entries of older segments, on two threads.

Owns the decision what to read. Batches go into the read cache before the loop hears of them, so that of many
who want neighbouring records the first one reads for all. (A call of the cache is one step of the
interpreter, so the threads need no lock for it.) A file is opened for each read, so that a segment may be
deleted at any time. Reading goes forward: about 1 MiB from the wanted LSN on, and the kernel is told to fetch
the next.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock.log_core._batch import Batch
from penstock.log_core._feed import Feed
from penstock.log_core._io import read_batches
from penstock.log_core._scan import Scanner, lost_batch, persistent_entries
from penstock.log_core._tail import Cache
from penstock.log_core.errors import Damage
from penstock.log_core.feed_index import read_entries
from penstock.log_core.layout import WAL_HEAD_BYTES, Folder
from penstock.log_core.segment import Segment, Segments

__all__ = ["Reader"]

_LOG: Final = logging.getLogger("penstock.log")
_READ_BYTES: Final = 1024 * 1024
_THREADS: Final = 2

Post = Callable[..., None]


class Reader:
    """Owned by one Log; `post(function, *arguments)` runs something on the loop."""

    def __init__(self, segments: Segments, folder: Folder, cache: Cache, post: Post) -> None:
        self._segments = segments
        self._folder = folder
        self._cache = cache
        self._read_bytes = min(_READ_BYTES, max(65536, cache.read_limit // 8))
        self._post = post
        self._pool = ThreadPoolExecutor(_THREADS, "penstock-reader")
        self._loading: dict[int, list[Callable[[], object]]] = {}
        self.reads = 0

    # Batches

    def load(self, segment: Segment, lsn: int, done: Callable[[], object]) -> None:
        """Read the batches from `lsn` on into the cache, then call `done` on the loop.

        What cannot be read comes as LOST.
        """
        waiting = self._loading.get(lsn)
        if waiting is not None:
            waiting.append(done)
            return
        self._loading[lsn] = [done]
        self._pool.submit(self._load, segment, lsn)

    def _load(self, segment: Segment, lsn: int) -> None:
        if self._cache.get(lsn) is None:
            self.reads += 1
            self._cache.add_run(self._read_or_lose(segment, lsn))
        self._post(self._loaded, lsn)

    def _read_or_lose(self, segment: Segment, lsn: int) -> list[Batch]:
        try:
            batches = self.read(segment, lsn)
        except FileNotFoundError:
            batches = []  # deleted in the meantime: nobody needs it any more
        except (OSError, Damage) as error:
            _LOG.error("%s: LSN %d cannot be read: %s", segment.path, lsn, error)
            batches = []
        if not any(batch.base_lsn <= lsn < batch.base_lsn + batch.count for batch in batches):
            behind = batches[0].base_lsn if batches else lsn + 1
            batches.insert(0, lost_batch(lsn, min(behind - lsn, 65536), segment.epoch))
        return batches

    def _loaded(self, lsn: int) -> None:
        for done in self._loading.pop(lsn):
            done()

    def read(self, segment: Segment, lsn: int) -> list[Batch]:
        """The batches from the one with `lsn` on, about 1 MiB of them; blocks. Raises OSError, Damage."""
        offset = self._segments.marks_of(segment).offset_of(lsn)
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            batches, damage = read_batches(fd, offset, segment.end, self._read_bytes, lsn)
            if damage is not None and not batches:
                _LOG.error("%s; what can be read behind it is delivered", Damage(segment.path, *damage))
                batches = self._read_behind(fd, segment, damage[0], lsn)
            os.posix_fadvise(fd, offset + self._read_bytes, self._read_bytes, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(fd)
        return batches

    def _read_behind(self, fd: int, segment: Segment, offset: int, lsn: int) -> list[Batch]:
        scanner = Scanner()
        scanner.read(fd, segment.end)
        hit = scanner.search(offset, lsn, segment.epoch)
        return [] if hit is None else read_batches(fd, hit.offset, segment.end, self._read_bytes, lsn)[0]

    def lsn_at_time(self, segment: Segment, time_ms: int) -> int | None:
        """The first record of a segment not older than `time_ms`; blocks. Raises OSError, Damage."""
        offset = self._segments.marks_of(segment).offset_of_time(time_ms)
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            lsn = 0
            while True:
                batches, _ = read_batches(fd, offset, segment.end, self._read_bytes, lsn)
                if not batches:
                    return None
                for batch in batches:
                    if batch.max_ts >= time_ms:
                        for i in range(batch.count):
                            record = batch.record(i)
                            if record.ts >= time_ms:
                                return record.lsn
                lsn = batches[-1].base_lsn + batches[-1].count
                offset = max(offset, self._segments.marks_of(segment).offset_of(lsn))
        finally:
            os.close(fd)

    # Feed entries

    def load_entries(self, segment: Segment, feed: Feed, done: Callable[[bytes], None]) -> None:
        """Read a feed's entries of one segment; `done` gets them on the loop (empty: they are gone)."""
        self._pool.submit(self._load_entries, segment, feed, done)

    def _load_entries(self, segment: Segment, feed: Feed, done: Callable[[bytes], None]) -> None:
        try:
            entries = self.read_entries(segment, feed)
        except FileNotFoundError:
            entries = b""
        except (OSError, Damage) as error:
            _LOG.error("%s: the entries of feed %d cannot be read: %s", segment.path, feed.id, error)
            entries = b""
        self._post(done, entries)

    def read_entries(self, segment: Segment, feed: Feed) -> bytes:
        """A feed's entries of a closed segment, from its index or else from the segment; blocks.

        Raises OSError, Damage.
        """
        path = self._folder.feed_index(segment.number)
        try:
            entries = read_entries(path, segment.base_lsn, feed.id)
            if segment.recovered:
                entries = persistent_entries(entries)
            if len(entries) == 4 * feed.count_at(segment.base_lsn):
                return entries
            _LOG.warning("%s does not fit feed %d; read from the segment", path, feed.id)
        except (FileNotFoundError, Damage) as error:
            _LOG.warning("%s; read from the segment", error)
        scanner = Scanner()
        with segment.path.open("rb") as file:
            scanner.read(file.fileno(), segment.end)
        transient = not segment.recovered
        entries = scanner.collect(
            WAL_HEAD_BYTES,
            segment.base_lsn,
            segment.epoch,
            feed.id,
            segment.base_lsn,
            segment.gaps,
            transient,
        )
        if len(entries) != 4 * feed.count_at(segment.base_lsn):
            raise Damage(segment.path, 0, f"the entries of feed {feed.id} cannot be read completely")
        return entries

    def close(self) -> None:
        """End the threads after the reads that are under way."""
        self._pool.shutdown(wait=True)
