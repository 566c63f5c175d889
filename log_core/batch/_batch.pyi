"""Batches: the packed records of one tick, in the one form they have in memory and on disk."""

from typing import Final, NamedTuple, final

from typing_extensions import Buffer

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
SECTIONS: Final = 1024
"""Flags of a record."""

NONE: Final = 0
AMQP091: Final = 1
MQTT5: Final = 2
NATIVE: Final = 3
EVENTS: Final = 0xFFFFFFFD
"""The log partition of the table of events."""
"""Encodings of a record's key block and properties block."""

LOST: Final = 0
RECORDS: Final = 1
STATE: Final = 2
NOTE: Final = 3
DELAYED_RECORDS: Final = 4
BLOCK: Final = 5
"""Kinds of a batch. LOST is never on disk: it stands for records that can no longer be read."""

ALIGN: Final = 32
"""Batches are padded to a multiple of it."""

RECORDS_MAX: Final = 65536
"""Records of one batch."""

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
    """Of its first record; the others follow without a gap."""
    count: int
    """Records, or changes of rows."""
    base_ts: int
    """Of its first record, ms since the epoch."""
    lp: int
    """The partition."""
    kind: int
    """RECORDS, STATE, ...: what is in it."""
    nbytes: int
    """Bytes on disk, padding included; a multiple of 32."""
    @staticmethod
    def parse(data: Buffer) -> Batch:
        """Check and copy the batch at the start of `data`. Raises ValueError naming what is wrong."""
    @property
    def attrs(self) -> int:
        """Bits: see MORE."""
    @property
    def synced_lsn(self) -> int:
        """How far the log was durable when this was written: damage up to there is no torn end."""
    @property
    def epoch(self) -> int:
        """The start of the log that wrote it, from 1 on."""
    @property
    def max_ts(self) -> int:
        """Of its latest record, ms since the epoch."""
    def record(self, i: int) -> Record:
        """Record `i`, 0 <= i < count. Raises IndexError."""
    def delay_of(self, i: int) -> tuple[int, int] | None:
        """(due in ms since the epoch, place) of a delayed record, None for any other. Raises IndexError."""
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes:
        """As on disk."""
