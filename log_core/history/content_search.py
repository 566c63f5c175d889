"""Search by content: records of the log by time, place, and byte strings in their properties and bodies.

A search goes over the segments that are there, in slices, on a thread of its own, which rests half of the
time; what retention has let go of is found as long as it lies there. The loop decides about key blocks, and
is handed what was found, a few records at a time. It ends by itself when it has read, or worked, as much as
it may, and says where another one goes on. So nothing is kept for a search between two requests.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import Record
from penstock.log_core.files.layout import WAL_HEAD_BYTES
from penstock.log_core.history._content import Content
from penstock.log_core.history._history import KeyScan
from penstock.log_core.history.key_walk import KeyWalk, Matcher, Stopped, batches_of
from penstock.log_core.segments.segment import Segment, Segments
from penstock.log_core.threads.pool import Pool

__all__ = ["ContentSearches", "Reached", "SearchLimits"]

_LOG: Final = logging.getLogger("penstock.log")
_SLICE_BYTES: Final = 1 << 20
"""Read and searched at once; more for a batch that is larger."""
_FOUND_AT_ONCE: Final = 32
"""Records that the loop is handed in one go."""
_THREADS: Final = 2
_NICE: Final = 5
"""Not more: the loop waits for a thread that has the interpreter's lock and gets no core."""

Found = Callable[[Record], bool]
"""Gets what was found, oldest first, on the loop; False: it has enough, and this one is left."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How far one search goes."""

    nbytes: int
    seconds: float


@dataclass(slots=True)
class Reached:
    """How far a search came."""

    lsn: int
    """Where to go on."""
    nbytes: int = 0
    """Read so far."""
    count: int = 0
    """Records found, where they are only counted."""
    damaged: int = 0
    """Batches that could not be read."""
    time_ms: int = 0
    """About when what it came to was published; 0: it is not known."""


class ContentSearches:
    """Of one log; on the loop, but for the searches themselves."""

    def __init__(self, segments: Segments, post: Callable[..., None]) -> None:
        self._segments = segments
        self._post = post
        self._pool = Pool(_THREADS, "penstock-search", post)
        self._running: set[KeyWalk] = set()

    def search(
        self,
        span: tuple[int, int],
        matcher: Matcher,
        content: Content,
        limits: SearchLimits,
        found: Found | None,
        done: Callable[[Reached | None], object],
    ) -> None:
        """Find the records with LSNs in [first, last), all written, that `matcher` and `content` want.

        `found`: None counts them.
        `done` gets how far it came; None: the log could not be read, which the log lines tell of.
        """
        scan = KeyScan(matcher.lp, content=content, most=_FOUND_AT_ONCE if found is not None else 0)
        walk = KeyWalk(matcher, scan, self._post)
        self._running.add(walk)
        search = _Search(self._segments, span, scan, walk, limits, found)

        def run() -> None:
            reached: Reached | None = None
            try:
                _step_back()
                reached = search.run()
            except Stopped:
                return
            except Exception:  # whatever it is, who waits must hear of it
                _LOG.exception("the log could not be searched")
            self._post(ended, reached)

        def ended(reached: Reached | None) -> None:
            self._running.discard(walk)
            done(reached)

        self._pool.run(run)

    def close(self) -> None:
        """End the searches that are under way; who waits for them is told nothing more."""
        for walk in self._running:
            walk.stop()
        self._pool.shutdown(wait=True)


def _step_back() -> None:
    """Let everybody else go before this thread, on systems whose threads have priorities of their own."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
            os.sched_setscheduler(threading.get_native_id(), os.SCHED_BATCH, os.sched_param(0))


class _Search:
    """One of them; `_told` on the loop, everything else on its thread."""

    def __init__(
        self,
        segments: Segments,
        span: tuple[int, int],
        scan: KeyScan,
        walk: KeyWalk,
        limits: SearchLimits,
        found: Found | None,
    ) -> None:
        self._segments = segments
        self._live = list(segments.live)
        self._first, self._last = span
        self._scan = scan
        self._walk = walk
        self._limits = limits
        self._found = found
        self._enough = False
        self._reached = Reached(self._first)

    def run(self) -> Reached:
        """Search. Raises OSError, Stopped, Undecided."""
        reached, ends_at = self._reached, time.monotonic() + self._limits.seconds
        for segment in self._live:
            if segment.next_lsn <= self._first or segment.end <= WAL_HEAD_BYTES:
                continue
            if segment.base_lsn >= self._last:
                break
            began = time.monotonic()
            for data, behind, time_ms in self._slices(segment):
                if self._walk.stopped:
                    raise Stopped
                reached.nbytes += len(data)
                reached.time_ms = time_ms
                with memoryview(data) as view:
                    self._look(view, segment.base_lsn)
                if self._enough:
                    return reached
                reached.lsn = max(reached.lsn, behind)
                now = time.monotonic()
                if reached.nbytes >= self._limits.nbytes or now >= ends_at:
                    return reached
                time.sleep(now - began)
                began = time.monotonic()
        reached.lsn = self._last
        return reached

    def _slices(self, segment: Segment) -> Iterator[tuple[bytes, int, int]]:
        """The bytes of a segment that are looked at, the LSN behind them, and about their time (ms)."""
        try:
            with self._segments.swap:  # the file and its index belong together
                fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
                end, marks, behind = segment.end, self._segments.marks_of(segment), segment.next_lsn
        except FileNotFoundError:
            return  # retention let go of it in the meantime
        with contextlib.closing(os.fdopen(fd, "rb", buffering=0)) as file:
            at = marks.offset_of(self._first)
            bounds = zip(marks.offsets, marks.lsns, marks.times, strict=False)
            for offset, lsn, time_ms in (*bounds, (end, behind, segment.max_ts)):
                if offset < at + _SLICE_BYTES and offset < end:
                    continue
                data = os.pread(file.fileno(), offset - at, at)
                yield data, lsn, time_ms
                if lsn >= self._last:
                    return
                at = offset

    def _look(self, data: memoryview, base: int) -> None:
        """Hand on what is found in a slice."""
        first = max(self._first, self._reached.lsn)
        while True:
            entries = self._walk.entries(data, 0, first, self._last, base)
            self._reached.damaged = self._scan.damaged
            if not entries:
                return
            if self._found is None:
                self._reached.count += len(entries) // 4
                return
            following = self._scan.reached
            lsns = [base + entry for entry in memoryview(entries).cast("I")]
            self._walk.ask(self._told, _records(data, lsns, self._scan.places_of_batches()))
            if self._enough or not following:
                return
            first = following

    def _told(self, records: list[Record]) -> None:
        assert self._found is not None
        try:
            for record in records:
                if not self._found(record):
                    self._enough = True
                    self._reached.lsn = record.lsn
                    break
        except Exception as error:
            self._walk.answer(error)
            return
        self._walk.answer(True)


def _records(data: memoryview, lsns: list[int], places: list[int]) -> list[Record]:
    """The records of these LSNs; `places`: where the batch or the block of each begins."""
    found: list[Record] = []
    for place, of_place in groupby(zip(places, lsns, strict=True), key=itemgetter(0)):
        batches = batches_of(data, place)
        batch = next(batches)
        for _, lsn in of_place:
            while lsn >= batch.base_lsn + batch.count:
                batch = next(batches)
            found.append(batch.record(lsn - batch.base_lsn))
    return found
