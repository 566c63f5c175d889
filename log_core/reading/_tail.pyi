"""The batches in memory: the newest ones exactly as written, and those read back from disk."""

from typing import Final, final

from penstock.log_core.batch._batch import Batch

BATCH_OVERHEAD: Final = 160
"""Bytes that a batch counts for besides its own."""

@final
class Cache:
    """Tail ring and read cache. Kernels use `find`; a batch handed out stays valid as long as it is held."""

    tail_limit: int
    read_limit: int
    read_bytes: int
    tail_hits: int
    """Times a batch was found in the tail, of `read_hits` in the read cache, of `misses` in neither."""
    read_hits: int
    misses: int
    def __init__(self, tail_limit: int, read_limit: int) -> None: ...
    def add(self, batch: Batch) -> None:
        """The newest batch; the oldest leave when the tail has more than `tail_limit` bytes."""
    def add_written(self, batches: list[Batch]) -> None:
        """`add` those of records; nobody looks for others."""
    def add_unseen(self, batches: list[Batch]) -> None:
        """The same, but cursors find them only after `show`. `get` has them at once."""
    def show(self, lsn: int) -> None:
        """Let cursors find those that are unseen and end with `lsn` or earlier."""
    def add_run(self, batches: list[Batch]) -> None:
        """Batches read back, in LSN order; the run used longest ago leaves above `read_limit` bytes."""
    def get(self, lsn: int) -> Batch | None:
        """The batch that holds `lsn`, or None: not in memory, ask `Log.load`."""
    @property
    def tail_bytes(self) -> int:
        """Bytes of the tail, `BATCH_OVERHEAD` a batch included."""
    @property
    def tail_start(self) -> int:
        """Base LSN of the oldest batch of the tail; 0 when it is empty."""
