"""The face of the kernel `_cursor`; what a cursor is stands in _cursor.pyx, its state record in _state.pyx.

Encoders cimport TAKEN and read its items (struct Item, _take_result.pxd). They, and everything else that is
said here of the last take, are valid until the next take of any cursor of the process, or the end of the
tick.
"""

from collections.abc import Callable
from typing import Any, Protocol

from penstock.log_core.batch._batch import Batch
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.maintenance._seal import Needs
from penstock.log_core.reading._tail import Cache
from penstock.subscriptions.cursor._rules import CursorRules

class _Appender(Protocol):
    @property
    def next_lsn(self) -> int:
        """Of the next record."""

class CursorLog(Protocol):
    """The part of the log that a cursor needs."""

    @property
    def cache(self) -> Cache:
        """Batches in memory."""
    @property
    def appender(self) -> _Appender:
        """The appender."""
    @property
    def written_lsn(self) -> int:
        """Of the last record that is written."""
    @property
    def visible_lsn(self) -> int:
        """No record above it may be delivered; 2^64 - 1: there is no such limit."""
    def now_ms(self) -> int:
        """Since the epoch, the same for a whole tick."""
    def load_feed_now(self, feed: Feed, index: int) -> bool:
        """Have the entry in memory, at once, on this thread. False: it cannot be read."""

class Cursor:
    """A queue's memberships, and the window of what it took and has not finished."""

    frontier: int
    """The highest position looked at; no membership joined later reaches below."""
    outstanding: int
    """Taken and neither settled nor given back."""
    expired: int
    """Records dropped because their time was over, since this cursor was made."""
    lost: int
    """Records that could not be read any more, since this cursor was made."""
    settled: int
    """Settlements, since this cursor was made."""
    requeued: int
    """Requeues, since this cursor was made."""
    dirty: bool
    """state() has changed since the last clean()."""
    scheduled: bool
    """Its queue stands on the tick's ready list."""
    queue: Any
    """Its queue, or None: something with wake(), called by requeue, and mark_dirty()."""
    dirty_queues: list[Any] | None
    """The queues whose state records are to be put. While it is not empty, its queue is appended here
    instead of a call of `queue.mark_dirty()`. None: it never is."""
    is_kept: bool
    """Its state record is persisted: `queue.mark_dirty()` is called when `dirty` becomes True."""
    wake_below: int
    """> 0: the queue is woken once fewer are out, and this becomes 0."""
    place: int
    """Of its queue in the registry of queues, from 1 on; 0: it is in none."""
    skip_transient_until: int
    """Records below it that are not PERSISTENT are skipped and done: their session was offline.

    2^64 - 1 while it is: then they do not keep the log either."""
    sent_until: int
    """Positions up to here were sent to the only client: until they are settled, they do not expire."""
    awaited: bool
    """All was handed out, and a consumer with credit waits: it gets what comes next even if that has a time
    to live of 0."""
    unclean_until: int
    """Positions up to here carry the redelivered flag: the process that may have delivered them died."""

    def __init__(self, log: CursorLog) -> None: ...
    def succeed(self, former: Cursor) -> None:
        """Be the cursor of the queue whose cursor was `former`; what that one has out is void."""

    # Memberships

    def join(self, feed: Feed, from_pos: int | None = None, tag: int = 0) -> bool:
        """Take from `feed` what is pushed from now on, or everything from position `from_pos` on.

        A queue never goes back: what lies at or below its frontier is left out. `tag` < 2^31 is what
        `match` says of its items. False: that feed is already a member with that tag.
        """

    def join_part(self, feed: Feed, from_pos: int, to_pos: int | None = None, tag: int = 0) -> None:
        """Take what `feed` has in positions [from_pos, to_pos), or from from_pos on.

        Positions at or below the frontier are left out.
        """

    def begin(self, feed: Feed, index: int) -> None:
        """Take from entry `index` of `feed` on; the only membership of a new cursor."""

    def reach(self, index: int) -> None:
        """Take no entry of the only membership from `index` on, until this is called again."""

    def leave(self, feed: Feed, tag: int = 0) -> bool:
        """End the membership: what was pushed until now still belongs to the queue. False: not a member."""

    def reap(self) -> list[Feed]:
        """Forget ended memberships whose every record is done; returns their feeds (once per membership)."""

    def memberships(self) -> list[tuple[int, int, int, int | None]]:
        """(feed id, tag, from position, to position or None while open) of each membership."""

    @property
    def feeds(self) -> list[Feed]:
        """The feed of each membership."""

    @property
    def member_count(self) -> int:
        """Memberships."""
    @property
    def mark(self) -> int:
        """Every position of this queue up to here is done."""

    @property
    def window(self) -> int:
        """Places that are kept: what is out, what was given back, and done ones between these."""

    # Statistics

    def is_counted(self) -> bool:
        """Whether `_all_queues.moved` was asked about its queue before."""

    def touch(self) -> None:
        """A count of its queue that lies elsewhere has changed: `_all_queues.moved` names the queue."""

    # Taking

    @property
    def taken_count(self) -> int:
        """Items of the last take."""

    @property
    def cold(self) -> int:
        """Position at which take stopped, its record not being in memory: load it, take again. 0: none."""

    @property
    def cold_feed(self) -> Feed | None:
        """Feed whose entry `cold_index` is not resident; take stopped there."""

    @property
    def cold_index(self) -> int:
        """Of the entry in `cold_feed`; no meaning without one."""
    @property
    def unwritten(self) -> bool:
        """Whether take stopped at a record that is not written yet."""

    @property
    def held(self) -> bool:
        """Whether take stopped at a written record that nobody may see yet. Its feed tells when."""

    @property
    def more(self) -> bool:
        """Whether take stopped because it looked at enough, or reported 128 expired records: go on soon."""

    def take(self, n: int) -> int:
        """Fill `items` with up to `n` (<= 1024) records: first what was given back, then new ones.

        Log order, equal positions of several feeds once. Expired and lost records are done on the way. Stops
        at the first record that is not in memory (`cold`), whose feed entry is not (`cold_feed`), or that is
        not written (`unwritten`) or not visible (`held`); what was taken before it counts. Returns
        `taken_count`.
        """

    def put_back(self, first: int, step: int = 1, took: int = 0) -> int:
        """Items first, first + step ... after the first `took` of these were not sent: READY, not counted."""

    def run_key(self) -> tuple[int, int, int] | None:
        """(feed id, first index, count) when the items are one contiguous run of one feed, else None.

        Equal keys (and equal `match` options) mean equal items, so a fan-out is encoded once.
        """

    def match_tags(self, match: int) -> tuple[int, ...]:
        """The tags of the memberships that `match` stands for, ascending."""

    def records(self) -> list[tuple[int, int, int, int, bool]]:
        """The items of the last take as (seq, position, match, count, redelivered); for slow paths."""

    def record(self, i: int) -> tuple[Batch, int]:
        """The batch of item `i` and the record's index in it; for slow paths."""

    # Settling

    def settle(self, seq: int) -> None:
        """The item is done. Unknown seqs and those that are not out are ignored."""

    def settle_run(self, seq: int, count: int) -> None:
        """`settle` of `count` seqs from `seq` on."""

    def settle_taken(self, first: int = 0, step: int = 1) -> None:
        """Settle the items first, first + step ... of the last take."""

    def reject(self, seq: int) -> None:
        """A consumer wants it gone: `on_refused` is told, or without one it is settled."""

    # Rules

    @property
    def rules(self) -> CursorRules:
        """Its rules beyond plain queueing; from now on it has some, if it had none."""

    @property
    def has_rules(self) -> bool:
        """Whether it has; what is not set in them is as if it had not."""

    def prioritise(self, priority_max: int) -> None:
        """Give the highest priority first; all above `priority_max` (0 to 255) count as that.

        Raises:
            SubscriptionError: it was used.

        """

    def limit_bytes(self, bytes_max: int, gathers: bool = True) -> None:
        """Count the bytes of the bodies of what is ready; -1: no more.

        Without `gathers` only of what `cap` looked at and of what was given back.

        A message that is out at that moment, and no longer in memory, counts as nothing until it is settled.
        """

    @property
    def ready_bytes(self) -> int:
        """Bytes of bodies, as far as they were gathered or expected; 0 without a limit."""

    def gather(self) -> None:
        """Look at all that is ready, for its order and its bytes; as a take it may stop short, and says why.

        Does nothing without priorities and without a byte limit.
        """

    def cap(self, length_max: int) -> None:
        """Admit what is ready to the window while that keeps to the limits; the rest goes to `on_excess`.

        The limits are `length_max` places that are ready (-1: any number) and that of `limit_bytes`. As a
        take it may stop short, and says why; after 128 that are too much it sets `more`.
        """

    def sizes(self) -> list[int]:
        """Bytes of the body of each item of the last take, as a byte limit counts them."""

    def expect(self, size: int) -> int:
        """A message with a body of `size` bytes is about to be appended to a feed of this cursor."""

    def refuse(self, pos: int) -> None:
        """A record that was just appended to the feeds is not for this queue: it counts as done.

        Raises:
            ValueError: `pos` is not above every position the cursor knows.

        """

    def position(self, seq: int) -> int:
        """Where the record of a delivery is; 0: it is not out."""

    def trim(self) -> None:
        """Drop what has expired at the head, as far as memory tells. The result of the last take stays."""

    def deadline(self) -> int:
        """When the first item of the last take expires, in ms since the epoch; -1: never."""

    def requeue(self, seq: int) -> bool:
        """READY again at its place, counted; wakes the queue. False: it was not out.

        Messages that reached `delivery_limit` go the way of `reject`.
        """

    def release(self, seq: int) -> bool:
        """`requeue` of what was not processed, which is no failure: it counts to no `delivery_limit`.

        With a limit of 0 nothing is given twice, and it is a requeue.
        """

    def note(self, seq: int, note: bytes) -> bool:
        """Keep `note` with the message of a delivery that is out, until it is done; the state record has it.

        It replaces an earlier one. False: all notes together would have more than 1 MiB; nothing changed.
        """

    def note_of(self, pos: int) -> bytes:
        """The note of the message at that position; empty: there is none."""

    def retries_of(self, seq: int) -> int:
        """How often it was given back; -1: it is not out, or `requeue` would not let it come again."""

    def unsend(self, seq: int) -> bool:
        """READY again at its place, not counted: it was taken and given to nobody. False: it was not out."""

    def unhold(self, seq: int) -> None:
        """It stays out, but no consumer has it, and no message of its key waits for it any more (`_keys`)."""

    def requeue_all(self) -> int:
        """Requeue everything that some consumer has; how many.

        A message that is out without one stays so: it waits until it is given back (`unhold`), or was refused
        or has expired, and is dead-lettered.
        """

    def purge(self, before: int = ...) -> int:
        """Drop what is ready, below position `before`; what is out stays out. How many were dropped."""

    def take_before(self, before: int, most: int) -> list[int]:
        """Of what was given back or gathered, up to `most` with positions below `before` are out now.

        Their seqs, ascending. Nothing is said of the rest, and the last take is still valid.
        """

    def idle(self) -> None:
        """Give back the memory that only a queue in use needs."""

    # Counting

    def ready_count(self) -> int:
        """Messages to be taken, expired ones included. Equal positions of several feeds count once.

        Exact, but for several feeds with more than 32 chunks of entries on disk: then an upper bound until
        they are taken. Reads those chunks, for feeds that may overlap only.
        """

    def low(self) -> int:
        """The lowest position this cursor still needs; 2^64 - 1 when none."""

    def needs(self, needs: Needs) -> tuple[Feed, int] | None:
        """Mark which records of the segment are not done here; and more, when it cannot be told cheaply.

        None: that is all. Otherwise have this entry of a feed of the past in memory, and ask again.
        """

    def fate(self, pos: int) -> str:
        """Of a record in a feed of an open membership: "ready", "out", or "done" (settled, dropped, skipped).

        Looks at every place of the window: for slow paths.
        """

    # State

    def state(self, runs_max: int = 1000, final: bool = False) -> bytes:
        """The state record: at most `runs_max` runs, later ones are left out and would be delivered again.

        `final`: what is out counts as given back (a clean stop).
        """

    def clean(self) -> None:
        """The state record was persisted."""

    def restore(
        self, data: bytes, feed_of: Callable[[int], Feed | None], unclean_until: int = 0
    ) -> list[int]:
        """Take over a state record. `feed_of` finds a feed by id; returns the ids it did not know.

        Raises:
            SubscriptionError: the record is damaged, of another version, or the cursor was used.

        """
