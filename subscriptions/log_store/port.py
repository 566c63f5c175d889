"""The port `LogStore`: what this layer and those above need of the log.

A store is one log of records at positions, feeds over it, and tables of rows that change atomically with
it. It may be a folder on this machine or a cluster of another engine. The port knows no segment, batch,
file, partition or topic. `tests/conformance/log_store` tests these rules, and every store passes it.
docs/adr/0014-log-store.md says what the gateway does through this port, and what it does not.

The rules:

    positions   strictly increasing in append order, with gaps, never used twice, not even after a crash;
                rows that change take positions, too
    units       what one `append` gets is one unit: after a crash all of it is there, or nothing
    order       units of one caller are in the order of its calls, in the log and in each feed
    durability  what an append waits for; see `Durability`. Units not waited for may be lost, but only from
                the end: never something before what is kept
    failure     after the store failed nothing is confirmed any more: appends raise StoreFailed, also those
                that wait; what was confirmed is there at the next start
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NewType, Protocol

from penstock.errors import SubscriptionError
from penstock.lazy_dataclass import dataclass

__all__ = [
    "Appended",
    "Bounds",
    "Durability",
    "FeedId",
    "LogStore",
    "NewRecord",
    "OutOfOrder",
    "PositionGone",
    "ProducerBatch",
    "Replaced",
    "Row",
    "StoreFailed",
    "StoredRecord",
]

FeedId = NewType("FeedId", int)
"""Names a feed; never given out twice."""


class Durability(Enum):
    """The level that an append waits for."""

    MEMORY = "memory"
    """Nothing: it has its positions, and readers find it soon."""
    WRITTEN = "written"
    """It survives the death of this process."""
    FSYNC = "fsync"
    """It survives a power cut; for a cluster, the loss of any one machine."""


class StoreFailed(SubscriptionError):
    """The store can no longer keep what it is given."""


class Replaced(SubscriptionError):
    """A newer owner or a newer epoch of a producer has taken over: this one must stop."""


class OutOfOrder(SubscriptionError):
    """A producer's batch does not follow its last one."""


class PositionGone(SubscriptionError):
    """Records from this position on were deleted, since nobody needed them; `first` is the first one kept."""

    def __init__(self, position: int, first: int) -> None:
        super().__init__(f"position {position} is no longer kept", remedy=f"go on from {first}")
        self.first = first


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to append. Bytes are kept as they are."""

    body: bytes
    key: bytes = b""
    """At most 65,535 bytes."""
    properties: bytes = b""
    feeds: tuple[FeedId, ...] = ()
    """The feeds it is in, each once; empty: it is in the log and in no feed."""
    persistent: bool = True
    """False: a restart may take it out of its feeds, unless a feed keeps everything."""
    encoding: int = 0
    """Of key and properties, in [0, 255]; the store does not look."""
    priority: int = 0
    """In [0, 255]; the store does not look."""
    ttl_ms: int = 0
    """0: it does not expire; the store does not look."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record read back."""

    position: int
    time_ms: int
    """When it was appended, by the store's clock, since the epoch; may fall along the log."""
    record: NewRecord


@dataclass(frozen=True, slots=True)
class Row:
    """One change of a table: the row `key` becomes `value`; None: it is deleted."""

    table: str
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ProducerBatch:
    """Says that a unit of records is the batch of a named producer, so that it is appended once."""

    name: str
    epoch: int
    """Of the producer's process; a higher one replaces all lower ones."""
    first: int
    """The number of the unit's first record; from 0 in each epoch, and from 0 again after 2**31 - 1."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a unit of records is."""

    positions: tuple[int, ...]
    """One for each record, ascending."""
    duplicate: bool = False
    """The producer had sent it before: these are the positions of then, and nothing was appended."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The positions that can be read."""

    first: int
    """No position below it can be read for certain."""
    readable: int
    """Positions up to it can be read."""
    durable: int
    """Positions up to it survive a power cut; at most `readable`. A lasting position that a reader is told
    (an offset of a stream) must be at most this."""


class LogStore(Protocol):
    """One log. All methods are for one event loop; a cancelled call may or may not have happened."""

    # Records

    async def append(
        self,
        records: Sequence[NewRecord],
        durability: Durability,
        *,
        rows: Sequence[Row] = (),
        producer: ProducerBatch | None = None,
    ) -> Appended:
        """Append one unit of records and changes of rows, and wait for its durability.

        Changes of rows are seen by `row` and `rows` at once, in this process.

        Raises:
            StoreFailed: it is not known to be kept, and may be found after a restart or not.
            Replaced: the producer has a newer epoch; nothing was appended.
            OutOfOrder: batches of the producer before this one are missing; nothing was appended.
            ValueError: a record is too large, or a feed is not there; nothing was appended.

        """

    async def bounds(self) -> Bounds:
        """The positions that can be read now."""

    async def read(self, position: int, limit: int) -> list[StoredRecord]:
        """At most `limit` records from `position` on, ascending; fewer only at the readable end.

        Records that cannot be read any more are left out. Raises PositionGone: `position` is below the first
        kept one.
        """

    async def read_at(self, positions: Sequence[int]) -> Mapping[int, StoredRecord]:
        """The records at these positions, ascending; those that cannot be read are missing."""

    async def position_for_time(self, time_ms: int) -> int:
        """The position of the first record kept that is not older; one behind the end when there is none."""

    async def release(self, position: int) -> None:
        """Nobody needs what is below `position` any more: it may be deleted, now or later or never.

        A feed that keeps everything is not asked by it.
        """

    # Feeds

    async def make_feed(self, *, keeps_all: bool = False) -> FeedId:
        """A new feed, which survives a restart; `keeps_all`: with records that are not persistent, too."""

    async def drop_feed(self, feed: FeedId) -> None:
        """Forget a feed; its records stay in the log."""

    async def read_feed(self, feed: FeedId, position: int, limit: int) -> list[StoredRecord]:
        """At most `limit` records of a feed from `position` on, ascending; fewer only at its readable end.

        Raises ValueError: there is no such feed.
        """

    # Rows

    def row(self, table: str, key: bytes) -> bytes | None:
        """The value of a row as of the last append, or None."""

    def rows(self, table: str) -> Mapping[bytes, bytes]:
        """All rows of a table as of the last append; not changed by later ones."""
