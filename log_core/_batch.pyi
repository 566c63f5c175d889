"""Batches: the packed records of one tick, in the one form they have in memory and on disk."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, final

from typing_extensions import Buffer

from penstock.log_core._feed import Feed

LIST: Final = 1
PERSISTENT: Final = 2
REF: Final = 4
DELAYED: Final = 8
HALF: Final = 16
RETAIN: Final = 32
TOMBSTONE: Final = 64
CHUNK: Final = 128
UNROUTED: Final = 256
EXACTLY_ONCE: Final = 512
"""Flags of a record."""

NONE: Final = 0
AMQP091: Final = 1
MQTT5: Final = 2
NATIVE: Final = 3
"""Encodings of a record's key block and properties block."""

LOST: Final = 0
RECORDS: Final = 1
STATE: Final = 2
NOTE: Final = 3
"""Kinds of a batch. LOST is never on disk: it stands for records that can no longer be read."""

ALIGN: Final = 32
"""Batches are padded to a multiple of it."""

MORE: Final = 1
"""Attribute of a batch: the next one belongs to the same atomic unit."""

class Record(NamedTuple):
    """One record, copied out; for tests, inspection and slow paths."""

    lsn: int
    key: bytes
    props: bytes
    body: bytes
    feeds: tuple[int, ...]
    flags: int
    priority: int
    enc: int
    ts: int
    """ms since the epoch."""
    ttl: int
    """ms until expiry, 0 = never."""
    origin: int

@final
class Batch:
    """A closed batch; immutable. Kernels read its memory in place and hold a reference while they do."""

    base_lsn: int
    count: int
    base_ts: int
    lp: int
    kind: int
    nbytes: int
    """Bytes on disk, padding included; a multiple of 32."""
    @staticmethod
    def parse(data: Buffer) -> Batch:
        """Check and copy the batch at the start of `data`. Raises ValueError naming what is wrong."""
    @property
    def attrs(self) -> int: ...
    @property
    def synced_lsn(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def max_ts(self) -> int: ...
    def record(self, i: int) -> Record:
        """Record `i`, 0 <= i < count. Raises IndexError."""
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes:
        """As on disk."""

@final
class Target:
    """Where the records of a route go: an immutable set of feeds; without any, records are UNROUTED."""

    feeds: tuple[Feed, ...]
    durable: bool
    """Some member of some feed is durable."""
    def __init__(self, feeds: Iterable[Feed], durable: bool = False) -> None: ...

@final
class Appender:
    """The open batch of the running tick. Never does I/O; every append copies its bytes once.

    Kernels call `append` in C; the methods here are for the log itself, slow paths and tests.
    """

    next_lsn: int
    segment_base: int
    appended_bytes: int
    synced_lsn: int
    epoch: int
    failure: Exception | None
    """When set, the next append of a tick raises it."""
    def __init__(self, clock_ms: Callable[[], int], next_lsn: int = 1, epoch: int = 1) -> None:
        """`clock_ms` gives ms since the epoch; asked once per tick, never believed to run backwards."""
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
    def append_repeated(
        self, n: int, lp: int, target: Target, key: bytes, props: bytes, body: bytes, flags: int
    ) -> int:
        """Append the same record `n` times, called in C as kernels do (benchmarks); the last LSN."""
    def append_state(self, key: bytes, value: bytes, tombstone: bool = False) -> int:
        """Append one change of a table; returns its LSN."""
    def append_note(self) -> None:
        """Close the open batch and add an empty batch that carries `synced_lsn`."""
    def begin_unit(self) -> None:
        """What is appended until the matching `end_unit` is one atomic unit. Nests."""
    def end_unit(self) -> None: ...
    @property
    def in_unit(self) -> bool: ...
    @property
    def open_records(self) -> int:
        """Records in the open batch."""
    def now_ms(self) -> int:
        """The time of this tick, ms since the epoch."""
    def take_closed(self) -> list[Batch]:
        """End the tick: close the open batch and hand over all closed ones, oldest first."""
    def take_dirty(self) -> list[Feed]:
        """The feeds pushed to since the last call."""
    def roll(self) -> list[Feed]:
        """Begin a new segment at `next_lsn`, between ticks; the feeds that have entries in the old one."""
