"""How long the event loop waits for the page cache while the disk syncs: durations of a tick's write.

    python -m bench.micro_stall [--seconds N] [--rates MB/s ...]

The log is written on the loop, the committer thread syncs it. A write that meets a running sync may wait for
it in the kernel, and then nothing else moves. Ticks are made at a steady rate of bytes, each millisecond or
each 5 ms; each waits for its sync, as publishers with confirms do. Compare with the lines "no sync", where
nothing is synced. The log is made in the working folder, on the disk to be measured.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from statistics import quantiles
from typing import Literal

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions

BODY = 1000


def measure(
    folder: Path, rate: float, tick_s: float, seconds: float, fsync: Literal["group", "never"]
) -> str:
    """Durations of the write in each tick at `rate` bytes per second."""
    log = Log.open(folder, LogOptions(min_free_bytes=0, traffic_retention_bytes=0, fsync=fsync))
    log.low_water = lambda: (1 << 64) - 1
    calls: SimpleQueue[tuple[Callable[..., object], tuple[object, ...]]] = SimpleQueue()
    log.attach(lambda function, *given: calls.put((function, given)))
    target = log.target([log.new_feed()], True)
    count = max(int(rate * tick_s / BODY), 1)
    flushes: list[float] = []
    synced: list[float] = []
    begins = time.perf_counter()
    due = begins
    while due - begins < seconds:
        while (now := time.perf_counter()) < due:
            time.sleep(due - now)
            while not calls.empty():  # what the threads of the log ask of the loop
                function, given = calls.get()
                function(*given)
        log.appender.append_repeated(count, 0, target, b"key", b"", bytes(BODY), PERSISTENT)
        asked = time.perf_counter()

        def done(ok: bool, asked: float = asked) -> None:
            synced.append(time.perf_counter() - asked)

        log.when_synced(log.appender.next_lsn - 1, done)
        start = time.perf_counter()
        log.flush()
        flushes.append(time.perf_counter() - start)
        log.unwritten.take_dirty()
        due += tick_s
    took = time.perf_counter() - begins
    log.close_sync()
    cuts = quantiles(flushes, n=1000)
    late = sum(one > 0.002 for one in flushes)
    return (
        f"{fsync if fsync == 'group' else 'no sync':8} {rate / 1e6:5.0f} {tick_s * 1e3:5.0f} ms "
        f"{count * BODY * len(flushes) / took / 1e6:8.0f} {cuts[499] * 1e3:8.2f} {cuts[989] * 1e3:8.2f} "
        f"{cuts[998] * 1e3:8.2f} {max(flushes) * 1e3:8.2f} {late / len(flushes) * 100:8.2f} % "
        f"{sorted(synced)[len(synced) // 2] * 1e3:8.2f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="per line (default 4)")
    parser.add_argument("--rates", type=float, nargs="+", default=[1, 20, 100, 300], help="MB/s")
    chosen = parser.parse_args(arguments)
    print("            MB/s  tick  reached ms: p50      p99     p99.9      max   > 2 ms     synced p50")
    ways: tuple[Literal["group", "never"], ...] = ("group", "never")
    for fsync in ways:
        for tick_s in (0.001, 0.005):
            for rate in chosen.rates:
                with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-stall-") as name:
                    print(measure(Path(name), rate * 1e6, tick_s, chosen.seconds, fsync), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
