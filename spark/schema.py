"""The table `traffic`, version 1: one row per message in the log, whatever protocol it came by.

Columns are only ever added, by name and nullable. The Spark and the Arrow schema are made from one list.
docs/reference/spark.md says what each column holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.errors import SparkError, SparkOptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "COLUMNS",
    "EVENT_COLUMNS",
    "SCHEMA_VERSION",
    "TABLES",
    "arrow_schema",
    "arrow_schema_of",
    "ddl",
    "names_of",
    "select",
]

SCHEMA_VERSION: Final = 1

_HEADERS: Final = "array<struct<name:string,type:string,value:binary>>"

COLUMNS: Final[dict[str, str]] = {
    "protocol": "string",
    "vhost": "string",
    "address": "string",
    "routing_key": "string",
    "partition": "int",
    "offset": "bigint",
    "append_time": "timestamp",
    "event_time": "timestamp",
    "expires_at": "timestamp",
    "priority": "tinyint",
    "qos": "tinyint",
    "persistent": "boolean",
    "retain": "boolean",
    "feeds": "int",
    "message_id": "string",
    "correlation_id": "binary",
    "reply_to": "string",
    "content_type": "string",
    "content_encoding": "string",
    "type": "string",
    "app_id": "string",
    "user_id": "string",
    "headers": _HEADERS,
    "payload_size": "int",
    "payload": "binary",
}
"""Name to Spark type, in table order."""

EVENT_COLUMNS: Final[dict[str, str]] = {
    "kind": "string",
    "vhost": "string",
    "partition": "int",
    "offset": "bigint",
    "index": "int",
    "append_time": "timestamp",
    "message_offset": "bigint",
    "queue": "string",
    "connection": "string",
    "user": "string",
    "redelivered": "boolean",
    "detail": "string",
    "messages": "int",
}
"""The same of the table `events`: (offset, index) names a row, message_offset is an offset of `traffic`."""

TABLES: Final = {"traffic": COLUMNS, "events": EVENT_COLUMNS}


def select(columns: str | None, payload: str, table: str = "traffic") -> list[str]:
    """The columns that `columns=` (comma separated; None: all) and `payload=` ask for, in table order.

    Raises:
        SparkOptionError: one of them is no column.

    """
    known = TABLES[table]
    names = list(known) if columns is None else [name.strip() for name in columns.split(",")]
    for name in names:
        if name not in known:
            raise SparkOptionError("columns", name, f"give some of {', '.join(known)}")
    if payload == "none":
        names = [name for name in names if name != "payload"]
    chosen = set(names)
    return [name for name in known if name in chosen]


def ddl(names: Sequence[str], table: str = "traffic") -> str:
    """The Spark schema of these columns, in the order given."""
    return ", ".join(f"`{name}` {TABLES[table][name]}" for name in names)


def names_of(schema: StructType, table: str = "traffic") -> list[str]:
    """The columns of a schema that Spark hands over (the user may have given it).

    Raises:
        SparkOptionError: a column is none of the table, or of another type.

    """
    for field in schema.fields:
        wanted = TABLES[table].get(field.name)
        if wanted is None or field.dataType.simpleString() != wanted:
            remedy = f"it is {wanted}" if wanted else f"the columns are {', '.join(TABLES[table])}"
            raise SparkOptionError("schema", f"{field.name} {field.dataType.simpleString()}", remedy)
    return [field.name for field in schema.fields]


def arrow_schema(names: Sequence[str], table: str = "traffic") -> pa.Schema:
    """The Arrow schema of these columns, exactly as Spark expects it of a data source."""
    import pyarrow as pa

    types = _arrow_types()
    return pa.schema([(name, types[TABLES[table][name]]) for name in names])


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """The same of any schema of Spark's. Raises SparkError for a type that no table here has."""
    import pyarrow as pa

    types = _arrow_types()
    fields = []
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind not in types:
            raise SparkError(
                f"column {field.name!r} is {kind}", remedy=f"cast it to one of {', '.join(types)}"
            )
        fields.append(pa.field(field.name, types[kind]))
    return pa.schema(fields)


def _arrow_types() -> dict[str, Any]:
    import pyarrow as pa

    header = pa.struct([("name", pa.string()), ("type", pa.string()), ("value", pa.binary())])
    return {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "tinyint": pa.int8(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        _HEADERS: pa.list_(header),
    }
