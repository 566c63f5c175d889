"""Payloads of MQTT devices as typed rows, or rolled up over windows of time, into a table.

    penstock spark telemetry --data DIR --to delta:PATH --checkpoint DIR --topics 'plant/+/sensor' \\
        --fields 'temperature double, at bigint' --time at --window 1m --watermark 10m
    spark-submit .../penstock/spark/jobs/telemetry.py --data DIR --to delta:PATH --checkpoint DIR --fields ...

Without --window the rows themselves go into the table, with a column that says which are late.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import SparkOptionError
from penstock.spark.jobs.shared.arguments import duration_s
from penstock.spark.jobs.shared.common import add_choice, choice_of, every, program, run_stream
from penstock.spark.telemetry import OBSERVED, parse_fields, rolled_up, typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["main", "start_telemetry"]

_COLUMNS = "offset,append_time,routing_key,payload"


def start_telemetry(
    spark: SparkSession,
    data: Path | str,
    to: str,
    checkpoint: Path,
    *,
    fields: Mapping[str, str],
    time_field: str | None = None,
    scalar: bool = False,
    window_s: float | None = None,
    lateness_s: float = 600.0,
    options: Mapping[str, str],
    every_s: float | None = None,
) -> StreamingQuery:
    """Start the stream into the table `to`; `every_s` None: take what is there and end.

    `options` are those of the source; for the others see `telemetry.typed` and `rolled_up` (`window_s` None:
    no windows). Raises SparkError when table and checkpoint do not fit.
    """
    from penstock.spark.tables.row_sink import start_rows

    chosen = {**options, "columns": _COLUMNS}
    if "startingTimestamp" not in chosen:
        chosen.setdefault("startingOffsets", "earliest")
    frame = spark.readStream.format("penstock").options(**chosen).load(str(data))
    rows = typed(frame, fields, lateness_s=lateness_s, time_field=time_field, scalar=scalar)
    if window_s is None:
        return start_rows(rows, to, checkpoint, moment="event_time", every_s=every_s)
    groups = rolled_up(rows, fields, window_s, lateness_s)
    return start_rows(groups, to, checkpoint, moment="window_start", every_s=every_s)


def _add(parser: argparse.ArgumentParser) -> None:
    add_choice(parser, stream=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--fields",
        metavar="X",
        help="of the JSON object a payload is: 'temperature double, ok boolean', or a file with a JSON "
        "object of name and type",
    )
    what.add_argument("--value", metavar="NAME", help="a payload is a bare number, which gets this name")
    parser.add_argument("--time", metavar="FIELD", help="the field with the time (default: append_time)")
    parser.add_argument("--window", type=duration_s, metavar="T", help="roll up over windows of this length")
    parser.add_argument(
        "--watermark",
        type=duration_s,
        default="10m",
        metavar="T",
        help="what arrives later than this is late: counted, and in no window (default: %(default)s)",
    )


class _Totals:
    """Counts since the job started."""

    def __init__(self) -> None:
        self.unreadable = self.late = 0

    def shown(self, progress: dict[str, Any]) -> str:
        """A line about one micro-batch."""
        seen = progress["observedMetrics"].get(OBSERVED)
        if seen is None:
            return "nothing"
        self.unreadable += seen["unreadable"]
        self.late += seen["late"]
        line = f"{seen['messages']} messages; since the start {self.late} late, {self.unreadable} unreadable"
        dropped = sum(state["numRowsDroppedByWatermark"] for state in progress["stateOperators"])
        return f"{line}; {dropped} groups dropped: the gateway's clock was set back" if dropped else line


def _fields(arguments: argparse.Namespace) -> dict[str, str]:
    if arguments.value is not None:
        return parse_fields(f"{arguments.value} double")
    path = Path(arguments.fields)
    return parse_fields(path.read_text() if path.is_file() else arguments.fields)


def _run(arguments: argparse.Namespace) -> int:
    from penstock.spark.session import session

    fields = _fields(arguments)
    if arguments.time is not None and arguments.time not in fields:
        raise SparkOptionError("time", arguments.time, f"give one of the fields {', '.join(fields)}")
    every_s = every(arguments)
    spark = session("penstock spark telemetry", cores=arguments.cores, memory=arguments.memory)

    def start() -> StreamingQuery:
        return start_telemetry(
            spark,
            arguments.data,
            arguments.to,
            arguments.checkpoint,
            fields=fields,
            time_field=arguments.time,
            scalar=arguments.value is not None,
            window_s=arguments.window,
            lateness_s=arguments.watermark,
            options=choice_of(arguments),
            every_s=every_s,
        )

    run_stream(start, _Totals().shown, arguments, "telemetry")
    spark.stop()
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    return program("telemetry", "Payloads as typed rows, or rolled up, into a table.", _add, _run, words)


if __name__ == "__main__":
    sys.exit(main())
