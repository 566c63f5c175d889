"""All queues of the process: their numbers, their state records, and what they still need of the log.

Owns the table `cursor`: key = qid u64 big-endian, value = the cursor's state record (`_state_record`).

The router owns names, arguments and bindings, and says at start which queues exist (`restore`). A changed
cursor is written within `cursor_flush_ms`, many with one write. `join` and `leave` of a durable queue are
put at once. Queues that are not durable have qid 0 and write nothing.

Knows no protocol, and no name's meaning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.errors import SubscriptionError
from penstock.subscriptions.fault_isolation import guarded
from penstock.subscriptions.options import QueueOptions
from penstock.subscriptions.queue._all_queues import lowest, moved
from penstock.subscriptions.queue.idle_expiry import IdleExpiry
from penstock.subscriptions.queue.queue import RUNS_PROMISED, Queue
from penstock.subscriptions.streams.replay import Follower, Replay
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.log_core.log import Log
    from penstock.log_core.maintenance._seal import Needs
    from penstock.subscriptions.tick.tick import Tick

__all__ = ["Queues"]

_LOG: Final = logging.getLogger("penstock.subscriptions")

TABLE: Final = "cursor"
_NOTHING: Final = (1 << 64) - 1
_FLUSH_AT_ONCE: Final = 2000
"""State records put in one go (about 3 ms); the rest follows in the next turns."""
_MOVED_AT_ONCE: Final = 64
"""Queues asked whether they moved in one go (about 10 us)."""
_SWEEP_AT_ONCE: Final = 5000
"""Cursors asked for their low position in one go (below 1 ms)."""


class Queues:
    """The registry of queues."""

    def __init__(self, log: Log, tick: Tick, options: QueueOptions | None = None) -> None:
        self.log = log
        self.tick = tick
        self.options = options or QueueOptions()
        self.on_unneeded: Callable[[Queue], None] | None = None
        """Called when an auto-delete queue lost its last consumer, or nobody used a queue for long enough:
        the router deletes it.
        """
        self.idle = IdleExpiry(tick, self.unneeded)
        self.on_feed_unused: Callable[[Feed], None] | None = None
        """Called when the last membership of a feed is gone (left and drained, or its queue deleted)."""
        self.created = self.deleted = self.declared = 0
        """Queues made, deleted, and declared or found declared, since the start."""
        self.on_deleted: list[Callable[[Queue], object]] = []
        """Called with each queue that is being deleted, while what it counted can be read."""
        self.followers: dict[Queue, list[Follower]] = {}
        """Those who get what a queue gets, by the queue."""
        self._all: list[Queue] = []
        self._streams: dict[Stream, None] = {}
        self._next_qid = 1 + max((int.from_bytes(key, "big") for key in log.tables.keys(TABLE)), default=0)
        self._restored: set[int] = set()
        self.dirty_queues: list[Queue] = []
        self._flush_timer: Any = None
        self._feeds_used = 0
        # After an unclean stop nobody knows what had been delivered: all of it may have been.
        self._unclean_until = 0 if log.recovery.clean else log.appender.next_lsn - 1
        log.before_checkpoint.append(self._anchor)
        self._low = self._sweep_low = 0
        self._swept_to = 0
        """The LSN below which the last sweep looked at everything."""
        self._sweep_left = 0
        """Queues that the sweep looks at yet."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Any:
        return iter(self._all)

    # Making and ending

    def create(
        self,
        name: str,
        vhost: str,
        *,
        durable: bool,
        kind: Kind = Kind.SHARED,
        owner: object = None,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        priority_max: int = 0,
        cls: type[Queue] | None = None,
    ) -> Queue:
        """A new queue without memberships. A durable one has a new `qid`, to be kept by the caller.

        `cls`: which class of queue it is, where the kind does not say so.
        `priority_max` (0 to 255): messages of higher priority come first, all above it count as that.
        """
        self.created += 1
        qid = 0
        if durable:
            qid = self._next_qid
            self._next_qid += 1
        queue = (cls or self._class_of(kind))(
            self,
            qid,
            name,
            vhost,
            kind=kind,
            owner=owner,
            auto_delete=auto_delete,
            arguments=arguments,
            priority_max=priority_max,
        )
        self._register(queue)
        return queue

    def restore(
        self,
        qid: int,
        name: str,
        vhost: str,
        *,
        kind: Kind = Kind.SHARED,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        priority_max: int = 0,
        cls: type[Queue] | None = None,
    ) -> Queue:
        """The durable queue `qid` as its state record has it; without a record it starts empty.

        Raises:
            SubscriptionError: the record is damaged, or `qid` was restored already.

        """
        if qid <= 0 or qid in self._restored:
            raise SubscriptionError(f"queue {name!r} in vhost {vhost!r}: number {qid} cannot be restored")
        queue = (cls or self._class_of(kind))(
            self,
            qid,
            name,
            vhost,
            kind=kind,
            auto_delete=auto_delete,
            arguments=arguments,
            priority_max=priority_max,
        )
        self._restored.add(qid)
        if qid >= self._next_qid:
            self._next_qid = qid + 1
        record = self.log.tables.get(TABLE, _key(qid))
        if record is not None:
            queue.cursor.restore(record, self.log.feeds.get, self._unclean_until)
            for feed in queue.cursor.feeds:
                self.used(feed)
        self._register(queue)
        return queue

    def _register(self, queue: Queue) -> None:
        # A list, and each queue knows its place in it: a dictionary costs 50 bytes a queue.
        self._all.append(queue)
        queue.cursor.place = len(self._all)
        if isinstance(queue, Stream):
            self._streams[queue] = None

    def _unregister(self, queue: Queue) -> None:
        place, queue.cursor.place = queue.cursor.place, 0
        last = self._all.pop()
        if last is not queue:
            self._all[place - 1] = last
            last.cursor.place = place
        if isinstance(queue, Stream):
            del self._streams[queue]

    def keep(self, queue: Queue) -> int:
        """Make a queue that is not durable so: it gets a number and its record. The LSN to wait for."""
        queue.qid = self._next_qid
        self._next_qid += 1
        queue.cursor.clean()
        queue.cursor.is_kept = True
        self.tick.schedule()
        return self.log.tables.put(TABLE, _key(queue.qid), queue.cursor.state())

    def replay(self, queue: Queue, position: int) -> Queue:
        """A reader of what `queue` got from `position` on, and of what it gets; see `replay`."""
        return Replay(self, queue, position)

    def follow(self, queue: Queue, position: int) -> Queue:
        """The same, also by feeds that `queue` joins later, until it is deleted."""
        return Follower(self, queue, position)

    @staticmethod
    def _class_of(kind: Kind) -> type[Queue]:
        return Stream if kind is Kind.STREAM else Queue

    def restored(self) -> int:
        """All queues were restored: drop the records of those that were not. How many were dropped."""
        # Not before: a feed that one queue has left and read may be another's.
        for queue in self._all:
            if queue.cursor.member_count:
                queue._reap()
        orphans = [
            key for key in self.log.tables.keys(TABLE) if int.from_bytes(key, "big") not in self._restored
        ]
        for key in orphans:
            self.log.tables.delete(TABLE, key)
        self._restored.clear()
        return len(orphans)

    def forget(self, queue: Queue) -> int:
        """Part of Queue.delete: the LSN to wait for, or 0."""
        if queue.cursor.place:
            self._unregister(queue)
            self.deleted += 1
            for told in self.on_deleted:
                told(queue)
        self.idle.lease(queue, None)
        for feed in queue.cursor.feeds:
            self.unused(feed)
        if queue.qid and self.log.tables.get(TABLE, _key(queue.qid)) is not None:
            self.tick.schedule()
            return self.log.tables.delete(TABLE, _key(queue.qid))
        return 0

    def unneeded(self, queue: Queue) -> None:
        """A queue is to be deleted: see `on_unneeded`."""
        if self.on_unneeded is not None:
            self.on_unneeded(queue)

    # Feeds in use

    def used(self, feed: Feed) -> None:
        """A membership of `feed` began."""
        self._feeds_used += not feed.users
        feed.users += 1

    def unused(self, feed: Feed) -> None:
        """A membership of `feed` is gone."""
        feed.users -= 1
        if feed.users:
            return
        self._feeds_used -= 1
        if self.on_feed_unused is not None:
            self.on_feed_unused(feed)

    def is_used(self, feed: Feed) -> bool:
        """Whether some queue still has or needs entries of `feed`."""
        return feed.users > 0

    # State records

    def mark_dirty(self, queue: Queue) -> None:
        """A durable queue's state record is out of date: it will be put soon."""
        self.dirty_queues.append(queue)
        if self._flush_timer is None:
            self._flush_timer = self.tick.after(self.options.cursor_flush_ms / 1000, self._flush)

    def persist_one(self, queue: Queue) -> int:
        """Put one queue's record now if it is out of date; its LSN, or 0."""
        cursor = queue.cursor
        if not queue.qid or queue.deleted or not cursor.dirty:
            return 0
        self.tick.schedule()
        lsn = self.log.tables.put(TABLE, _key(queue.qid), cursor.state(queue.runs_max))
        cursor.clean()
        return lsn

    def _flush(self) -> None:
        self._flush_timer = None
        if self.log.failed is not None:
            return  # nothing can be kept any more
        appender = self.log.appender
        state_lsn = appender.state_lsn
        some = self.dirty_queues[:_FLUSH_AT_ONCE]
        del self.dirty_queues[:_FLUSH_AT_ONCE]
        wait_s = 0.0
        for queue in some:
            if not queue.deleted and not guarded(_LOG, f"{queue!r} cannot be put yet", self._keep, queue):
                self.dirty_queues.append(queue)
                wait_s = self.options.cursor_flush_ms / 1000
        appender.state_lsn = state_lsn  # nobody waits for these rows
        if self.dirty_queues:
            self._flush_timer = self.tick.after(wait_s, self._flush)

    def _keep(self, queue: Queue) -> None:
        queue._reap()
        self.persist_one(queue)

    def close(self) -> None:
        """Put every record that is out of date, exactly: what is out counts as given back.

        For a clean stop, after all connections are gone and before the log closes. Nothing after the log
        failed.
        """
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self.log.failed is not None:
            return
        self._anchor()
        for queue in self._all:
            cursor = queue.cursor
            # A message may have been delivered before a crash: it stays marked so while it is not done.
            is_doubtful = self._unclean_until and cursor.low() <= self._unclean_until
            if queue.qid and (cursor.dirty or cursor.outstanding or is_doubtful):
                cursor.clean()
                self.log.tables.put(TABLE, _key(queue.qid), cursor.state(RUNS_PROMISED, True))
        self.dirty_queues.clear()

    def _anchor(self) -> None:
        for stream in self._streams:
            stream.anchor()

    # The part of the log that is needed

    def low_water(self) -> int:
        """A position such that no queue needs a record below it.

        With up to 5,000 queues it is exact at the time of the call. With more, a call looks at streams, and
        the rest is that of the last sweep; a call begins a new sweep in the background when something was
        appended since the last one. Positions only rise, and what is appended during a sweep lies above the
        sweep's horizon, so an old answer is a safe one.
        """
        horizon = self.log.appender.next_lsn
        if len(self._all) <= _SWEEP_AT_ONCE:
            self._low = min(lowest(self._all, 0, len(self._all)), horizon)
        elif not self._sweep_left and horizon > self._swept_to:
            self._sweep_left = len(self._all)
            self._swept_to = self._sweep_low = horizon
            self._sweep_some()
        return min(self._low, *(stream.low() for stream in self._streams), _NOTHING)

    def needs(self, needs: Needs, done: Callable[[], object]) -> None:
        """Mark which records of a segment some queue still needs, then call `done`, now or in a later turn.

        A message that is settled meanwhile is marked or not; nothing joins so far back. Entries of the past
        that left memory are read by a thread; when they cannot be read, the segment stays whole.
        """
        ahead = list(self._all)
        missing: list[tuple[Feed, int]] = []

        def mark(queue: Queue) -> None:
            found = queue.needs(needs) if queue.low() < needs.end else None
            if found is not None:
                missing.append(found)

        def loaded(ok: bool) -> None:
            if not ok:
                needs.need_marked(b"\xff" * ((needs.end - needs.base) // 8 + 1))
                ahead.pop()
            some()

        def some() -> None:
            for _ in range(min(_SWEEP_AT_ONCE, len(ahead))):
                queue = ahead[-1]
                if not guarded(
                    _LOG, f"what {queue!r} needs is not known: a segment stays whole", mark, queue
                ):
                    needs.need_marked(b"\xff" * ((needs.end - needs.base) // 8 + 1))
                if missing:
                    self.log.load_feed_once(*missing.pop(), loaded)
                    return
                ahead.pop()
            if ahead:
                self.tick.after(0, some)
            else:
                done()

        some()

    def _sweep_some(self) -> None:
        if not guarded(_LOG, "what queues need is not known: no segment is deleted now", self._sweep_next):
            self._sweep_left = self._swept_to = 0  # the next call begins anew
            return
        if self._sweep_left:
            self.tick.after(0, self._sweep_some)
        else:
            self._low = max(self._low, self._sweep_low)

    def _sweep_next(self) -> None:
        # From the end, as in `moved`.
        end = min(self._sweep_left, len(self._all))
        self._sweep_left = max(end - _SWEEP_AT_ONCE, 0)
        self._sweep_low = min(self._sweep_low, lowest(self._all, self._sweep_left, end))

    # Statistics

    def moved(self) -> Iterator[tuple[list[Queue], list[Queue]]]:
        """Those never asked about, and those whose counts may have changed since the last time; in parts.

        Queues may come and go between two parts. One that comes then is in the next answer.
        """
        # From the end: where a queue goes, the last one takes its place.
        for end in range(len(self._all), 0, -_MOVED_AT_ONCE):
            yield moved(self._all, max(end - _MOVED_AT_ONCE, 0), end)
        yield [], [stream for stream in self._streams if stream.cursor.is_counted() and stream.has_moved()]

    def statistics(self) -> dict[str, int]:
        """Figures of the registry."""
        return {
            "queues": len(self._all),
            "feeds_used": self._feeds_used,
            "cursors_dirty": len(self.dirty_queues),
        }


def _key(qid: int) -> bytes:
    return qid.to_bytes(8, "big")
