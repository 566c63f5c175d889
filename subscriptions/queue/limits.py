"""The limits of a queue: TTL, length, overflow, eviction, refused messages. They decide what leaves it
undone, and when.

Most queues have none, and pay nothing. A queue with `Limits` is checked before and after each pump:

    before    refused messages leave. Messages over the limits leave, too, if a getter would be served
              next, or if they had to be read from the disk first: newcomers get none of them
    after     evicted messages, and those over the limits that no consumer took, are dropped, from the head or
              from the end. Then the head is checked, and a timer set for the moment when it expires

A refused or expired message is OUT until it is buried: given to `bury`, and its place settled afterwards.
The copy, and the cursor's record that the original is done, are one unit of the log. So a crash leaves
exactly one of the two messages. A record that is no longer in memory is loaded first.

Only a queue with `bury` or a time to live checks its head in time. Others drop expired records when they
meet them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.subscriptions.cursor._events import settled_as

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["NO_RULES", "Bury", "Limits", "Overflow", "Rules"]

logger = logging.getLogger("penstock.subscriptions")

Bury = Callable[["Record", str, bytes], bool]
"""Called with a record, why it left the queue, and its note (`Cursor.note`).

The reason is "rejected", "expired", "maxlen" or "delivery_limit". It appends what becomes of the record to
the log. False: nothing may become of it now, and it may not be lost; ask again later. Never False for
"maxlen".
"""


class Overflow(Enum):
    """The handling of messages that are too many."""

    DROP_HEAD = "drop-head"
    """The oldest leave."""
    DROP_NEWEST = "drop-newest"
    """The newest leave, those that no consumer takes at once: each queue drops its own."""
    REJECT = "reject-publish"
    """The newest are refused."""
    REJECT_DLX = "reject-publish-dlx"
    """The same, and they are dead-lettered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a queue beyond plain queueing. `Queue.apply` changes them while messages flow."""

    bury: Bury | None = None
    """Takes what leaves the queue undone; None: it is dropped."""
    ttl_ms: int | None = None
    """Messages older than this have expired, whatever their own time; None: they have only that."""
    max_length: int | None = None
    """Ready messages it may hold; None: any number."""
    max_bytes: int | None = None
    """Bytes of their bodies; None: any number."""
    overflow: Overflow = Overflow.DROP_HEAD
    delivery_limit: int | None = None
    """A message that was given back this often leaves the queue the next time; None: never."""
    tells_count: bool = False
    """Whether consumers are told how often a message was given back."""
    expires_ms: int | None = None
    """A queue that nobody used for so long is deleted; None: it stays."""

    @property
    def bounded(self) -> bool:
        """Whether there is a limit to what it may hold."""
        return self.max_length is not None or self.max_bytes is not None

    @property
    def sheds(self) -> bool:
        """Whether messages are dropped from the head when there are too many."""
        return self.bounded and self.overflow is Overflow.DROP_HEAD

    @property
    def refuses(self) -> bool:
        """Whether messages are refused when there are too many."""
        return self.bounded and self.overflow in (Overflow.REJECT, Overflow.REJECT_DLX)

    @property
    def caps(self) -> bool:
        """Whether the newest are dropped when there are too many."""
        return self.bounded and self.overflow is Overflow.DROP_NEWEST

    @property
    def ages(self) -> bool:
        """Whether the head leaves in time, also when nobody takes it."""
        return self.bury is not None or self.ttl_ms is not None

    @property
    def passive(self) -> bool:
        """Whether nothing has to be done for them but what a cursor does by itself."""
        return not (self.ages or self.sheds or self.caps or self.max_bytes is not None)


NO_RULES: Final = Rules()

_RETRY_MIN_S: Final = 0.01
_RETRY_MAX_S: Final = 1.0
"""Until what nothing could become of is tried again; it doubles from the one to the other."""
_STUCK_MAX: Final = 10_000
"""So many wait for that at most before the head is left alone."""
_BURIED_AT_ONCE: Final = 128
"""Records handed to `bury` in one go (a few ms); the rest follows in the next turns."""
_DROPPED_AT_ONCE: Final = 1024
"""Items of one take."""


class Limits:
    """Of one queue; see the module."""

    __slots__ = (
        "_behind",
        "_due_ms",
        "_evict_before",
        "_on_evicted",
        "_queue",
        "_refused",
        "_requeued",
        "_retry",
        "_retry_s",
        "_rules",
        "_timer",
    )

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._rules = NO_RULES
        self._refused: deque[tuple[int, str]] = deque()
        self._timer: Any = None
        self._due_ms = 0
        self._retry: Any = None
        self._retry_s = _RETRY_MIN_S
        self._evict_before = 0
        self._on_evicted: Callable[[int], object] = int
        self._requeued = queue.cursor.requeued
        """Messages that had come back when it was shortened last."""
        self._behind = False
        """Messages over the limits are being read from the disk."""

    def change(self, rules: Rules) -> bool:
        """Hold from now on; False: nothing is left to do, and nothing of this is needed any more."""
        self._rules = rules
        cursor = self._queue.cursor
        its = cursor.rules
        its.on_excess = self._too_many
        if rules.bury is not None:
            its.on_expired = self._expired
            its.on_refused = self._refuse
        else:
            its.on_expired = its.on_refused = None
            for seq, reason in self._refused:
                settled_as(cursor, seq, "drop", reason)
            self._refused.clear()
            self._evict_before = 0
        # The head may end sooner than it did, and what was stuck may have somewhere to go.
        self._stop_timers()
        return not rules.passive

    def _refuse(self, seq: int, reason: str) -> None:
        self._refused.append((seq, reason))
        self._queue.wake()

    def _expired(self, seqs: list[int]) -> None:
        self._refused.extend((seq, "expired") for seq in seqs)
        self._queue.wake()

    def _too_many(self, seqs: list[int]) -> None:
        if self._rules.bury is not None:
            self._refused.extend((seq, "maxlen") for seq in seqs)
            self._queue.wake()
            return
        self._queue.dropped += len(seqs)
        for seq in seqs:
            settled_as(self._queue.cursor, seq, "drop", "maxlen")

    def evict(self, before: int, evicted: Callable[[int], object]) -> bool:
        """Bury what is ready below position `before`, in the next turns; False: nothing is to be buried.

        `evicted` is called with numbers of messages.
        """
        if self._rules.bury is None:
            return False
        self._evict_before = max(self._evict_before, before)
        self._on_evicted = evicted
        self._queue.wake()
        return True

    # Around a pump

    def before(self) -> bool:
        """Let go of what must leave before anybody is served; False: that goes on later."""
        queue = self._queue
        if not self._bury_refused():
            return False
        serves_getters = queue.has_getters and not queue.consumer_count
        # Returned messages count as waiting; new ones only after the consumers had their turn.
        came_back = queue.cursor.requeued != self._requeued
        if (self._behind or serves_getters or came_back) and not self.shorten():
            return False
        self._requeued = queue.cursor.requeued
        return True

    def _bury_refused(self) -> bool:
        """Let go of what was refused; False: some of it must be loaded first."""
        if self._retry is not None or not self._refused:
            return True
        with self._queue.log.unit():
            done = self._bury_some()
            self._queue.promise()
        if done and self._refused and self._retry is None:
            self._queue.wake()
        return done

    def _bury_some(self) -> bool:
        queue, cursor, bury = self._queue, self._queue.cursor, self._rules.bury
        for _ in range(min(len(self._refused), _BURIED_AT_ONCE)):
            assert bury is not None
            seq, reason = self._refused[0]
            position = cursor.position(seq)
            if position:
                batch = queue.log.cache.get(position)
                if batch is None:
                    queue.load(position)
                    return False
                record = batch.record(position - batch.base_lsn)
                if not bury(record, reason, cursor.note_of(position)):
                    self._retry = queue.tick.after(self._retry_s, self._try_again)
                    self._retry_s = min(2 * self._retry_s, _RETRY_MAX_S)
                    return True
                self._retry_s = _RETRY_MIN_S
                queue.dropped += reason == "maxlen"
                settled_as(cursor, seq, "dead_letter", reason)
                queue.tick.schedule()
            self._refused.popleft()
        return True

    def _try_again(self) -> None:
        self._retry = None
        self._queue.wake()

    def ready_count(self, ready: int) -> int:
        """Of so many that are ready, those that stay so: what is over the limit is dropped when it is
        written, at the latest before anybody gets some."""
        max_length = self._rules.max_length
        return ready if not self._rules.sheds or max_length is None else min(ready, max_length)

    def _evict(self) -> bool:
        """Have the next of what is evicted buried; False: it goes on later."""
        queue, cursor = self._queue, self._queue.cursor
        cursor.gather()
        if cursor.cold or cursor.cold_feed is not None or cursor.more:
            queue.caught_up()
            return False
        seqs = cursor.take_before(self._evict_before, _STUCK_MAX)
        if not seqs:
            # A message that is ready now is behind that, or was never taken.
            if not cursor.take(_BURIED_AT_ONCE) and not queue.caught_up():
                return False
            seqs = [seq for seq, position, *_ in cursor.records() if position < self._evict_before]
            cursor.put_back(len(seqs))
        if not seqs:
            self._evict_before = 0
            return True
        for seq in seqs:
            cursor.unhold(seq)
        self._refused.extend((seq, "maxlen") for seq in seqs)
        self._on_evicted(len(seqs))
        queue.wake()
        return False

    def shorten(self) -> bool:
        """Drop what is over the limits; False: it goes on later."""
        done = self._shorten()
        self._behind = not done and self._queue.is_reading
        return done

    def _shorten(self) -> bool:
        if self._evict_before and not self._evict():
            return False
        rules = self._rules
        queue, cursor = self._queue, self._queue.cursor
        if rules.caps:
            cursor.cap(-1 if rules.max_length is None else rules.max_length)
        elif rules.max_bytes is not None:
            cursor.gather()
        if rules.caps or rules.max_bytes is not None:
            if cursor.cold or cursor.cold_feed is not None or cursor.more:
                queue.caught_up()
                return False
        if not rules.sheds:
            return True
        at_once = _DROPPED_AT_ONCE if rules.bury is None else _BURIED_AT_ONCE
        while excess := self._excess():
            taken = cursor.take(min(excess, at_once))
            if taken == 0:
                return queue.caught_up()
            dropped = self._drop(taken)
            if rules.bury is not None:
                queue.wake()
                return False
            if dropped < taken:
                break
        return True

    def _excess(self) -> int:
        """At most so many are over the limits."""
        rules, cursor = self._rules, self._queue.cursor
        ready = cursor.ready_count()
        if rules.max_bytes is not None and cursor.ready_bytes > rules.max_bytes:
            return ready
        return 0 if rules.max_length is None else max(ready - rules.max_length, 0)

    def _drop(self, taken: int) -> int:
        """Drop the items of the last take, until what is left keeps to the limits; how many."""
        if self._rules.bury is None:
            return self._drop_some(taken)
        with self._queue.log.unit():
            dropped = self._drop_some(taken)
            self._queue.promise()
        self._queue.tick.schedule()
        return dropped

    def _drop_some(self, taken: int) -> int:
        rules, cursor = self._rules, self._queue.cursor
        items = cursor.records()
        sizes = cursor.sizes()
        count, size = cursor.ready_count() + taken, cursor.ready_bytes + sum(sizes)
        dropped = 0
        while dropped < taken and (
            (rules.max_length is not None and count - dropped > rules.max_length)
            or (rules.max_bytes is not None and size > rules.max_bytes)
        ):
            size -= sizes[dropped]
            if rules.bury is not None:
                batch, at = cursor.record(dropped)
                record = batch.record(at)
                rules.bury(record, "maxlen", cursor.note_of(record.lsn))
            dropped += 1
        self._queue.dropped += dropped
        kind = "drop" if rules.bury is None else "dead_letter"
        for seq, *_ in items[:dropped]:
            settled_as(cursor, seq, kind, "maxlen")
        cursor.put_back(dropped)
        return dropped

    def after(self) -> None:
        """Wait for what comes next: the head's end, or new messages."""
        queue, cursor = self._queue, self._queue.cursor
        if not self.shorten():
            return
        if self._rules.sheds or self._rules.caps:
            queue.watch()
        if not self._rules.ages or len(self._refused) >= _STUCK_MAX:
            return
        if cursor.take(1):
            due_ms = cursor.deadline()
            cursor.put_back(0)
            if due_ms >= 0:
                self._wake_at(due_ms)
        else:
            queue.caught_up()

    def _wake_at(self, due_ms: int) -> None:
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        left_ms = max(due_ms - self._queue.log.now_ms(), 0) + 1
        self._timer = self._queue.tick.after(left_ms / 1000, self._due)

    def _due(self) -> None:
        self._timer = None
        self._queue.wake()

    def _stop_timers(self) -> None:
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._timer = self._retry = None

    def close(self) -> None:
        """The queue is deleted, or needs this no more."""
        self._stop_timers()
        its = self._queue.cursor.rules
        its.on_expired = its.on_refused = its.on_excess = None
        self._refused.clear()
