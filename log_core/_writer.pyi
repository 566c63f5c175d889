"""The end of a turn in the log."""

from collections.abc import Callable

from penstock.log_core._active import ActiveFile
from penstock.log_core._appender import Appender
from penstock.log_core._unwritten import Unwritten
from penstock.log_core._waiters import Waiters

class Writer:
    """Writes what was appended, and says who may be told. `Log` derives from it and decides what follows."""

    appender: Appender
    """The open batch; front ends append to it in C."""
    unwritten: Unwritten
    """What the next `flush` writes."""
    waiting_written: Waiters
    waiting_synced: Waiters
    failed: Exception | None
    """Set once a write or sync failed; nothing is accepted or confirmed any more."""
    before_flush: Callable[[], object] | None
    """Called by each `flush` first."""
    written_lsn: int
    """The last LSN that survives a kill -9."""
    synced_lsn: int
    """The last LSN that survives a power cut."""
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

    def __init__(
        self, unwritten: Unwritten, appender: Appender, max_unsynced_bytes: int, syncs: bool
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

    # What `Log` does about it.

    def write_failed(self, error: OSError) -> None:
        """What is in the file is unknown: nothing may be confirmed any more."""

    def found_room(self, room: bool) -> None:
        """Whether the disk took what was written; called when that changes."""

    def sync(self) -> None:
        """Have everything written made durable."""

    def behind(self) -> None:
        """More than `max_unsynced_bytes` wait for the disk."""

    def file_full(self) -> None:
        """The active file is full: go on in the next one."""

    def checkpoint_due(self) -> None:
        """`checkpoint_at` is reached."""
