"""A feed: the growing list of the positions of the records that matched one binding pattern."""

from typing import Protocol, final

from typing_extensions import Buffer

class Waiter(Protocol):
    """A queue, which is told that a feed has grown."""

    def fed(self, feed: Feed) -> None:
        """Called by the tick, after the write, when the feed has new entries; it is out of the list then."""

    def pump(self) -> None:
        """Called by the tick when everybody has been told."""

class ChunkStore(Protocol):
    """Where entries are that left memory."""

    def load_chunk(self, feed: Feed, base: int) -> Buffer:
        """The entries (u32) of `feed` in the closed segment at `base`, read at once."""

@final
class Feed:
    """Positions in log order. Indexes count from 0, are never reused in a process; [start, end) is kept.

    Entries of closed segments may be out of memory; `position` is then 0 until `Log.load_feed` ran.
    """

    @property
    def id(self) -> int:
        """In [1, 2**32); never reused."""
    @property
    def start(self) -> int:
        """Index of the first entry still kept."""
    @property
    def end(self) -> int:
        """Number of entries ever pushed, those of the running tick included."""
    @property
    def persistent_end(self) -> int:
        """The index after the last entry of a PERSISTENT record; 0: there is none."""
    waiters: dict[Waiter, None]
    """Queues that are caught up and want to be woken by the next entry; they put themselves in."""
    users: int
    """Memberships of queues. 0: no queue needs it, but a stream may keep it."""
    dirty: bool
    """Pushed to since the last `Unwritten.take_dirty`."""
    is_history: bool
    """It is one of the past: its entries lie in a file of its own, and nothing is pushed to it."""
    dropped: bool
    """No longer in `Log.feeds`."""

    @property
    def keeps(self) -> bool:
        """Records that are not PERSISTENT survive a restart in it, too."""

    def __init__(self, id: int, store: ChunkStore | None = None, keeps: bool = False) -> None: ...
    def index_of(self, position: int) -> int:
        """Index of the first kept entry with LSN >= position; `end` when there is none.

        Reads the chunk from disk, at once, when the answer lies in one that is not in memory: on the loop ask
        `missing`, or use `Log.when_index`.
        """
    def missing(self, position: int) -> int | None:
        """The index of an entry whose chunk `index_of` would have to read from disk; None: of none."""
    def positions(self, index: int, n: int) -> list[int]:
        """LSNs of entries [index, index + n); shorter at `end` and at a chunk that is not in memory."""
    def is_resident(self, index: int) -> bool:
        """Whether entry `index` exists and is in memory."""
    def base_of(self, index: int) -> int:
        """Base LSN of the segment that holds entry `index`; 0 when it is outside [start, end)."""
    def append(self, base: int, entry: int, size: int = 0) -> bool:
        """Push the number (high bit: transient) and the bytes of a record of the segment at `base`; True if
        that began a chunk."""
    def append_stored(self, base: int, count: int, first_record: int, last_record: int) -> None:
        """Add the chunk of a closed segment without its entries; segments come in ascending order."""
    @property
    def last_position(self) -> int:
        """LSN of the last entry; 0 when there is none."""
    def count_at(self, base: int) -> int:
        """Entries in the segment at `base`."""
    def entries_at(self, base: int) -> bytes | None:
        """The chunk's entries as u32 little-endian; None when there is no such chunk in memory."""
    def spill(self, base: int) -> int:
        """Forget the entries of one closed segment (they are in its .fdx file); the bytes freed."""
    def restore_chunk(self, base: int, entries: Buffer) -> int:
        """Bring a spilled chunk back; the bytes used, 0 when it is gone or was in memory."""
    def drop_before(self, base: int) -> int:
        """Drop the chunks of segments below `base`; `start` moves up. The bytes freed."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool:
        """True: an empty feed is a feed."""

def drop_all_before(feeds: list[Feed], base: int) -> int:
    """`drop_before` for many feeds; the bytes freed."""
