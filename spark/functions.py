"""Columns of `traffic` decoded, as expressions of Spark's own: no row is seen by Python.

from penstock.spark.functions import header, payload_json

frame.select(header("k"), payload_json("temperature double"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["header", "header_number", "headers_map", "payload_json", "payload_text"]

_SIGNED: Final = ("int8", "int16", "int32", "int64")
_NUMBERS: Final = (*_SIGNED, "uint8", "uint16", "uint32", "timestamp")


def _first(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.try_element_at(f.filter("headers", lambda item: item["name"] == name), f.lit(1))


def header(name: str) -> Column:
    """The first header, or MQTT user property, of this name as text; null: there is none that is text."""
    from pyspark.sql import functions as f

    found = _first(name)
    return f.when(found["type"] == "string", found["value"].cast("string")).alias(name)


def header_number(name: str) -> Column:
    """The first header of this name as bigint (a timestamp: seconds since 1970); null: it is no integer."""
    from pyspark.sql import functions as f

    found = _first(name)
    # Big-endian, at most 64 bits (amqp091:4.2.5.2): decimals have room for the unsigned value.
    value = f.conv(f.hex(found["value"]), 16, 10).cast("decimal(20,0)")
    size = f.pow(f.lit(2), 8 * f.octet_length(found["value"])).cast("decimal(20,0)")
    negative = found["type"].isin(*_SIGNED) & (value >= size / 2)
    number = f.when(negative, value - size).otherwise(value)
    return f.when(found["type"].isin(*_NUMBERS), number.cast("bigint")).alias(name)


def headers_map() -> Column:
    """map<string, binary>; of headers that share a name the first one counts."""
    from pyspark.sql import functions as f

    names = f.array_distinct(f.transform("headers", lambda item: item["name"]))

    def value(name: Column) -> Column:
        same = f.filter("headers", lambda item: item["name"] == name)
        return f.element_at(same, 1)["value"]

    return f.map_from_arrays(names, f.transform(names, value)).alias("headers")


def payload_text() -> Column:
    """The payload as text (UTF-8)."""
    from pyspark.sql import functions as f

    return f.col("payload").cast("string").alias("payload")


def payload_json(schema: str) -> Column:
    """A payload that is JSON as a struct of this schema (DDL); what it lacks is null."""
    from pyspark.sql import functions as f

    return f.from_json(payload_text(), schema).alias("payload")
