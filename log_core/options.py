"""Options of the log core, with the names of the configuration's section `log`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal

from penstock.lazy_dataclass import dataclass

__all__ = ["FIXED", "LogOptions"]

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB

FIXED: Final[Mapping[str, bool]] = {"fixed": True}
"""Marks an option that the configuration does not have: only tests set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Sizes are bytes, times are seconds."""

    segment_bytes: int = 64 * MIB
    """Size at which a WAL file is closed and the next begun; files are preallocated to it."""
    folders: tuple[str, ...] = ()
    """Further folders for segments (`places`)."""
    tail_cache_bytes: int = 128 * MIB
    """Memory for the newest batches."""
    read_cache_bytes: int = 48 * MIB
    """Memory for batches read back from disk."""
    feed_cache_bytes: int = 32 * MIB
    """Memory for the feeds' entries of closed segments; the rest stays in the .fdx files."""
    fsync: Literal["group", "never"] = "group"
    """"never": nothing is synced and a power cut loses confirmed messages; for tests and benchmarks only."""
    confirm_settled: bool = False
    """A message that all its queues have settled is confirmed when it is written, without a sync."""
    checkpoint_bytes: int = 256 * MIB
    """After this much log the tables are written to a checkpoint."""
    traffic_retention_bytes: int = 10 * GIB
    """How much log that no queue needs is kept for replay; 0 = none."""
    traffic_retention_s: float = 86400.0
    """How long log that no queue needs is kept for replay, within traffic_retention_bytes."""
    lease_bytes: int = 10 * GIB
    """How much of the log readers from outside may keep by their leases; 0 = none."""
    compression_level: int = 1
    """Of zstd, for segments that are rewritten; 0 = not compressed."""
    min_free_bytes: int = 512 * MIB
    """Publishers are stopped while the file system has less free space."""
    max_unsynced_bytes: int = field(default=64 * MIB, metadata=FIXED)
    """Publishers are held back while more than this waits for the disk; they go on at half of it."""
    scrub_bytes_per_s: int = 8 * MIB
    """How fast closed segments are read again to find damage; 0: never."""
    scrub_each_s: float = field(default=7 * 86400.0, metadata=FIXED)
    """How often each closed segment is read again."""
    salvage: bool = False
    """Start on a damaged log: keep what can be read, list what cannot."""
