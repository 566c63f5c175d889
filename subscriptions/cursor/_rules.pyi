"""The face of the kernel `_rules`: what a cursor lives by beyond plain queueing."""

from collections.abc import Callable

class CursorRules:
    """Of one cursor, which makes it (`Cursor.rules`)."""

    on_expired: Callable[[list[int]], None] | None
    """Called at the end of a take with the seqs of what it found expired: they are out until the callee
    settles them. None: what has expired is dropped."""
    on_refused: Callable[[int, str], None] | None
    """Called with the seq of a delivery that leaves the queue undone, and why: "rejected", "delivery_limit".

    The place stays out until the callee settles it. None: such a delivery is settled at once."""
    on_excess: Callable[[list[int]], None] | None
    """Called by `Cursor.cap` with the seqs of what is too much: they are out until the callee settles them.
    None: it is dropped."""
    ttl_ms: int
    """Records older than this have expired, whatever their own time. 0: after this millisecond; -1: never.

    -2: no record ever has, whatever its own time."""
    length_max: int
    """Ready messages from which on a guarded queue refuses more; -1: it never does."""
    bytes_max: int
    """Set by `Cursor.limit_bytes`."""
    refuses_bytes: bool
    """A guarded queue refuses what would be more than `bytes_max`."""
    delivery_limit: int
    """A delivery that was given back this often leaves the queue the next time; 65,536: no limit."""
    tells_count: bool
    """Consumers are told how often something was given back (`Item.redelivered` is COUNTED)."""
    priority_max: int
    """Set by `Cursor.prioritise`."""
