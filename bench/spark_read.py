"""Rows per CPU-second that Spark reads, of the whole process tree: `python -m bench.spark_read [RECORDS]`.

Messages of 100 B with AMQP properties, five columns, into Spark's `noop` sink and to `count()`; beside it the
same rows from Parquet by Spark's own reader, which nobody who starts in Python can beat. Two runs to warm up,
then the best of three. The log is written by this process and closed: no gateway runs.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.cpu import cpu_seconds
from penstock.log_core._batch import AMQP091, PERSISTENT
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.spark.log_view import LogView
from penstock.spark.reading import Selection, read_places
from penstock.spark.session import session

COLUMNS = ("offset", "append_time", "address", "routing_key", "payload")
RECORDS = 2_000_000
TICK_RECORDS = 500
BODY = bytes(range(100))


def write_log(path: Path, records: int) -> None:
    """A log of `records` messages, in ticks as a loaded gateway writes them."""
    log = Log.open(path, LogOptions(fsync="never", min_free_bytes=0))
    target = log.target([], False)
    key = b"\x06orders\x06new.eu"
    properties = struct.pack(">HB", 1 << 12, 2)
    for _ in range(records // TICK_RECORDS):
        for _ in range(TICK_RECORDS):
            log.appender.append_record(0, target, key, properties, BODY, PERSISTENT, 0, AMQP091)
        log.flush()
    log.close_sync()


def measure(name: str, records: int, run: Callable[[], object], runs: int = 5) -> None:
    """Print the best rate of the runs behind the first two."""
    rates = []
    for _ in range(runs):
        before = cpu_seconds(os.getpid())
        run()
        rates.append(records / (cpu_seconds(os.getpid()) - before) / 1000)
    print(f"{name:34} {max(rates[2:]):8.0f} k rows per CPU-second", flush=True)


def main() -> None:
    """Run it."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        path = Path(folder) / "log"
        write_log(path, records)
        view = LogView(path)
        view.refresh()
        places = view.places(view.first, view.end(written=True), 1 << 62)
        parquet = Path(folder) / "rows.parquet"

        def decode() -> None:
            assert sum(batch.num_rows for batch in read_places(path, places, Selection(COLUMNS))) == records

        measure("decode only, one process", records, decode)
        pq.write_table(pa.Table.from_batches(list(read_places(path, places, Selection(COLUMNS)))), parquet)
        spark = session("penstock bench", memory="2g")
        frame = spark.read.format("penstock").option("columns", ",".join(COLUMNS)).load(str(path))
        own = spark.read.parquet(str(parquet))
        measure("penstock to noop", records, lambda: frame.write.format("noop").mode("overwrite").save())
        measure("penstock to count()", records, frame.count)
        measure(
            "Spark's Parquet reader to noop",
            records,
            lambda: own.write.format("noop").mode("overwrite").save(),
        )
        spark.stop()


if __name__ == "__main__":
    main()
