"""Payloads of devices as typed rows, and roll-ups of them over windows of time.

A row's `event_time` is what the payload says, at most `append_time` (a device's clock may be ahead), else
`append_time`. A row is *late* when it is older than the gateway's time at its arrival by more than
`lateness`: that depends on the row alone, not on how Spark cut the stream. Late rows are in no window. With
Spark's watermark at the same distance no row that is not late is dropped, since within the log `append_time`
rises:

    watermark of a micro-batch <= greatest append_time before it - lateness <= event_time of each row not late

So a roll-up is the same over kills, other micro-batches, or in one go. (If the gateway's clock is set back by
more than that, Spark drops what follows, and the job says how much.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.errors import SparkOptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["OBSERVED", "numeric", "parse_fields", "rolled_up", "typed"]

TYPES: Final = ("double", "float", "bigint", "int", "boolean", "string", "timestamp")
OBSERVED: Final = "penstock"
"""Name of the metrics in a query's progress: messages, unreadable, late."""

_OURS: Final = ("offset", "append_time", "event_time", "topic", "late", "level")
_MS_LEAST: Final = 100_000_000_000
"""Numbers from here on are milliseconds: as seconds it would be the year 5138."""
_CORRUPT: Final = "_unreadable"


def parse_fields(text: str) -> dict[str, str]:
    """Fields of a payload such as `temperature double, ok boolean`, or a JSON object of name and type.

    Raises SparkOptionError.
    """
    import json

    if text.lstrip().startswith("{"):
        try:
            pairs = list(json.loads(text).items())
        except ValueError as error:
            raise SparkOptionError("fields", text, f"give a JSON object of name and type: {error}") from None
    else:
        pairs = [tuple(part.split()) for part in text.split(",")]
    fields: dict[str, str] = {}
    for pair in pairs:
        if len(pair) != 2 or pair[1] not in TYPES or pair[0] in _OURS or "`" in pair[0]:
            raise SparkOptionError(
                "fields", " ".join(map(str, pair)), f"give NAME TYPE, types {', '.join(TYPES)}"
            )
        fields[pair[0]] = pair[1]
    return fields


def numeric(fields: Mapping[str, str]) -> list[str]:
    """Those that can be added up."""
    return [name for name, kind in fields.items() if kind in ("double", "float", "bigint", "int")]


def typed(
    frame: DataFrame,
    fields: Mapping[str, str],
    *,
    lateness_s: float,
    time_field: str | None = None,
    scalar: bool = False,
) -> DataFrame:
    """Rows `offset, append_time, event_time, topic, late` and the fields; unreadable payloads have none.

    Args:
        frame: Has the columns offset, append_time, routing_key and payload.
        fields: Name to type, of the JSON object that a payload is; what it lacks is null.
        lateness_s: See the module.
        time_field: The field that has the time: a timestamp, text (ISO 8601), or seconds or ms since 1970.
        scalar: A payload is the one field's bare value, such as `21.5`.

    """
    from pyspark.sql import functions as f

    text = f.col("payload").cast("string")
    if scalar:
        ((name, kind),) = fields.items()
        values = f.struct(
            f.expr(f"try_cast(cast(payload AS string) AS {kind})").alias(name),
        )
        values = f.struct(values[name].alias(name), f.when(values[name].isNull(), text).alias(_CORRUPT))
    else:
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in fields.items())
        values = f.from_json(
            text, f"{ddl}, `{_CORRUPT}` string", {"columnNameOfCorruptRecord": _CORRUPT, "timeZone": "UTC"}
        )
    rows = frame.select("offset", "append_time", f.col("routing_key").alias("topic"), values.alias("_values"))
    unreadable = f.col("_values").isNull() | f.col(f"_values.{_CORRUPT}").isNotNull()
    moment = f.col("append_time")
    if time_field is not None:
        told = _moment(f.col(f"_values.{time_field}"), fields[time_field])
        moment = f.coalesce(f.least(told, moment), moment)
    rows = rows.withColumns({"event_time": moment, "_unreadable": unreadable})
    slack = f.expr(f"make_dt_interval(0, 0, 0, {lateness_s:.6f})")
    rows = rows.withColumn("late", f.col("event_time") < f.col("append_time") - slack)
    rows = rows.observe(
        OBSERVED,
        f.count("*").alias("messages"),
        f.count_if("_unreadable").alias("unreadable"),
        f.count_if(~f.col("_unreadable") & f.col("late")).alias("late"),
    )
    columns = [f.col(f"_values.{name}").alias(name) for name in fields if name != time_field]
    return rows.where("NOT _unreadable").select(
        "offset", "append_time", "event_time", "topic", "late", *columns
    )


def _moment(column: Column, kind: str) -> Column:
    from pyspark.sql import functions as f

    if kind == "timestamp":
        return column
    if kind == "string":
        return f.try_to_timestamp(column)
    seconds = f.when(f.abs(column) >= _MS_LEAST, column / 1000.0).otherwise(column.cast("double"))
    return f.timestamp_micros((seconds * 1_000_000).cast("bigint"))


def rolled_up(rows: DataFrame, fields: Mapping[str, str], window_s: float, lateness_s: float) -> DataFrame:
    """Per topic and window of event_time: messages, and of each number its avg, min, max and last value.

    `rows` is a stream of `typed`; a window comes out when the watermark has passed its end.
    """
    from pyspark.sql import functions as f

    figures: list[Any] = [f.count("*").alias("messages")]
    for name in numeric(fields):
        if name in rows.columns:
            figures += [
                f.avg(name).alias(f"{name}_avg"),
                f.min(name).alias(f"{name}_min"),
                f.max(name).alias(f"{name}_max"),
                f.max_by(name, f.when(f.col(name).isNotNull(), f.struct("event_time", "offset"))).alias(
                    f"{name}_last"
                ),
            ]
    window = f.window("event_time", f"{round(window_s * 1000)} milliseconds")
    groups = rows.where("NOT late").withWatermark("event_time", f"{round(lateness_s * 1000)} milliseconds")
    found = groups.groupBy(window, "topic").agg(*figures)
    bounds = [f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end")]
    return found.select(*bounds, *[name for name in found.columns if name != "window"])
