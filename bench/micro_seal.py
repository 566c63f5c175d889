"""Sealing, replaying and searching, measured on one log: `python -m bench.micro_seal [MIB]`.

Writes MIB (256) of 1 KiB messages of two queues, 1 % of them of one that nobody consumes; then searches the
history of a key, reads everything again, finds what stays of the segments, and compresses all of them.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from penstock.log_core.batch._batch import PERSISTENT, Record
from penstock.log_core.batch._blocks import pack
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.layout import WAL_HEAD_BYTES
from penstock.log_core.log import Log
from penstock.log_core.maintenance._seal import Needs
from penstock.log_core.options import LogOptions
from penstock.log_core.segments.segment import Segment


def _body(rng: random.Random) -> bytes:
    """1 KiB as sensors send it."""
    readings = [
        {"at": 1795327200000 + rng.randrange(10**7), "value": round(rng.gauss(21, 3), 2), "quality": "good"}
        for _ in range(20)
    ]
    text = json.dumps({"sensor": f"hall/{rng.randrange(1000)}", "unit": "C", "readings": readings})
    return text.encode()[:1024].ljust(1024)


BODIES = [_body(random.Random(number)) for number in range(10_000)]


class _OneKey:
    lp = 0

    def verdict(self, enc: int, key: bytes) -> int:
        return int(key == b"stuck")

    def is_wanted(self, record: Record) -> bool:
        raise AssertionError


def _fill(log: Log, target_bytes: int) -> tuple[Feed, int]:
    stuck, busy = log.new_feed(), log.new_feed()
    targets = [log.target([feed], True) for feed in (stuck, busy)]
    count = 0
    while log.appender.appended_bytes < target_bytes:
        body = BODIES[count % len(BODIES)]
        log.appender.append_repeated(1, 0, targets[0], b"stuck", b"", body, PERSISTENT)
        for body in random.sample(BODIES, 99):
            log.appender.append_repeated(1, 0, targets[1], b"busy", b"", body, PERSISTENT)
        log.flush()
        count += 100
    log.wait_synced(log.written_lsn)
    return stuck, count


def _until(log: Log, done: list[object]) -> None:
    while not done:
        log._inbox.wait()


def _seal(segment: Segment, feed: Feed | None, level: int) -> int:
    """Do everything that sealing does but the writing; the bytes that stay."""
    needs = Needs(segment.base_lsn, segment.next_lsn)
    for needed in segment.feeds if feed is None else [feed]:
        needs.need_feed(needed.id, 0, 2**64 - 1)
    kept = at = WAL_HEAD_BYTES
    with (
        segment.path.open("rb") as file,
        contextlib.closing(mmap.mmap(file.fileno(), segment.end, access=mmap.ACCESS_READ)) as data,
    ):
        while at < len(data):
            survivors, at, _, _ = needs.survivors(data, at)
            kept += sum(len(piece) for piece, _, _ in pack(survivors, level))
    return kept


def main(mib: int) -> None:
    """Run it and print one figure per line."""
    with tempfile.TemporaryDirectory() as folder:
        options = LogOptions(
            min_free_bytes=0, checkpoint_bytes=32 << 20, segment_bytes=min(64, max(mib // 4, 1)) << 20
        )
        log = Log.open(Path(folder) / "d", options)
        started = time.perf_counter()
        stuck, count = _fill(log, mib << 20)
        print(f"filled            {mib / (time.perf_counter() - started):8.0f} MiB/s, {count} messages")

        found: list[object] = []
        started = time.perf_counter()
        log.search(
            1, _OneKey(), lambda *result: found.append(result), last=log.appender.next_lsn, durable=True
        )
        log.flush()
        _until(log, found)
        print(f"history searched  {mib / (time.perf_counter() - started):8.0f} MiB/s")

        started = time.perf_counter()
        lsn, read = 1, 0
        while lsn < log.written_lsn:
            segment = log.segment_of(lsn)
            assert segment is not None
            batches = log.reader.read(segment, lsn)
            read += sum(batch.nbytes for batch in batches)
            last = batches[-1] if batches else None
            lsn = last.base_lsn + last.count if last is not None else segment.next_lsn
        print(f"read again        {read / (1 << 20) / (time.perf_counter() - started):8.0f} MiB/s")

        segments = [s for s in log._segments.live[:-1] if s.indexed]
        size = sum(segment.end for segment in segments)
        for name, feed, level in (
            ("1 % stays         ", stuck, 0),
            ("all stays, zstd 1 ", None, 1),
            ("all stays, zstd 3 ", None, 3),
            ("all stays, zstd 6 ", None, 6),
        ):
            started = time.perf_counter()
            kept = sum(_seal(segment, feed, level) for segment in segments)
            rate = size / (1 << 20) / (time.perf_counter() - started)
            print(f"{name}{rate:8.0f} MiB/s, {100 * kept / size:6.2f} % of the bytes")
        print(
            f"memory            {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:8.0f} MiB at most"
        )
        log.close_sync()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 256)
