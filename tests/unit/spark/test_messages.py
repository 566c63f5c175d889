"""Rows as messages, and headers of every type there and back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pamqp import frame
from pamqp.commands import Basic

from penstock.log_core.batch._batch import AMQP091
from penstock.spark.errors import SparkError, SparkOptionError
from penstock.spark.logs.log_view import LogView
from penstock.spark.logs.reading import Selection, read_parts
from penstock.spark.publishing.messages import Envelope, Numbers, encoder, parts
from penstock.spark.schema import COLUMNS, arrow_schema
from penstock.spark.sink import WriteOptions
from tests.support.logs import open_log


def encoded(*rows: dict[str, Any], envelope: Envelope | None = None, by_offset: bool = False) -> bytes:
    names = [name for name in COLUMNS if any(name in row for row in rows)]
    batch = pa.RecordBatch.from_pylist(list(rows), arrow_schema(names))
    encode = encoder(envelope or Envelope(), Numbers("job/0", 7, by_offset), 131072)
    return b"".join(part.frames for part in parts(encode, batch, 500, 1 << 20))


def sent(row: dict[str, Any], envelope: Envelope | None = None) -> tuple[str, str, bytes, Any]:
    """Exchange, routing key, body and properties of a row, as pamqp reads its frames."""
    data = encoded({"payload": b"x", **row}, envelope=envelope)
    found = []
    while data:
        size, channel, value = frame.unmarshal(data)
        assert channel == 1
        found.append(value)
        data = data[size:]
    method, header, *bodies = found
    return method.exchange, method.routing_key, b"".join(b.value for b in bodies), header.properties


def test_a_row_goes_where_its_columns_say_or_where_the_options_say() -> None:
    row = {"protocol": "amqp091", "address": "orders", "routing_key": "new"}
    assert sent(row)[:3] == ("orders", "new", b"x")
    assert sent(row, Envelope("copy", "k"))[:2] == ("copy", "k")
    mqtt = {"protocol": "mqtt", "address": "a/b", "routing_key": "a/b"}
    assert sent(mqtt)[:2] == ("amq.topic", "a.b")
    assert sent(mqtt, Envelope("copy"))[:2] == ("copy", "a.b")


def test_properties_are_sent_and_ours_name_the_producer() -> None:
    row = {
        "address": "x",
        "routing_key": "k",
        "message_id": "id",
        "correlation_id": b"c",
        "type": "t",
        "priority": 3,
        "persistent": False,
        "event_time": datetime(2020, 1, 1, tzinfo=UTC),
        "headers": [
            {"name": "own", "type": "string", "value": b"yes"},
            {"name": "x-penstock-producer", "type": "string", "value": b"another"},
        ],
    }
    properties = sent(row)[3]
    assert properties.headers == {"own": "yes", "x-penstock-producer": "job/0", "x-penstock-sequence": 7}
    assert (properties.message_id, properties.correlation_id, properties.message_type) == ("id", "c", "t")
    assert (properties.priority, properties.delivery_mode) == (3, 1)
    assert properties.timestamp == datetime(2020, 1, 1, tzinfo=UTC)
    assert sent({"address": "x", "routing_key": "k"})[3].delivery_mode == 2


def test_headers_of_every_type_come_back_as_they_were(tmp_path: Path) -> None:
    headers: dict[str, Any] = {
        "text": "ä",
        "small": 5,
        "large": 1 << 40,
        "negative": -70000,
        "yes": True,
        "half": 0.5,
        "when": datetime(2021, 2, 3, 4, 5, 6, tzinfo=UTC),
        "list": [1, "two"],
        "table": {"inner": {"deep": 1}},
        "none": None,
        "bytes": bytearray(b"\0\xff"),
    }
    log = open_log(tmp_path)
    block = Basic.Properties(headers=headers).marshal()
    log.appender.append_record(0, log.target((), False), b"\1x\1k", block, b"", enc=AMQP091)
    log.flush()
    view = LogView(tmp_path)
    view.refresh()
    (batch,) = read_parts(
        tmp_path, view.parts(1, view.end(written=True), 1 << 62), Selection(("headers", "payload"))
    )
    log.close_sync()
    found = sent({"address": "x", "routing_key": "k", **batch.to_pylist()[0]})[3].headers
    for name, value in headers.items():
        got = found[name]
        if name == "when":
            got = got.replace(tzinfo=UTC)
        assert got == value, name


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"routing_key": "k" * 256}, "its routing_key has 256 bytes"),
        ({"content_type": "c" * 256}, "its content_type has 256 bytes"),
        ({"event_time": datetime(1969, 1, 1, tzinfo=UTC)}, "before 1970"),
        ({"headers": [{"name": "n" * 256, "type": "string", "value": b""}]}, "name has 256 bytes"),
        ({"headers": [{"name": "n", "type": "money", "value": b""}]}, "'n' is of type 'money'"),
        (
            {"headers": [{"name": "n", "type": "int32", "value": b"abc"}]},
            "'n' is 'int32', and its value has 3",
        ),
        ({"headers": [{"name": "n", "type": "table", "value": b"\0\0\0\1"}]}, "its value has 4 bytes"),
        ({"headers": [{"name": "n", "type": "bytes", "value": bytes(140_000)}]}, "its properties have"),
        ({"headers": [None]}, "a null among the headers"),
    ],
)
def test_a_row_that_amqp_cannot_say_is_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(SparkError, match=message) as refused:
        encoded({"payload": b"", "offset": 17, **row})
    if row.get("headers") != [None]:
        assert "the message at offset 17 cannot be sent" in str(refused.value)


def test_offsets_that_number_messages_rise() -> None:
    row = {"address": "x", "routing_key": "k", "payload": b"x"}
    with pytest.raises(SparkError, match="offset 4 comes after 4: these are of several logs"):
        encoded({**row, "offset": 4}, {**row, "offset": 4}, by_offset=True)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("url", "http://x"),
        ("url", "amqp://x?heartbeat=1"),
        ("url", "amqps://x?cafile=y"),
        ("uri", "amqp://x"),
        ("rate", "fast"),
        ("sequence", "column"),
        ("report", "nowhere"),
    ],
)
def test_an_option_of_the_sink_that_cannot_be_is_refused(option: str, value: str) -> None:
    with pytest.raises(SparkOptionError, match=option):
        WriteOptions.parse({"url": "amqp://localhost", **{option: value}})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("payload string", "to which exchange"),
        ("payload string, address string", "no routing key"),
        ("address string, routing_key string", "no column 'payload'"),
        ("payload bigint, address string, routing_key string", "cast it to binary"),
        ("payload string, address string, routing_key string, id bigint", "none of a message"),
    ],
)
def test_a_frame_that_is_no_message_is_refused(schema: str, message: str) -> None:
    from pyspark.sql.types import StructField, StructType

    from penstock.spark.sink import check_columns

    types = {"string": "string", "bigint": "bigint"}
    fields = [part.split() for part in schema.split(", ")]
    built = StructType([StructField(name, _simple(types[kind])) for name, kind in fields])
    with pytest.raises(SparkError, match=message):
        check_columns(built, WriteOptions.parse({"url": "amqp://localhost"}))


def _simple(kind: str) -> Any:
    from pyspark.sql.types import LongType, StringType

    return StringType() if kind == "string" else LongType()
