"""Housekeeping: decides what happens to closed segments, and when.

    closed -> indexed -> (a checkpoint behind it) -> beyond traffic retention: deleted, or rewritten with the
    records that are still needed

It decides on the loop. The thread of `Upkeep` does the work, and its results come back through the log's
`post`. Segments are deleted, rewritten or searched one job at a time, so that no job works on a segment
that another one removes.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.log_core.files.layout import WAL_HEAD_BYTES
from penstock.log_core.files.manifest import CleanMark
from penstock.log_core.maintenance._seal import Needs
from penstock.log_core.maintenance.compaction import Compacted, is_due, survivors
from penstock.log_core.maintenance.retention import Kept, given_up, kept
from penstock.log_core.maintenance.sealing import seal, unwanted_bytes, worth_a_look
from penstock.log_core.maintenance.upkeep import deletable
from penstock.log_core.recovery.checkpoint import Checkpoint
from penstock.log_core.segments.segment import EVERYBODY, OWN

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.log_core.feeds.feeds import Feeds
    from penstock.log_core.files.files import Files
    from penstock.log_core.files.layout import Folder
    from penstock.log_core.files.manifest import Manifest
    from penstock.log_core.history.histories import Histories
    from penstock.log_core.log import Log
    from penstock.log_core.maintenance.upkeep import Upkeep
    from penstock.log_core.segments.segment import Segment, Segments

__all__ = ["Housekeeping"]

_LOG: Final = logging.getLogger("penstock.log")

_TABLE: Final = "log"
_CHECKPOINT_EACH_S: Final = 60.0
"""Least time between two checkpoints that are taken for nothing but that segments may go."""


class Housekeeping:
    """Owned by one Log; everything here runs on the loop, and stops when `closed` is set."""

    def __init__(
        self,
        log: Log,
        files: Files,
        folder: Folder,
        segments: Segments,
        manifest: Manifest,
        upkeep: Upkeep,
        histories: Histories,
        feeds: Feeds,
        post: Callable[..., None],
    ) -> None:
        """For Log only, when it has recovered."""
        self._log = log
        self._files = files
        self._folder = folder
        self._segments = segments
        self._manifest = manifest
        self._upkeep = upkeep
        self._histories = histories
        self._feeds = feeds
        self._post = post
        self._unfinished: list[Segment] = []
        """Synced; their index files could not be made yet."""
        self._checkpointing = False
        self.checkpoints = manifest.checkpoints
        """The LSNs of those that are durable, newest first."""
        self.busy = False
        """Segments are being deleted or rewritten."""
        self.closed = False
        self.sealed_bytes = 0
        """Bytes that rewriting saved, ever."""
        self.short_bytes = 0
        """Bytes that the disk lacks of its spare room: the oldest traffic gives way."""
        self._pushed_at = log.wall_ms() / 1000

    def tend(self) -> None:
        """Work that is due each second."""
        for segment in self._unfinished[:]:
            self._unfinished.remove(segment)
            self.finish(segment)
        self._feeds.trim()
        self._log.retention_feeds.tend()
        self._measure_one()
        self._push_checkpoints()
        self.delete_old()
        self.seal_one()

    def lacks(self, nbytes: int) -> None:
        """The disk lacks so many bytes of the room it is to have, or has it (0, or less)."""
        was, self.short_bytes = self.short_bytes, max(nbytes, 0)
        if self.short_bytes and not was:
            _LOG.warning("the disk runs short of %d MiB: the oldest traffic gives way", -(-nbytes >> 20))
        elif was and not self.short_bytes:
            _LOG.info("the disk has room again; traffic is kept as retention says")

    def _background(
        self, work: Callable[[], object], done: Callable[[object, OSError | None], object]
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except OSError as error:
                self._post(done, None, error)
            except Exception as error:
                # It must be heard of, or no segment would ever be looked after again.
                _LOG.exception("the work on closed segments failed; it is tried again")
                self._post(done, None, OSError(errno.EIO, f"an internal error: {error!r}"))
            else:
                self._post(done, result, None)

        self._upkeep.pool.submit(run)

    # Closed segments

    def finish(self, segment: Segment) -> None:
        """Cut a closed and synced segment to its size and make its index files."""

        def done(nbytes: object, error: OSError | None) -> None:
            if error is not None:
                _LOG.warning("no index for %s yet: %s", segment.path, error)
                self._unfinished.append(segment)
                return
            assert isinstance(nbytes, int)
            segment.indexed = True
            segment.marks = None
            self._log.delays.indexed(segment)
            self._feeds.indexed(segment, nbytes)
            self.delete_old()

        needed = self._log.low_water() < segment.next_lsn
        self._background(lambda: self._upkeep.finish(segment, needed), done)

    def end(self) -> None:
        """Leave the folder so that the next start need not scan anything; the threads have ended.

        Raises OSError; the log is safe then, too.
        """
        live = self._segments.live
        try:
            for segment in live:
                if not segment.indexed:
                    self._upkeep.finish(segment, needed=True)
            number = live[-1].number if live else 0
            mark = CleanMark(
                self._manifest.log_id,
                self._manifest.epoch,
                number,
                self._log.written_lsn,
                live[-1].end if live else 0,
            )
            self._upkeep.checkpoint(Checkpoint(mark.lsn, number), self._log.tables.snapshot())
            self._files.reached("stop.checkpoint")
            mark.write(self._files, self._folder.clean)
        except OSError as error:
            _LOG.error("the log is safe, but could not be closed cleanly: %s", error)
            raise

    # Checkpoints

    def checkpoint(self) -> None:
        """Write the tables to a checkpoint, unless one is being written."""
        if self._checkpointing:
            return
        log = self._log
        self._checkpointing = True
        log.checkpoint_at = log.appender.appended_bytes + log.options.checkpoint_bytes
        for prepare in log.before_checkpoint:
            prepare()
        where = Checkpoint(log.written_lsn, self._segments.live[-1].number)
        try:
            rows = log.tables.snapshot()
        except OSError as error:
            self._checkpointing = False
            _LOG.warning("no checkpoint at LSN %d: %s", where.lsn, error)
            return

        def done(kept: object, error: OSError | None) -> None:
            self._checkpointing = False
            log.tables.release()
            if error is not None:
                _LOG.warning("no checkpoint at LSN %d: %s", where.lsn, error)
                return
            assert isinstance(kept, list)
            self.checkpoints = kept
            self.delete_old()

        def synced(ok: bool) -> None:
            if ok:
                self._background(lambda: list(self._upkeep.checkpoint(where, rows)), done)
            else:
                log.tables.release()

        log.when_synced(where.lsn, synced)

    def _push_checkpoints(self) -> None:
        """Have the checkpoints follow, where nothing but them keeps a segment: little may be written, or
        nothing, on a disk that is short.

        There are two, and both must lie behind what goes. Two of the same LSN are one: a row comes between.
        """
        log = self._log
        covered = self.checkpoints[-1] if len(self.checkpoints) > 1 else -1
        kept_back = next((s for s in self._segments.live[:-1] if s.next_lsn > covered + 1), None)
        now_s = log.wall_ms() / 1000
        due = self.short_bytes or abs(now_s - self._pushed_at) >= _CHECKPOINT_EACH_S
        if self._checkpointing or self.closed or kept_back is None or not due or log.appender.in_unit:
            return
        if not kept_back.indexed or kept_back.next_lsn > self.retained.lowest:
            return
        self._pushed_at = now_s
        if log.written_lsn in self.checkpoints:
            log.tables.put(_TABLE, b"pushed", log.wall_ms().to_bytes(8, "big"))
            log.flush()
        self.checkpoint()

    # Deletion

    def delete_old(self) -> None:
        """Delete what nobody needs; see `upkeep.deletable`."""
        if self.busy or self.closed or self._histories.searching or len(self.checkpoints) < 2:
            return
        live = self._segments.live
        log = self._log
        needed = min(log.low_water(), log.retention_feeds.low)
        count = deletable(live, needed, self.checkpoints[-1], self.retained.lowest)
        # Segments that only delayed records keep; looked at even when there are none: this follows the disk.
        needed = log.delays.low_water(live)
        log.delays.mover.look([segment for segment in live[:count] if segment.next_lsn > needed])
        count = sum(segment.next_lsn <= needed for segment in live[:count])
        if not count:
            return
        gone = live[:count]
        del live[:count]
        self._feeds.drop_all_before(gone, live[0].base_lsn)
        self.busy = True

        def done(_: object, error: OSError | None) -> None:
            self.busy = False
            if error is not None:
                _LOG.warning("old files of the log are still there: %s", error)

        self._background(lambda: self._upkeep.delete(gone), done)

    def statistics(self) -> dict[str, int]:
        """Counters and levels, for metrics."""
        live = self._segments.live
        return {
            "segments": len(live),
            "segment_bytes": sum(segment.end for segment in live),
            "first_lsn": live[0].base_lsn,
            "segments_sealed": sum(segment.sealed for segment in live),
            "sealed_bytes": self.sealed_bytes,
        }

    # Sealing

    @property
    def retained(self) -> Kept:
        """The wishes of traffic retention and leases."""
        live = self._segments.live
        leased = self._log.leases.kept_from(live, self._log.options.lease_bytes)
        below = given_up(live, self.short_bytes)
        return kept(live, self._log.wall_ms(), self._log.retention_of, leased, below)

    def held_bytes(self, lp: int, since: int) -> int:
        """Bytes of a partition in the segments from LSN `since` on; of those whose index does not say it, not
        yet. Within a segment they are taken to be spread evenly over its bytes, or over its LSNs where its
        sparse index is not in memory.
        """
        total = 0
        for segment in self._segments.live:
            nbytes = segment.held.get(lp, 0) if segment.held is not None else 0
            if nbytes and segment.next_lsn > since:
                behind = segment.next_lsn - max(since, segment.base_lsn)
                whole = segment.next_lsn - segment.base_lsn
                if segment.marks is not None:
                    behind = segment.end - segment.marks.offset_of(since)
                    whole = segment.end - WAL_HEAD_BYTES
                total += nbytes * behind // whole
        return total

    def held_since(self, lp: int, nbytes: int) -> int:
        """The base LSN of the oldest segment such that from it on at most so many bytes of a partition are
        held, or of the active one."""
        live = self._segments.live
        for segment in reversed(live):
            nbytes -= segment.held.get(lp, 0) if segment.held is not None else 0
            if nbytes < 0:
                return min(segment.next_lsn, live[-1].base_lsn)
        return live[0].base_lsn

    def _measure_one(self) -> None:
        """Find whose bytes are in a segment of an older version."""
        segment = next((one for one in self._segments.live if one.held is None), None)
        if segment is None or self.busy or self.closed:
            return
        self.busy = True

        def done(found: object, error: OSError | None) -> None:
            self.busy = False
            if error is not None:
                _LOG.warning("%s cannot be measured yet: %s", segment.path, error)
                return
            assert isinstance(found, dict)
            segment.held = found
            segment.thinned = {EVERYBODY} if segment.sealed else set()
            self._measure_one()

        self._background(lambda: self._upkeep.measure(segment), done)

    def compact(self, feed: Feed, since: int, done: Callable[[Compacted], object]) -> None:
        """Find what key compaction keeps of a feed, if that is due, then call `done`; see `compaction`.

        `since`: the `until` of the last complete run. Nothing happens when another job is at work.
        """
        log = self._log
        live = self._segments.live
        closed = [segment for segment in live[:-1] if segment.indexed]
        busy = self.busy or self.closed or self._histories.searching
        if busy or not is_due(closed, feed, since):
            return
        lowest = self.retained.lowest
        beyond = [segment for segment in closed if segment.next_lsn <= lowest]
        now_ms = log.wall_ms()
        self.busy = True

        def work() -> Compacted | None:
            try:
                return survivors(self._segments, closed, beyond, feed, now_ms)
            except ValueError as error:
                _LOG.error("feed %d cannot be compacted: %s", feed.id, error)
                return None

        def finish(found: object, error: OSError | None) -> None:
            self.busy = False
            if error is not None:
                _LOG.warning("feed %d could not be compacted: %s", feed.id, error)
            elif isinstance(found, Compacted):
                done(found)

        self._background(work, finish)

    def seal_one(self) -> None:
        """Rewrite a segment beyond traffic retention that nobody needs whole; see `sealing`."""
        log = self._log
        busy = self.busy or self.closed or self._histories.searching
        if busy or log.mark_needs is None or len(self.checkpoints) < 2:
            return
        candidates = [s for s in self._segments.live[:-1] if not log.delays.waits_in(s)]
        retained = self.retained
        now_s = log.wall_ms() / 1000
        segment = worth_a_look(
            candidates,
            lambda s: unwanted_bytes(s, retained, log.retention_feeds),
            self.checkpoints[-1],
            now_s,
        )
        if segment is None:
            return
        segment.looked_at = now_s
        needs = Needs(segment.base_lsn, segment.next_lsn)
        assert segment.held is not None
        thinned = retained.unwanted(segment)
        for lp in segment.held.keys() - thinned - {OWN}:
            needs.need_partition(lp)
        needs.need_kept(log.retention_feeds.starts_in(segment))
        self.busy = True
        log.mark_needs(needs, lambda: self._rewrite(segment, needs, thinned))

    def _rewrite(self, segment: Segment, needs: Needs, thinned: frozenset[int]) -> None:
        self.busy = False
        log = self._log
        if self.closed or needs.signature() == segment.looked_for:
            return
        fresh, segment.looked_for = segment.looked_for < 0, needs.signature()
        self.busy = True

        def work() -> int:
            try:
                return seal(
                    self._files,
                    self._folder,
                    self._segments,
                    segment,
                    needs,
                    thinned=thinned,
                    log_id=self._manifest.log_id,
                    level=log.options.compression_level,
                    releaser=self._upkeep.releaser,
                )
            except ValueError as error:
                _LOG.error("%s: %s; it stays as it is", segment.path, error)
                return 0

        def done(saved: object, error: OSError | None) -> None:
            self.busy = False
            if error is not None:
                segment.looked_for = -1
                _LOG.warning("%s could not be rewritten: %s", segment.path, error)
                return
            assert isinstance(saved, int)
            self.sealed_bytes += saved
            if fresh:
                self.seal_one()  # so that it keeps up with what is written

        self._background(work, done)
