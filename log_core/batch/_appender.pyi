"""The open batch of the running tick: what kernels append records to."""

from collections.abc import Callable, Iterable
from typing import final

from penstock.log_core.batch._batch import Batch
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.state._rows import RowLog

@final
class Target:
    """Where the records of a route go: an immutable set of feeds; without any, records are UNROUTED."""

    feeds: tuple[Feed, ...]
    durable: bool
    """Some member of some feed is durable."""
    def __init__(self, feeds: Iterable[Feed], durable: bool = False) -> None: ...

@final
class Appender(RowLog):
    """The open batch of the running tick. Never does I/O; every append copies its bytes once.

    Kernels call `append` in C; the methods here are for the log itself, slow paths and tests.
    """

    next_lsn: int
    segment_base: int
    appended_bytes: int
    state_lsn: int
    """The last record that is more than a message for queues: a delayed one, the end of a unit, state that
    somebody may wait for. State that nobody waits for does not count: its writer sets this back."""
    synced_lsn: int
    epoch: int
    failure: Exception | None
    """When set, the next append of a tick raises it."""
    keeps_origins: bool
    """Somebody wants no messages of its own, so records are to say who sent them."""

    def __init__(self, clock_ms: Callable[[], int] | None = None, next_lsn: int = 1, epoch: int = 1) -> None:
        """`clock_ms` gives ms since the epoch, None: the machine's clock; asked once per tick, never believed
        to run backwards."""
    def start(self, next_lsn: int, epoch: int) -> None:
        """Where a recovered log goes on; before the first append."""
    def append_record(
        self,
        lp: int,
        target: Target,
        key: bytes = b"",
        props: bytes = b"",
        body: bytes = b"",
        flags: int = 0,
        priority: int = 0,
        enc: int = 0,
        ttl_ms: int = 0,
        origin: int = 0,
    ) -> int:
        """Append one record and push it to the feeds of `target`; returns its LSN.

        Raises ValueError for a key over 65535 bytes or a record over 1 GiB; `failure` after the log failed.
        """
    def append_delayed(
        self,
        due_ms: int,
        place: int,
        key: bytes,
        props: bytes,
        body: bytes,
        flags: int = 0,
        priority: int = 0,
        enc: int = 0,
        ttl_ms: int = 0,
    ) -> int:
        """Append a record that waits until `due_ms` (since the epoch), in no feed; returns its LSN.

        Args:
            place: Where it was scheduled first: the LSN that orders it among those due at the same time;
                0 = here.

        """
    def append_repeated(
        self, n: int, lp: int, target: Target, key: bytes, props: bytes, body: bytes, flags: int
    ) -> int:
        """Append the same record `n` times, called in C as kernels do (benchmarks); the last LSN."""
    def append_state(self, key: bytes, value: bytes, tombstone: bool = False) -> int:
        """Append one change of a table; returns its LSN."""
    def append_note(self) -> None:
        """Close the open batch and add an empty batch that carries `synced_lsn`."""
    def begin_unit(self) -> None:
        """All that is appended until the matching `end_unit` is one atomic unit. Nests."""
    def end_unit(self) -> None: ...
    @property
    def in_unit(self) -> bool: ...
    def now_ms(self) -> int:
        """The time of this tick, ms since the epoch."""
    def take_closed(self) -> list[Batch]:
        """End the tick: close the open batch and hand over all closed ones, oldest first."""
    def take_dirty(self) -> list[Feed]:
        """The feeds pushed to since the last call."""
    def roll(self) -> list[Feed]:
        """Begin a new segment at `next_lsn`, between ticks; the feeds that have entries in the old one."""
