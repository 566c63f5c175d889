"""Traffic by window, vhost, protocol, address and key, as rows of a table that grows from run to run.

Only whole windows are written: `append_time` never goes back, so one is whole when something later has come.
The table knows up to which window it has a log, so each is there once however often this runs.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.spark.schema import arrow_schema_of
from penstock.spark.tables.files import write_files
from penstock.spark.tables.table import open_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["NEEDED", "roll_up", "rolled_up_to"]

NEEDED = ("append_time", "vhost", "protocol", "address", "routing_key", "payload_size", "feeds")
"""The columns it is made of."""


def rolled_up_to(to: str, who: str) -> int:
    """The end of the last window of `who` that the table has, in seconds since 1970; 0: it has none."""
    return open_table(to).position(who) or 0


def roll_up(frame: DataFrame, to: str, who: str, window_s: int) -> tuple[int, datetime]:
    """Add the whole windows behind the last one; how many rows, and the end of the last window.

    Rows do not come to the driver: Spark's tasks write files of them, which one commit adds.
    """
    from pyspark.sql import functions as f

    begin = rolled_up_to(to, who)
    newest = frame.agg(f.max(f.unix_seconds("append_time")).alias("at")).first()
    assert newest is not None
    end = max(begin, (newest["at"] or 0) // window_s * window_s)
    moment = f.unix_seconds("append_time")
    rows = (
        frame.where((moment >= begin) & (moment < end))
        .groupBy(
            f.timestamp_seconds(moment - moment % window_s).alias("time"),
            "vhost",
            "protocol",
            "address",
            "routing_key",
        )
        .agg(
            f.count("*").alias("messages"),
            f.sum("payload_size").alias("bytes"),
            f.percentile_approx("payload_size", 0.5).alias("size_p50"),
            f.percentile_approx("payload_size", 0.99).alias("size_p99"),
            f.max("payload_size").alias("size_max"),
            f.avg("feeds").alias("feeds"),
        )
    )
    schema = arrow_schema_of(rows.schema)
    table = open_table(to)
    table.create(schema, "time")
    root = table.path

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        files = write_files(root, (batch.cast(schema) for batch in batches if batch.num_rows), "time")
        yield pa.RecordBatch.from_pydict({"files": pa.array([pickle.dumps(files)], pa.binary())})

    found = rows.mapInArrow(write, "files binary").collect() if end > begin else []
    files = [file for row in found for file in pickle.loads(row["files"])]
    if files:
        table.publish(who, files, begin, end)
    return sum(file.rows for file in files), datetime.fromtimestamp(end, UTC)
