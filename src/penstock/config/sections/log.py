"""The section `log`: what is kept, where, and when it is synced."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from penstock.config.kinds import (
    GIB,
    MIB,
    AutoBytes,
    Bytes,
    Choice,
    Count,
    Names,
    Seconds,
    Switch,
    Text,
    option,
)
from penstock.lazy_dataclass import dataclass

__all__ = ["Log"]

_YEAR_S = 366 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log on disk: where it is, what it keeps, when it syncs."""

    data_dir: str = field(
        default="data",
        metadata=option(
            Text("a path"),
            "The folder of the log; made, for its owner alone, when it does not exist. A relative path "
            "starts from the working folder.",
            when="always, for a service: choose a folder on a disk that keeps what it confirms",
        ),
    )
    engine: Literal["local", "kafka"] = field(
        default="local",
        metadata=option(
            Choice(("local", "kafka")),
            '"local": the folder alone keeps the log. "kafka": each change of the folder is also kept by a '
            "Kafka cluster, and other nodes take over when this one fails; see docs/how-to/cluster.md.",
            when="a confirmed message must survive the loss of the machine",
        ),
    )
    folders: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Names(),
            "Further folders for segments, on other disks; each must exist, and be of this gateway alone. "
            "A new segment goes where most is free.",
            when="one disk is too small for the backlog or the retention",
        ),
    )
    segment_bytes: int = field(
        default=64 * MIB,
        metadata=option(
            Bytes(MIB, 2 * GIB),
            "Size of one file of the write-ahead log, which is preallocated. Space is given back file by "
            "file.",
            when="the disk is small (lower: space is given back sooner)",
        ),
    )
    tail_cache_bytes: int = field(
        default=128 * MIB,
        metadata=option(
            Bytes(MIB, 1024 * GIB),
            "Memory for the newest messages, from which consumers that keep up are served.",
            when="consumers are often a few seconds behind, and memory is free (raise), or memory is "
            "short (lower)",
        ),
    )
    read_cache_bytes: int = field(
        default=48 * MIB,
        metadata=option(
            Bytes(MIB, 1024 * GIB),
            "Memory for older messages read back from disk, so that a consumer that catches up displaces "
            "nothing else.",
            when="many consumers read old messages at the same time",
        ),
    )
    feed_cache_bytes: int = field(
        default=32 * MIB,
        metadata=option(
            Bytes(MIB, 1024 * GIB),
            "Memory for the lists of positions in older files of the log; the rest is read from disk.",
            when="replays and long backlogs over thousands of queues read the disk much",
        ),
    )
    fsync: Literal["group", "never"] = field(
        default="group",
        metadata=option(
            Choice(("group", "never")),
            '"group": a confirm of a durable message waits until the disk has it; one sync serves all '
            'that wait. "never": nothing is synced and a power cut loses confirmed messages; for tests '
            "and benchmarks only.",
            when="never for real data",
        ),
    )
    confirm_settled: bool = field(
        default=False,
        metadata=option(
            Switch(),
            "Confirm a durable message that consumers settle at once, for example by automatic "
            "acknowledgement, when it is written, without waiting for the disk. Only if every queue that "
            "got it has settled it. After a power cut such a message may be missing from replays.",
            when="publishers wait for each confirm, consumers take messages at once, and no replay must be "
            "complete",
        ),
    )
    checkpoint_bytes: int = field(
        default=256 * MIB,
        metadata=option(
            Bytes(MIB, 1024 * GIB),
            "After this much log a snapshot of all state is written, which bounds what a restart must read.",
            when="a start after a crash takes too long (lower)",
        ),
    )
    traffic_retention_bytes: int = field(
        default=10 * GIB,
        metadata=option(
            Bytes(0, 2**60),
            "How much of what each vhost published is kept for replay, what is acknowledged by all included; "
            "0 = none. A vhost may have a limit of its own. Messages that a queue needs are always kept.",
            when="you want to replay further back, or the disk is small",
        ),
    )
    traffic_retention_s: float = field(
        default=86400.0,
        metadata=option(
            Seconds(0, 100 * _YEAR_S),
            "How long what was published is kept for replay, within traffic_retention_bytes.",
            when="you want to replay further back, or must not keep data for so long",
        ),
    )
    max_backlog_bytes: int = field(
        default=0,
        metadata=option(
            Bytes(0, 2**60),
            "Publishers to a vhost wait while its queues hold more of the log than this; 0 = they never do. "
            "A vhost may have a limit of its own (max-backlog-bytes).",
            when="publishers shall slow down, rather than fill the disk, when consumers are away",
        ),
    )
    max_backlog_bytes_reject: int = field(
        default=0,
        metadata=option(
            Bytes(0, 2**60),
            "What is published to a vhost is refused while its queues hold more of the log than this; 0 = it "
            "never is. A vhost may have a limit of its own (max-backlog-bytes-reject).",
            when="publishers shall get an error, rather than wait, when consumers are away",
        ),
    )
    max_backlog_bytes_evict: int = field(
        default=0,
        metadata=option(
            Bytes(0, 2**60),
            "The oldest messages in the queues of a vhost go, to their dead-letter exchange where they have "
            "one, when its queues hold more of the log than this; 0 = they stay. A vhost may have a limit of "
            "its own (max-backlog-bytes-evict).",
            when="new messages are worth more than old ones",
        ),
    )
    lease_bytes: int = field(
        default=10 * GIB,
        metadata=option(
            Bytes(0, 2**60),
            "How much of the log beyond that is kept for readers of the log itself (Spark) that say what "
            "they still need; 0 = nothing.",
            when="Spark jobs fall further behind than this",
        ),
    )
    compression_level: int = field(
        default=1,
        metadata=option(
            Count(0, 19),
            "Level of zstd for what is kept longer than that; 0 = it is not compressed.",
            when="the disk is small and CPU is free (raise), or CPU is short (0)",
        ),
    )
    min_free_bytes: int | Literal["auto"] = field(
        default="auto",
        metadata=option(
            AutoBytes(0, 2**60),
            "Publishers are stopped while the file system of data_dir has less free space than this. "
            '"auto": 5 % of the file system, at least 2 GB and at most 50 GB, but never more than 10 %.',
            when="other programs write to the same file system",
        ),
    )
    scrub_bytes_per_s: int = field(
        default=8 * MIB,
        metadata=option(
            Bytes(0, 1024 * GIB),
            "How fast closed files of the log are read again in the background, to find what the disk has "
            "lost before it is needed; 0 = never.",
            when="reading disturbs a slow disk (lower), or a week is too short for the amount of data "
            "(raise)",
        ),
    )
    salvage: bool = field(
        default=False,
        metadata=option(
            Switch(),
            "Start on a log that is damaged in the middle: what can be read is kept, what cannot is fenced "
            "off and listed. Without it such a log is refused.",
            when="a start refused a damaged log, and there is no backup; for one start only",
        ),
    )
