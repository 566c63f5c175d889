"""Cost of a cursor per record, and bytes of a queue that does nothing.

    python bench/micro_cursor.py [--records 500000] [--take 256]

Prints the best of five in nanoseconds per record: taking and settling through one membership, through two
that never overlap, and through two that always do; and giving everything back once before it is settled.
The log is in a temporary folder; appending and writing are not measured.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.log_core.feeds._feed import Feed
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.queues import Queues
from penstock.subscriptions.tick.tick import Tick

ROUNDS = 5


def fill(log: Log, routes: Sequence[Sequence[Feed]], records: int) -> int:
    """Append records to the routes in turn; the position of the first."""
    first = log.appender.next_lsn
    targets = [log.target(feeds, False) for feeds in routes]
    for i in range(records):
        log.appender.append_record(0, targets[i % len(targets)], b"key", b"", b"x" * 100)
        if i % 1000 == 999:
            log.flush()
    log.flush()
    return first


def best(log: Log, feeds: Sequence[Feed], first: int, step: Callable[[Cursor], int]) -> float:
    """Seconds of the best round that reads everything from `first` on, by `step` until it returns 0."""
    seconds = []
    for _ in range(ROUNDS):
        cursor = Cursor(log)
        for tag, feed in enumerate(feeds):
            cursor.join(feed, first, tag)
        begin = time.perf_counter()
        while step(cursor):
            pass
        seconds.append(time.perf_counter() - begin)
        assert cursor.outstanding == 0 and cursor.low() == 2**64 - 1
    return min(seconds)


def main() -> None:
    """Run all measurements and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--take", type=int, default=256)
    arguments = parser.parse_args()
    records, n = arguments.records, arguments.take

    def settle(cursor: Cursor) -> int:
        taken = cursor.take(n)
        cursor.settle_taken()
        return taken

    def twice(cursor: Cursor) -> int:
        cursor.take(n)
        cursor.put_back(0)
        taken = cursor.take(n)
        cursor.settle_taken()
        return taken

    with tempfile.TemporaryDirectory() as folder:
        log = Log.open(Path(folder) / "data", LogOptions())
        one, left, right, double = (log.new_feed() for _ in range(4))
        for name, feeds, routes, step in (
            ("one membership", [one], [[one]], settle),
            ("two, apart", [left, right], [[left], [right]], settle),
            ("two, always both", [left, double], [[left, double]], settle),
            ("one, put back and taken again", [one], [[one]], twice),
        ):
            first = fill(log, routes, records)
            ns = best(log, feeds, first, step) / records * 1e9
            print(f"{name:32} {ns:7.1f} ns per record")
        tick = Tick(log, _NoLoop())
        queues = Queues(log, tick)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for i in range(1000):
            queues.create(f"queue-{i}", "/", durable=True).join(one)
        size = (tracemalloc.get_traced_memory()[0] - before) / 1000
        tracemalloc.stop()
        print(f"{'idle durable queue, its record':32} {size:7.0f} bytes")
        log.close_sync()


class _NoLoop:
    """A loop that never runs anything."""

    def call_soon(self, callback: object, *args: object) -> None: ...
    def call_later(self, delay: float, callback: object, *args: object) -> None: ...
    def time(self) -> float:
        return 0.0


if __name__ == "__main__":
    main()
