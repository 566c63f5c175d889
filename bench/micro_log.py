"""Cost of the log core by itself: append, flush, sync, recovery. `python -m bench.micro_log [--mib N]`.

Appends are called in C, as front ends do. Figures are medians of many ticks; on a shared machine read the
ratios. The log is made in a temporary folder of the working folder, so on the disk that is to be measured.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.log_core.state.tables import FEED_TABLE, feed_key

MIB = 1024 * 1024


def measure_ticks(log: Log, feeds: int, per_tick: int, body: int, ticks: int) -> str:
    """Append and flush `ticks` times; a line of the costs."""
    target = log.target([log.new_feed() for _ in range(feeds)], True)
    payload = bytes(body)
    appends: list[float] = []
    flushes: list[float] = []
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    began = log.appender.appended_bytes
    for _ in range(ticks):
        start = time.perf_counter()
        log.appender.append_repeated(
            per_tick, 0, target, b"\x00\x05queue", b"\x10\x00\x02", payload, PERSISTENT
        )
        middle = time.perf_counter()
        log.flush()
        log.unwritten.take_dirty()
        flushes.append(time.perf_counter() - middle)
        appends.append((middle - start) / per_tick)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    size = (log.appender.appended_bytes - began) / ticks
    return (
        f"{feeds:5} {per_tick:7} {body:6} {size / 1024:9.1f} {median(appends) * 1e9:9.1f} "
        f"{median(flushes) * 1e6:9.1f} {quantiles(flushes, n=100)[-1] * 1e6:9.1f} {max(flushes) * 1e6:9.1f} "
        f"{faults / ticks:9.2f}"
    )


def measure_syncs(log: Log, count: int) -> str:
    """One message, synced, `count` times."""
    target = log.target([log.new_feed()], True)
    took = []
    for _ in range(count):
        start = time.perf_counter()
        log.appender.append_repeated(1, 0, target, b"k", b"", bytes(100), PERSISTENT)
        log.wait_synced(log.appender.next_lsn - 1)
        took.append(time.perf_counter() - start)
    p99 = quantiles(took, n=100)[-1]
    return f"append, write, fdatasync: p50 {median(took) * 1e6:.0f} us, p99 {p99 * 1e6:.0f} us"


def measure_recovery(folder: Path, mib: int) -> str:
    """Start after a kill on `mib` MiB of log that no checkpoint covers."""
    options = LogOptions(fsync="never", checkpoint_bytes=1 << 50, min_free_bytes=0)
    child = os.fork()
    if child == 0:
        log = Log.open(folder, options)
        feeds = [log.new_feed() for _ in range(100)]
        for feed in feeds:
            log.tables.put(FEED_TABLE, feed_key(feed.id), b"bench")
        targets = [log.target([feed], True) for feed in feeds]
        while log.appender.appended_bytes < mib * MIB:
            for target in targets:
                log.appender.append_repeated(20, 0, target, b"k", b"", bytes(100), PERSISTENT)
            log.flush()
        os._exit(0)
    os.waitpid(child, 0)
    start = time.perf_counter()
    log = Log.open(folder, options)
    took = time.perf_counter() - start
    found = log.recovery
    log.close_sync()
    return (
        f"recovery of {found.bytes / MIB:.0f} MiB, {found.records} records in 100 feeds: "
        f"scan {found.seconds:.2f} s, ready after {took:.2f} s"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="log that is recovered (default 256)")
    parser.add_argument("--ticks", type=int, default=1000)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-log-") as name:
        log = Log.open(Path(name) / "ticks", LogOptions(min_free_bytes=0, traffic_retention_bytes=0))
        log.low_water = lambda: (1 << 64) - 1
        print("feeds records   body  KiB/tick ns/append  us/flush       p99       max faults/tick")
        for feeds, per_tick, body in (
            (1, 1, 100),
            (1, 100, 100),
            (1, 2000, 100),
            (10, 2000, 100),
            (1, 2000, 16),
        ):
            print(measure_ticks(log, feeds, per_tick, body, chosen.ticks))
        print(measure_syncs(log, 200))
        log.close_sync()
        print(measure_recovery(Path(name) / "recovery", chosen.mib))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
