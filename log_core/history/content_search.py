"""Search by content: records of the log by time, place, and byte strings in their properties and bodies.

A search goes over the segments that are there, in slices, on a thread of its own. The thread rests behind
each short step, the longer the more publishers need the machine (`Pace`). As long as it finds nothing it
takes the interpreter's lock once a segment. Records that retention has let go of are found as long as they
lie there. The loop decides about key blocks, and is handed what was found, a few records at a time. A search
ends by itself when it has read, or worked, as much as it may, and says where another one goes on. So nothing
is kept for a search between two requests.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import Record
from penstock.log_core.files.layout import WAL_HEAD_BYTES
from penstock.log_core.history._content import Content
from penstock.log_core.history._history import KeyScan
from penstock.log_core.history.key_walk import KeyWalk, Matcher, Stopped, batches_of
from penstock.log_core.segments.segment import Marks, Segments
from penstock.log_core.threads._pace import Pace
from penstock.log_core.threads.pool import Pool

__all__ = ["ContentSearches", "Reached", "SearchLimits"]

_LOG: Final = logging.getLogger("penstock.log")
_FOUND_AT_ONCE: Final = 32
"""Records that the loop is handed in one go."""
_THREADS: Final = 2
_NICER: Final = 5
"""Than the loop. Not more: it waits for a thread that has the interpreter's lock and gets no core."""

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

    def __init__(self, segments: Segments, post: Callable[..., None], pace: Callable[[], Pace]) -> None:
        """`pace` makes one for a search."""
        self._segments = segments
        self._pace = pace
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
        pace = self._pace()
        scan = KeyScan(
            matcher.lp, content=content, most=_FOUND_AT_ONCE if found is not None else 0, pace=pace
        )
        walk = KeyWalk(matcher, scan, self._post, pace)
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
        thread, of_loop = threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, os.getpid())
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, of_loop + _NICER)
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


@dataclass(slots=True)
class _Slices:
    """The parts of a segment's file that are searched: one from each mark to the next."""

    begin: int
    """Where the first one begins."""
    ends: array[int]
    """Where each ends, and the next one begins."""
    lsns: array[int]
    """The LSN behind each."""
    times: array[int]
    """About its time (ms)."""

    def begin_of(self, number: int) -> int:
        """Where one begins, or the end of all."""
        return self.ends[number - 1] if number else self.begin


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
        ends_at = time.monotonic() + self._limits.seconds
        for segment in self._live:
            if segment.next_lsn <= self._first or segment.end <= WAL_HEAD_BYTES:
                continue
            if segment.base_lsn >= self._last:
                break
            try:
                with self._segments.swap:  # the file and its index belong together
                    fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
                    marks, end = self._segments.marks_of(segment), segment.end
                    behind = segment.next_lsn, segment.max_ts
            except FileNotFoundError:
                continue  # retention let go of it in the meantime
            with contextlib.closing(os.fdopen(fd, "rb", buffering=0)):
                if self._over(segment.base_lsn, fd, self._slices(marks, end, behind), ends_at):
                    return self._reached
        self._reached.lsn = self._last
        return self._reached

    def _slices(self, marks: Marks, end: int, behind: tuple[int, int]) -> _Slices:
        """The parts of a segment that are looked at; `behind`: LSN and time at its end."""
        begin = marks.offset_of(self._first)
        first = bisect_right(marks.offsets, begin)
        # An index that grows meanwhile may lead further.
        number = max(bisect_left(marks.offsets, end), first)
        number = min(number, max(bisect_left(marks.lsns, self._last) + 1, first))
        slices = _Slices(
            begin, marks.offsets[first:number], marks.lsns[first:number], marks.times[first:number]
        )
        if not slices.lsns or slices.lsns[-1] < self._last:
            slices.ends.append(end)
            slices.lsns.append(behind[0])
            slices.times.append(behind[1])
        return slices

    def _over(self, base: int, fd: int, slices: _Slices, ends_at: float) -> bool:
        """Search a segment; whether the search ends in it."""
        reached, scan, done = self._reached, self._scan, 0
        while done < len(slices.ends):
            if self._walk.stopped:
                raise Stopped
            at, before = slices.begin_of(done), scan.counted
            # The slice that reaches the limit is searched, too.
            behind = bisect_left(slices.ends, at + self._limits.nbytes - reached.nbytes, done) + 1
            passed, met, unknown = scan.pass_over(
                fd, slices.ends[done:behind], at, self._first, self._last, base,
                ends_at - time.monotonic(), self._found is None,
            )  # fmt: skip
            reached.count += scan.counted - before
            reached.damaged = scan.damaged
            if unknown:
                self._walk.decide(unknown)
            elif met:
                at = slices.begin_of(done + passed)
                with memoryview(os.pread(fd, slices.ends[done + passed] - at, at)) as data:
                    self._look(data, base)
                if self._enough:
                    reached.nbytes += slices.ends[done + passed] - slices.begin_of(done)
                    reached.time_ms = slices.times[done + passed]
                    return True
                passed += 1
            if passed:
                reached.nbytes += slices.begin_of(done + passed) - slices.begin_of(done)
                done += passed
                reached.lsn = max(reached.lsn, slices.lsns[done - 1])
                reached.time_ms = slices.times[done - 1]
                if reached.nbytes >= self._limits.nbytes or time.monotonic() >= ends_at:
                    return True
        return False

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
