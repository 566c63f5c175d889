"""The reader: loads batches and feed entries of older segments that are no longer in memory, on two threads.

It decides what to read. Batches go into the read cache before the loop hears of them. So when several
queues want neighbouring records, the first read serves all. (A call of the cache is one step of the
interpreter, so the threads need no lock.) A file is opened for each read, so that a segment may be deleted
at any time. A read covers about 1 MiB from the wanted LSN on, and the kernel is told to fetch the next
part.

If the disk does not answer, or a read fails in an unexpected way, reads of batches and entries are
repeated each second, because data would be given up otherwise. Other questions are answered with the
failure.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import RECORDS_MAX, Batch, Record
from penstock.log_core.batch._scan import Scanner, lost_batch, persistent_entries
from penstock.log_core.delayed._delays import ENTRY_BYTES, DueHeap, Key, decode_entry, sorted_entries
from penstock.log_core.errors import Damage
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files._io import read_batches
from penstock.log_core.files.layout import WAL_HEAD_BYTES, Folder
from penstock.log_core.history.history import read_history_entries
from penstock.log_core.reading._resident import Resident
from penstock.log_core.reading._tail import Cache
from penstock.log_core.segments._segment_file import SegmentFile
from penstock.log_core.segments.damage import Damages
from penstock.log_core.segments.feed_index import read_entries
from penstock.log_core.segments.segment import Segment, Segments, entries_behind, scan_closed
from penstock.log_core.threads.pool import Pool

__all__ = ["Fetched", "Reader"]

_LOG: Final = logging.getLogger("penstock.log")
_READ_BYTES: Final = 1024 * 1024
_THREADS: Final = 2
_AHEAD: Final = 3
"""Further runs that who reads on gets at once; four are at most half of the read cache."""
_SCATTERED_BYTES: Final = 128 * 1024

Post = Callable[..., None]
T = TypeVar("T")


def _without_gaps(batches: list[Batch]) -> list[Batch]:
    """With a LOST batch for what is missing between two batches, or its beginning when that is very much.

    So who reads on meets what was compacted away here, and need not ask for each hole.
    """
    whole: list[Batch] = []
    for batch in batches:
        if whole:
            lsn = whole[-1].base_lsn + whole[-1].count
            if batch.base_lsn > lsn:
                whole.append(lost_batch(lsn, min(batch.base_lsn - lsn, RECORDS_MAX), batch.epoch))
        whole.append(batch)
    return whole


def _unanswered(segment: Segment, error: OSError) -> Damage:
    return Damage(segment.path, 0, f"it cannot be read now: {error.strerror}")


@dataclass(slots=True)
class Fetched:
    """Single records, as they were read."""

    records: dict[int, tuple[Key | None, Record]]
    """By LSN: when it is due, None for one that is not delayed; and the record. A damaged one is missing."""
    unanswered: set[int]
    """The LSNs for which the disk did not answer, or that an unexpected error kept: that may pass."""


class Reader:
    """Owned by one Log; `post(function, *arguments)` runs something on the loop."""

    def __init__(
        self, segments: Segments, folder: Folder, cache: Cache, post: Post, damages: Damages
    ) -> None:
        self._segments = segments
        self._folder = folder
        self._cache = cache
        self._damages = damages
        self._read_bytes = min(_READ_BYTES, max(65536, cache.read_limit // 8))
        self._post = post
        self._pool = Pool(_THREADS, "penstock-reader", post)
        self._loading: dict[int, list[Callable[[], object]]] = {}
        self._failed: list[tuple[Segment, Callable[..., object], tuple[object, ...]]] = []
        """Reads that the disk did not answer, or that failed for another reason."""
        self._ends: deque[int] = deque(maxlen=16)
        """Where the last reads ended."""
        self.reads = 0
        self.seconds = 0.0
        """Spent in reads of records, by both threads."""
        self.resident = Resident(self._open_behind)
        """Reads without a thread, where the page cache has the bytes."""

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], object],
        failed: Callable[[Exception], object] | None = None,
    ) -> None:
        """Do `work` on one of the threads, then call on the loop `done` with its result, or `failed` with
        what it raised."""
        self._pool.run(lambda: self._post(done, work()), failed=failed)

    # Batches

    def load(self, segment: Segment, lsn: int, done: Callable[[], object]) -> None:
        """Read the batches from `lsn` on into the cache, then call `done` on the loop.

        A batch that cannot be read comes as LOST.
        """
        waiting = self._loading.get(lsn)
        if waiting is not None:
            waiting.append(done)
            return
        self._loading[lsn] = [done]
        self._patiently(segment, self._load, segment, lsn)

    def _patiently(self, segment: Segment, work: Callable[..., object], *arguments: object) -> None:
        """Have `work` done. Other exceptions pass, too: its data is not given up for them."""

        def failed(error: Exception) -> None:
            self._damages.note(Damage(segment.path, 0, f"it cannot be read now: {error!r}"))
            self._failed.append((segment, work, arguments))

        self._pool.run(work, *arguments, failed=failed)

    def _load(self, segment: Segment, lsn: int) -> None:
        if self._cache.get(lsn) is None:
            started = time.monotonic()
            try:
                self._read_on(segment, lsn)
                self._open(segment)
            except OSError as error:
                self._later(segment, error, self._load, segment, lsn)
                return
            finally:
                self.seconds += time.monotonic() - started
        self._post(self._loaded, lsn)

    def _read_on(self, segment: Segment, lsn: int) -> None:
        """Read a run; some more, when the last read ended here: who reads on wants them too. Raises OSError.

        Waking the loop for each costs more than half of what reading it does.
        """
        ahead = self._cache.read_limit >= 2 * (1 + _AHEAD) * _READ_BYTES and lsn in self._ends
        runs: list[list[Batch]] = []
        while True:
            self.reads += 1
            run = self._read_or_lose(segment, lsn)
            runs.append(run)
            lsn = run[-1].base_lsn + run[-1].count
            # One that ends with a large message may be as large as the whole cache.
            if not ahead or len(runs) > _AHEAD or run[-1].nbytes > _READ_BYTES or lsn >= segment.next_lsn:
                break
        for run in reversed(runs):  # the wanted one last: it must be there when the loop hears of it
            self._cache.add_run(run)
        self._ends.append(lsn)

    def _open_behind(self, lsn: int) -> None:
        segment = self._segments.find(lsn)
        if segment is not None:
            self._pool.run(self._open_soon, segment)

    def _open_soon(self, segment: Segment) -> None:
        try:
            self._open(segment)
        except OSError as error:
            _LOG.warning("%s cannot be opened ahead: %s", segment.path, error)

    def _open(self, segment: Segment) -> None:
        """Let who reads on here do so without a thread. Raises OSError."""
        if self.resident.has(segment.number) or segment is self._segments.live[-1]:
            return  # the active one is in memory, as a rule
        try:
            with self._segments.swap:
                marks = self._segments.marks_of(segment)
                fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
                file = SegmentFile(
                    segment.number,
                    fd,
                    segment.base_lsn,
                    segment.next_lsn,
                    segment.end,
                    segment.epoch,
                    marks,
                    self.submit,
                )
            file.whole = all(damage.path != segment.path for damage in self._damages.found())
        except (FileNotFoundError, Damage):
            return  # the one was deleted meanwhile, the other noted when it was read
        self._post(self.resident.offer, file)

    def _later(
        self, segment: Segment, error: OSError, work: Callable[..., object], *arguments: object
    ) -> None:
        """The disk did not answer: that may pass, and what lies there is not given up for it."""
        self._damages.note(_unanswered(segment, error))
        self._post(self._failed.append, (segment, work, arguments))

    def retry(self) -> None:
        """Try again what could not be read, and close what nobody reads; called each second."""
        self.resident.forget()
        failed, self._failed = self._failed, []
        for segment, work, arguments in failed:
            self._patiently(segment, work, *arguments)

    def _read_or_lose(self, segment: Segment, lsn: int) -> list[Batch]:
        # Without a batch from here on all the rest of a closed segment is gone: who reads on need not ask for
        # each LSN of it.
        behind = lsn + 1 if segment is self._segments.live[-1] else segment.next_lsn
        try:
            batches = self.read(segment, lsn)
        except FileNotFoundError:
            batches = []  # deleted in the meantime: nobody needs it any more
        except Damage as damage:
            self._note(segment, damage)
            batches = []
            behind = lsn + 1
        if not any(batch.base_lsn <= lsn < batch.base_lsn + batch.count for batch in batches):
            if batches:
                behind = batches[0].base_lsn
            batches.insert(0, lost_batch(lsn, min(behind - lsn, RECORDS_MAX), segment.epoch))
        return _without_gaps(batches) if segment.gaps else batches

    def _note(self, segment: Segment, damage: Damage) -> None:
        self._damages.note(damage)
        self._post(self.resident.distrust, segment.number)

    def _loaded(self, lsn: int) -> None:
        for done in self._loading.pop(lsn):
            try:
                done()
            except Exception:  # the others wait for it, too
                _LOG.exception("an internal error of one that waited for LSN %d", lsn)

    def fetch(
        self,
        wants: list[tuple[Segment, int]],
        done: Callable[[Fetched], object],
    ) -> None:
        """Read single records from anywhere, past the cache; `done` gets them on the loop."""
        every = {lsn for _, lsn in wants}
        self._pool.run(self._fetch, wants, done, failed=lambda _: done(Fetched({}, every)))

    def _fetch(self, wants: list[tuple[Segment, int]], done: Callable[[Fetched], object]) -> None:
        found: dict[int, tuple[Key | None, Record]] = {}
        unanswered: set[int] = set()
        batches: list[Batch] = []
        for segment, lsn in sorted(wants, key=lambda want: want[1]):
            if not (batches and batches[0].base_lsn <= lsn < batches[-1].base_lsn + batches[-1].count):
                self.reads += 1
                try:
                    batches = self.read(segment, lsn, _SCATTERED_BYTES)
                except OSError as error:
                    self._damages.note(_unanswered(segment, error))
                    unanswered.add(lsn)
                    continue
                except Damage as damage:
                    self._note(segment, damage)
                    continue
            for batch in batches:
                if batch.base_lsn <= lsn < batch.base_lsn + batch.count:
                    index = lsn - batch.base_lsn
                    found[lsn] = (batch.delay_of(index), batch.record(index))
        self._post(done, Fetched(found, unanswered))

    def read_due(
        self, wants: list[tuple[Segment, Key]], count: int, done: Callable[[list[bytes] | None], object]
    ) -> None:
        """Read up to `count` entries of delayed records behind a key from each segment's index.

        `done` gets them on the loop, in the order of `wants`; None: one of them cannot be read now.
        """
        self._pool.run(self._read_due, wants, count, done, failed=lambda _: done(None))

    def _read_due(
        self, wants: list[tuple[Segment, Key]], count: int, done: Callable[[list[bytes] | None], object]
    ) -> None:
        found: list[bytes] | None = []
        try:
            found = [self._entries_behind(segment, key, count) for segment, key in wants]
        except OSError:
            found = None
        self._post(done, found)

    def _entries_behind(self, segment: Segment, key: Key, count: int) -> bytes:
        """As `entries_behind`; from the segment itself when its index cannot be read. Raises OSError."""
        try:
            return entries_behind(self._folder, segment, key, count)
        except FileNotFoundError as error:
            if not segment.path.exists():
                raise
            self._damages.note(Damage(Path(error.filename), 0, "the file is missing"))
        except OSError as error:
            path = self._folder.time_index(segment.number)
            self._damages.note(Damage(path, 0, f"it cannot be read now: {error.strerror}"))
        except Damage as damage:
            self._damages.note(damage)
        found, behind = DueHeap(), DueHeap()
        try:
            scan_closed(segment, delayed=found)
        except OSError as error:
            self._damages.note(_unanswered(segment, error))
            raise
        behind.push_between(found.encode(), *key, *segment.delayed_last)
        return sorted_entries(behind.encode())[: count * ENTRY_BYTES]

    def first_waiting(
        self,
        raw: bytes,
        segments: list[Segment],
        behind: Key,
        count: int,
        done: Callable[[bytes | None], object],
    ) -> None:
        """Look for the first `count` entries of delayed records: among those encoded in `raw`, and those of
        the segments' indexes behind a key.

        `done` gets the entries encoded, in order, on the loop; None: an index cannot be read now.
        """
        self._pool.run(self._first_waiting, raw, segments, behind, count, done, failed=lambda _: done(None))

    def _first_waiting(
        self,
        raw: bytes,
        segments: list[Segment],
        behind: Key,
        count: int,
        done: Callable[[bytes | None], object],
    ) -> None:
        found: bytes | None
        try:
            parts = [self._entries_behind(segment, behind, count) for segment in segments]
            found = sorted_entries(b"".join((raw, *parts)))[: count * ENTRY_BYTES]
        except OSError:
            found = None
        self._post(done, found)

    def find_entry(self, segments: list[Segment], key: Key, done: Callable[[int | None], object]) -> None:
        """Look in the segments' indexes for a delayed record's key.

        `done` gets the highest LSN on the loop, 0: none of them has it; None: one of them cannot be read now.
        """
        self._pool.run(self._find_entry, segments, key, done, failed=lambda _: done(None))

    def _find_entry(self, segments: list[Segment], key: Key, done: Callable[[int | None], object]) -> None:
        found: int | None = 0
        try:
            for segment in segments:
                raw = self._entries_behind(segment, (key[0], key[1] - 1), 1)
                due, place, lsn, _ = decode_entry(raw, 0) if raw else (*key, 0, 0)
                if (due, place) == key:
                    found = max(found or 0, lsn)
        except OSError:
            found = None
        self._post(done, found)

    def read(self, segment: Segment, lsn: int, size: int = 0) -> list[Batch]:
        """The batches from the one with `lsn` on, about `size` bytes of them (0: 1 MiB); blocks.

        Raises OSError, Damage.
        """
        size = size or self._read_bytes
        with self._segments.swap:
            offset, end = self._segments.marks_of(segment).offset_of(lsn), segment.end
            fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            batches, damage = read_batches(fd, offset, end, size, lsn)
            if damage is not None and not batches:
                self._note(segment, Damage(segment.path, *damage))
                batches = self._read_behind(fd, segment, damage[0], lsn)
            if size == self._read_bytes:
                os.posix_fadvise(fd, offset + size, size, os.POSIX_FADV_WILLNEED)
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
        with self._segments.swap:
            marks, end = self._segments.marks_of(segment), segment.end
            fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        offset = marks.offset_of_time(time_ms)
        try:
            lsn = 0
            while True:
                batches, _ = read_batches(fd, offset, end, self._read_bytes, lsn)
                if not batches:
                    return None
                for batch in batches:
                    if batch.max_ts >= time_ms:
                        for i in range(batch.count):
                            record = batch.record(i)
                            if record.ts >= time_ms:
                                return record.lsn
                lsn = batches[-1].base_lsn + batches[-1].count
                offset = max(offset, marks.offset_of(lsn))
        finally:
            os.close(fd)

    def position_for_time(self, time_ms: int) -> int | None:
        """The LSN of the first record kept that is not older than `time_ms`, None: there is none; blocks.

        In a segment that cannot be read it is the first one.
        """
        for segment in list(self._segments.live):
            if segment.max_ts < time_ms:
                continue
            try:
                lsn = self.lsn_at_time(segment, time_ms)
            except FileNotFoundError:
                continue  # deleted in the meantime
            except (OSError, Damage) as error:
                _LOG.error("%s: no time can be found in it: %s", segment.path, error)
                lsn = segment.base_lsn
            if lsn is not None:
                return lsn
        return None

    # Feed entries

    def load_entries(self, segment: Segment, feed: Feed, done: Callable[[bytes], None]) -> None:
        """Read a feed's entries of one segment; `done` gets them on the loop (empty: they are gone)."""
        self._patiently(segment, self._load_entries, segment, feed, done)

    def _load_entries(self, segment: Segment, feed: Feed, done: Callable[[bytes], None]) -> None:
        try:
            entries = self.read_entries(segment, feed)
        except FileNotFoundError:
            entries = b""
        except OSError as error:
            self._later(segment, error, self._load_entries, segment, feed, done)
            return
        except Damage as error:
            _LOG.error("%s: the entries of feed %d cannot be read: %s", segment.path, feed.id, error)
            entries = b""
        self._post(done, entries)

    def read_entries(self, segment: Segment, feed: Feed) -> bytes:
        """A feed's entries of a closed segment, from its index or else from the segment; blocks.

        Raises OSError, Damage.
        """
        if feed.is_history:
            path = self._folder.history(feed.id)
            entries = read_history_entries(path, segment.base_lsn)
            if len(entries) != 4 * feed.count_at(segment.base_lsn):
                raise Damage(path, 0, f"the entries at LSN {segment.base_lsn} are not those of its feed")
            return entries
        path = self._folder.feed_index(segment.number)
        try:
            entries = read_entries(path, segment.base_lsn, feed.id)
            if segment.recovered:
                entries = persistent_entries(entries)
            if len(entries) == 4 * feed.count_at(segment.base_lsn):
                return entries
            _LOG.warning("%s does not fit feed %d; read from the segment", path, feed.id)
        except FileNotFoundError as error:
            _LOG.warning("%s; read from the segment", error)
        except Damage as damage:
            self._damages.note(damage)
        scanner = Scanner()
        with segment.path.open("rb") as file:
            scanner.read(file.fileno(), segment.end)
        transient = not segment.recovered
        entries = scanner.collect(
            WAL_HEAD_BYTES,
            segment.base_lsn,
            segment.epoch,
            feed,
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
        self.resident.close()
