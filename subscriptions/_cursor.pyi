"""The face of the kernel `_cursor`; what a cursor is and its state record stand in _cursor.pyx.

Encoders cimport `Cursor` and read `cursor.items[i]` (struct Item, _cursor.pxd) for i in [0, cursor.taken).
Items are valid until the next take of any cursor of the process, or the end of the tick.
"""

from collections.abc import Callable
from typing import Any, Protocol

from penstock.log_core._batch import Batch
from penstock.log_core._feed import Feed
from penstock.log_core._tail import Cache

class _Appender(Protocol):
    @property
    def next_lsn(self) -> int: ...

class CursorLog(Protocol):
    """What a cursor needs of the log."""

    @property
    def cache(self) -> Cache: ...
    @property
    def appender(self) -> _Appender: ...
    @property
    def written_lsn(self) -> int: ...
    def now_ms(self) -> int: ...
    def load_feed_now(self, feed: Feed, index: int) -> bool: ...

def release() -> None:
    """Let go of the batches of the last take: its items are invalid from here on."""

def set_ring_kept(places: int) -> int:
    """For tests: the ring size (a power of two) from which on stragglers are set aside; the one before."""

class Cursor:
    """A queue's memberships, and the window of what it took and has not finished."""

    taken: int
    """Items of the last take."""
    cold: int
    """Position at which take stopped, its record not being in memory: load it, take again. 0: none."""
    cold_feed: Feed | None
    """Feed whose entry `cold_index` is not resident; take stopped there."""
    cold_index: int
    unwritten: bool
    """take stopped at a record that is not written yet."""
    more: bool
    """take stopped because it reported 128 expired records to `on_expired`: take again, soon."""
    run_count: int
    """> 0: the items are entries [run_first, run_first + run_count) of feed run_feed, none redelivered."""
    run_feed: int
    run_first: int
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
    """Its queue, or None: something with wake(), called by requeue."""
    wake_below: int
    """> 0: the queue is woken once fewer are out, and this becomes 0."""
    on_dirty: Callable[[Any], None] | None
    """Called with `queue` when `dirty` becomes True."""
    on_expired: Callable[[list[int]], None] | None
    """Called at the end of a take with the positions it dropped as expired."""
    on_refused: Callable[[int, str], None] | None
    """Called with the seq of a delivery that leaves the queue undone, and why: "rejected", "delivery_limit".

    The place stays out until the callee settles it. None: such a delivery is settled at once."""
    skip_transient_until: int
    """Records below it that are not PERSISTENT are skipped and done: their session was offline.

    2^64 - 1 while it is: then they do not keep the log either."""
    ttl_ms: int
    """Records older than this have expired, whatever their own time. 0: after this millisecond; -1: never."""
    delivery_limit: int
    """A delivery that was given back this often leaves the queue the next time; 65,535: no limit."""
    unclean_until: int
    """Positions up to here carry the redelivered flag: the process that may have delivered them died."""

    def __init__(self, log: CursorLog) -> None: ...

    # Memberships

    def join(self, feed: Feed, from_pos: int | None = None, tag: int = 0) -> bool:
        """Take from `feed` what is pushed from now on, or everything from position `from_pos` on.

        A queue never goes back: what lies at or below its frontier is left out. `tag` < 2^31 is what
        `match` says of its items. False: that feed is already a member with that tag.
        """

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
    def member_count(self) -> int: ...
    @property
    def mark(self) -> int:
        """Every position of this queue up to here is done."""

    @property
    def window(self) -> int:
        """Places that are kept: what is out, what was given back, and done ones between these."""

    # Taking

    def take(self, n: int) -> int:
        """Fill `items` with up to `n` (<= 1024) records: first what was given back, then new ones.

        Log order, equal positions of several feeds once. Expired and lost records are done on the way. Stops
        at the first record that is not in memory (`cold`), whose feed entry is not (`cold_feed`), or that is
        not written (`unwritten`); what was taken before it counts. Returns `taken`.
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

    def settle_taken(self, first: int = 0, step: int = 1) -> None:
        """Settle the items first, first + step ... of the last take."""

    def reject(self, seq: int) -> None:
        """An outlet wants it gone: `on_refused` is told, or without one it is settled."""

    def refuse(self, pos: int) -> None:
        """A record that was just appended to the feeds is not for this queue: it counts as done.

        Raises:
            ValueError: `pos` is not above every position the cursor knows.

        """

    def position(self, seq: int) -> int:
        """Where the record of a delivery is; 0: it is not out."""

    def deadline(self) -> int:
        """When the first item of the last take expires, in ms since the epoch; -1: never."""

    def requeue(self, seq: int) -> bool:
        """READY again at its place, counted; wakes the queue. False: it was not out.

        What reached `delivery_limit` goes the way of `reject`.
        """

    def requeue_all(self) -> int:
        """Requeue everything that is out; how many."""

    def purge(self) -> int:
        """Drop what is ready; what is out stays out. How many were dropped."""

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
