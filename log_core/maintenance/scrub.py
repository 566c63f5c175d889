"""The scrub: reads closed segments again in the background, to find damage early.

A disk can lose data silently, and data that nobody reads would be found missing when it is needed. So each
closed segment and its indexes are read every `scrub_each_s`, the one not read for longest first, at
`scrub_bytes_per_s`, on a thread of its own. Damage is noted (`damages`), logged, counted, and an alarm.
Nothing is changed. The times of the last reads are not kept over a restart: the round begins anew.

The pages of a segment that no queue needs leave the page cache afterwards, so that the scrub displaces
nothing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.log_core.batch._batch import ALIGN, Batch
from penstock.log_core.batch._scan import Scanner
from penstock.log_core.errors import Damage
from penstock.log_core.files.layout import WAL_HEAD_BYTES, Folder
from penstock.log_core.segments.damage import Damages
from penstock.log_core.segments.feed_index import ROW_BYTES, read_directory, verify_entries
from penstock.log_core.segments.segment import Segment, Segments

__all__ = ["Scrub"]

_LOG: Final = logging.getLogger("penstock.log")
_WINDOW: Final = 256 * 1024
_LOOK_EACH_S: Final = 5.0
"""How often it is asked whether a segment is due."""


class Scrub:
    """Owned by one Log. `rate` is in bytes per second, 0: it never begins; `each_s` from look to look."""

    def __init__(
        self,
        folder: Folder,
        segments: Segments,
        damages: Damages,
        rate: int,
        each_s: float,
        needed_from: Callable[[], int],
    ) -> None:
        """`needed_from()` is the lowest LSN that a queue needs, for any thread."""
        self._folder = folder
        self._segments = segments
        self._damages = damages
        self._rate = rate
        self._each_s = each_s
        self._needed_from = needed_from
        self._looked: dict[int, float] = {}  # segment number -> monotonic time of its last look
        self._stopping = threading.Event()
        self.bytes = 0
        """Read so far."""
        self.segments = 0
        """Looks so far."""
        self._thread = threading.Thread(target=self._run, name="penstock-scrub", daemon=True)
        if rate:
            self._thread.start()

    def stop(self) -> None:
        """End the thread, in the middle of a segment if need be."""
        self._stopping.set()
        if self._rate:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            segment = self._due()
            if segment is None:
                self._stopping.wait(_LOOK_EACH_S)
                continue
            before = len(self._damages)
            try:
                self.look_at(segment)
            except Exception:  # the rest is looked at all the same, and this one in the next round
                _LOG.exception("%s could not be looked at: an internal error", segment.path)
                continue
            found = len(self._damages) - before
            if not self._stopping.is_set():
                level = logging.WARNING if found else logging.DEBUG
                _LOG.log(level, "%s was read again: %d places are damaged", segment.path, found)

    def _due(self) -> Segment | None:
        """The closed segment that was looked at the longest time ago, or never; None: none is due."""
        live = [segment for segment in list(self._segments.live[:-1]) if segment.indexed]
        numbers = {segment.number for segment in live}
        self._looked = {number: when for number, when in self._looked.items() if number in numbers}
        now = time.monotonic()
        due = [s for s in live if now - self._looked.get(s.number, -self._each_s) >= self._each_s]
        return min(due, key=lambda segment: self._looked.get(segment.number, -1.0), default=None)

    def look_at(self, segment: Segment) -> None:
        """Read one closed segment and its indexes; blocks, throttled."""
        self._looked[segment.number] = time.monotonic()
        try:
            with self._segments.swap:
                fd, end = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC), segment.end
            try:
                self._read_batches(fd, end, segment)
                if segment.next_lsn <= self._needed_from():
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
            self._read_indexes(segment)
        except FileNotFoundError:
            return  # deleted in the meantime
        except OSError as error:
            self._damages.note(Damage(segment.path, 0, f"it cannot be read now: {error.strerror}"))
        self.segments += 1

    def _read_batches(self, fd: int, end: int, segment: Segment) -> None:
        offset, lsn = WAL_HEAD_BYTES, 1
        window, window_at = b"", 0
        while offset < end and not self._stopping.is_set():
            start = offset - window_at
            size = int.from_bytes(window[start : start + 4], "little") if start + 4 <= len(window) else ALIGN
            if start + size > len(window):
                window, window_at, start = os.pread(fd, max(size, _WINDOW), offset), offset, 0
                self._throttle(len(window))
                size = int.from_bytes(window[:4], "little")
                if 0 < size <= end - offset and size > len(window):
                    continue  # a batch larger than the window
            try:
                batch = Batch.parse(window[start : start + size])
            except ValueError as error:
                self._damages.note(Damage(segment.path, offset, str(error)))
                scanner = Scanner()
                scanner.read(fd, end)
                hit = scanner.search(offset + ALIGN, lsn, segment.epoch)
                offset = hit.offset if hit is not None else end
            else:
                offset += size
                lsn = batch.base_lsn + batch.count

    def _throttle(self, size: int) -> None:
        self.bytes += size
        self._stopping.wait(size / self._rate if self._rate else 0)

    def _read_indexes(self, segment: Segment) -> None:
        if self._stopping.is_set():
            return
        path = self._folder.feed_index(segment.number)
        known = Segment(segment.number, segment.path, segment.base_lsn, segment.epoch, segment.base_lsn)
        try:
            rows = len(read_directory(path, segment.base_lsn)) // ROW_BYTES
            verify_entries(path, rows)
            self._throttle(path.stat().st_size)
            known.read_time_index(self._folder)
        except Damage as damage:
            self._damages.note(damage)
