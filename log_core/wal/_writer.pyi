"""The end of a turn in the log."""

from collections.abc import Callable

from penstock.log_core.batch._appender import Appender
from penstock.log_core.threads._pace import Pace
from penstock.log_core.wal._active import ActiveFile
from penstock.log_core.wal._unwritten import Unwritten
from penstock.log_core.wal._waiters import Waiters
from penstock.log_core.wal.committer_protocol import CommitterProtocol

class Writer:
    """Writes what was appended, and says who may be told. `Log` derives from it and decides what follows."""

    appender: Appender
    """The open batch; front ends append to it in C."""
    unwritten: Unwritten
    """Bytes that the next `flush` writes."""
    waiting_written: Waiters
    waiting_synced: Waiters
    waiting_kept: Waiters
    """For `kept_lsn`; unless `confirms_settled` it is `waiting_synced`."""
    failed: Exception | None
    """Set once a write or sync failed; nothing is accepted or confirmed any more."""
    before_flush: Callable[[], object] | None
    """Called by each `flush` first."""
    written_lsn: int
    """The last LSN that survives a kill -9."""
    synced_lsn: int
    """The last LSN that survives a power cut."""
    visible_lsn: int
    """Nobody may see a record above it: `synced_lsn` if `unwritten` holds back, else 2^64 - 1."""
    kept_lsn: int
    """The last LSN up to which each record is synced, or a message that all its queues have settled. Equal to
    `synced_lsn` unless `confirms_settled`."""
    confirms_settled: bool
    """Whether a message that all its queues have settled is confirmed without a sync."""
    write_ns: int
    """Nanoseconds spent in writes."""
    written_bytes: int
    """Bytes written, ever, as `Appender.appended_bytes` counts."""
    synced_bytes: int
    """How many of them are durable."""
    noted_lsn: int
    """The synced LSN that the last batch on disk carries."""
    checkpoint_at: int
    """`checkpoint_due` is called when so many bytes were appended."""
    syncs: bool
    """Whether what is written is made durable; else written counts as durable."""

    committer: CommitterProtocol
    """Syncs what is written; set once the log has started."""
    closing: tuple[int, ...]
    """Descriptors of files that are full and not durable yet."""

    def __init__(
        self,
        unwritten: Unwritten,
        appender: Appender,
        max_unsynced_bytes: int,
        syncs: bool,
        confirms_settled: bool = False,
    ) -> None: ...
    def begin(self, active: ActiveFile, last_lsn: int) -> None:
        """Write to that file from now on; all up to `last_lsn` is durable."""

    def flush(self) -> None:
        """End the turn: write what was appended with one call, then call back who waits for that."""

    @property
    def awaited(self) -> bool:
        """Whether anybody waits for what is not written or not synced yet."""

    @property
    def backlog_bytes(self) -> int:
        """Bytes appended and not yet durable."""

    @property
    def held(self) -> list[Callable[[], object]]:
        """Called when the disk has caught up: of who wrote much while half of what may wait for it did."""

    def when_synced(self, lsn: int, callback: Callable[[bool], object]) -> None:
        """Call `callback(ok)` when `lsn` is durable, in the order of LSNs; False = the log failed."""

    def pace(self) -> Pace:
        """A pace for work beside the loop, by what is published here and who waits for it."""

    def sync(self) -> None:
        """Have everything written made durable."""

    def rung(self) -> None:
        """The committer rang its bell: it has synced something."""

    def synced(self, lsn: int, mark: int, error: OSError | None) -> None:
        """All up to `lsn`, the first `mark` bytes, is durable; or why it is not."""

    # The reaction of `Log`.

    def tell_soon(self) -> None:
        """Somebody waits for what has come about already: tell him, but not at once."""

    def sync_failed(self, error: OSError) -> None:
        """The state of the disk is unknown: nothing may be confirmed any more."""

    def release_closed(self, lsn: int) -> None:
        """All up to `lsn` is durable: who has files in `closing` looks which are over."""

    def write_failed(self, error: OSError) -> None:
        """The contents of the file are unknown: nothing may be confirmed any more."""

    def found_room(self, room: bool) -> None:
        """Whether the disk took what was written; called when that changes."""

    def behind(self, late: bool) -> None:
        """More than `max_unsynced_bytes` wait for the disk, or no more than half of that again."""

    def file_full(self) -> None:
        """The active file is full: go on in the next one."""

    def checkpoint_due(self) -> None:
        """`checkpoint_at` is reached."""
