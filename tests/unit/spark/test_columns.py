"""Columns against the records themselves, read one by one in Python."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pamqp.commands import Basic

from penstock.log_core.batch._batch import AMQP091, EXACTLY_ONCE, MQTT5, PERSISTENT, RETAIN
from penstock.log_core.log import Log
from penstock.spark.filters import Wanted
from penstock.spark.logs._columns import COLUMN_NAMES, Rows
from penstock.spark.logs.log_view import LogView
from penstock.spark.logs.reading import Selection, read_parts
from penstock.spark.schema import COLUMNS
from tests.support.logs import durable_feed, open_log


def key_block(exchange: bytes, key: bytes) -> bytes:
    return bytes([len(exchange)]) + exchange + bytes([len(key)]) + key


def text(data: str) -> bytes:
    return struct.pack(">H", len(data.encode())) + data.encode()


def append(log: Log, enc: int, key: bytes, props: bytes, body: bytes, flags: int = 0, **more: int) -> int:
    return log.appender.append_record(0, log.target((), False), key, props, body, flags, enc=enc, **more)


def rows_of(log: Log, path: Path, **selection: Any) -> list[dict[str, Any]]:
    log.flush()
    view = LogView(path)
    view.refresh()
    selected = Selection(tuple(selection.pop("columns", COLUMNS)), **selection)
    batches = list(read_parts(path, view.parts(view.first, view.end(written=True), 1 << 62), selected))
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def log(tmp_path: Path) -> Any:
    log = open_log(tmp_path, clock=lambda: 1_700_000_000.5)
    yield log
    log.close_sync()


def test_the_kernel_has_the_columns_of_the_schema() -> None:
    assert tuple(COLUMNS) == COLUMN_NAMES
    with pytest.raises(ValueError):
        Rows(["body"], vhosts={})


def test_an_amqp_message_with_every_property(log: Log, tmp_path: Path) -> None:
    properties = Basic.Properties(
        content_type="application/json",
        content_encoding="gzip",
        headers={"word": "yes", "number": 300, "flag": True, "inner": {"x": 1}, "nothing": None},
        delivery_mode=2,
        priority=7,
        correlation_id="corr",
        reply_to="there",
        expiration="60000",
        message_id="id-1",
        timestamp=datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC),
        message_type="order",
        user_id="guest",
        app_id="shop",
    ).marshal()
    lsn = append(
        log, AMQP091, key_block(b"orders", b"new.eu"), properties, b"{}", PERSISTENT, priority=7, ttl_ms=60000
    )
    (row,) = rows_of(log, tmp_path)
    headers = {header["name"]: (header["type"], header["value"]) for header in row.pop("headers")}
    assert headers["word"] == ("string", b"yes")
    assert headers["flag"] == ("boolean", b"\1")
    assert headers["number"][0].startswith("int")
    assert int.from_bytes(headers["number"][1], "big") == 300
    assert headers["inner"][0] == "table"
    assert headers["nothing"] == ("void", b"")
    assert {name: value for name, value in row.items() if not name.endswith(("_time", "_at"))} == {
        "protocol": "amqp091",
        "vhost": "/",
        "address": "orders",
        "routing_key": "new.eu",
        "partition": 0,
        "offset": lsn,
        "priority": 7,
        "qos": None,
        "persistent": True,
        "retain": False,
        "feeds": 0,
        "message_id": "id-1",
        "correlation_id": b"corr",
        "reply_to": "there",
        "content_type": "application/json",
        "content_encoding": "gzip",
        "type": "order",
        "app_id": "shop",
        "user_id": "guest",
        "payload_size": 2,
        "payload": b"{}",
    }
    assert row["append_time"].timestamp() == 1_700_000_000.5
    assert row["expires_at"].timestamp() == 1_700_000_060.5
    assert row["event_time"].isoformat() == "2020-01-02T03:04:05+00:00"


def test_the_fan_out_is_how_many_feeds_took_it(log: Log, tmp_path: Path) -> None:
    few = [durable_feed(log) for _ in range(3)]
    for feeds in ((), few[:1], few, few[1:]):
        log.appender.append_record(0, log.target(feeds, False), b"k", b"", b"", PERSISTENT, enc=MQTT5)
    assert [row["feeds"] for row in rows_of(log, tmp_path, columns=("offset", "feeds"))] == [0, 1, 3, 2]


def test_an_mqtt_message_with_properties(log: Log, tmp_path: Path) -> None:
    block = (
        b"\x01\x01\x02\0\0\0\x09\x03" + text("text/plain") + b"\x08" + text("answers/1") + b"\x09\0\2\xff\0"
        b"\x26" + text("a") + text("1") + b"\x0b\x85\x01\x26" + text("a") + text("2")
    )
    append(log, MQTT5, "stadt/köln".encode(), block, b"\0\1", PERSISTENT | EXACTLY_ONCE | RETAIN)
    append(log, MQTT5, b"plain", b"", b"")
    full, plain = rows_of(log, tmp_path)
    assert (full["protocol"], full["address"], full["routing_key"]) == ("mqtt", "stadt/köln", "stadt/köln")
    assert (full["qos"], full["retain"], full["content_type"]) == (2, True, "text/plain")
    assert (full["reply_to"], full["correlation_id"]) == ("answers/1", b"\xff\0")
    assert [(h["name"], h["type"], h["value"]) for h in full["headers"]] == [
        ("a", "string", b"1"),
        ("a", "string", b"2"),
    ]
    assert (plain["qos"], plain["headers"], plain["content_type"], plain["payload"]) == (0, [], None, b"")
    assert plain["event_time"] == plain["append_time"]


def test_text_that_is_no_utf8_is_replaced_byte_by_byte(log: Log, tmp_path: Path) -> None:
    for key in (
        b"ok\xff",
        b"\xc3",
        b"12345678\xed\xa0\x80",
        "ä€𝄞".encode(),
        b"\xf4\x90\x80\x80",
        b"\xc0\x80",
    ):
        append(log, MQTT5, key, b"", b"")
    rows = rows_of(log, tmp_path, columns=("address",))
    assert [row["address"] for row in rows] == [
        "ok\ufffd",
        "\ufffd",
        "12345678\ufffd\ufffd\ufffd",
        "ä€𝄞",
        "\ufffd\ufffd\ufffd\ufffd",
        "\ufffd\ufffd",
    ]


@pytest.mark.parametrize(
    ("enc", "props"),
    [
        (AMQP091, b""),
        (AMQP091, b"\x80"),
        (AMQP091, b"\x80\x00\x09abc"),
        (AMQP091, b"\x20\x00\xff\xff\xff\xff"),
        (AMQP091, b"\x20\x00\x00\x00\x00\x03\x05ab"),
        (AMQP091, b"\x20\x00\x00\x00\x00\x07\x01aS\xff\xff\xff\xff"),
        (AMQP091, b"\x20\x00\x00\x00\x00\x03\x01aZ"),
        (MQTT5, b"\x03"),
        (MQTT5, b"\x03\xff\xff"),
        (MQTT5, b"\x26\0\1a"),
        (MQTT5, b"\x26\0\1a\0\5b"),
        (MQTT5, b"\x0b\xff\xff\xff\xff\xff"),
    ],
)
def test_a_malformed_properties_block_harms_only_itself(
    log: Log, tmp_path: Path, enc: int, props: bytes
) -> None:
    append(log, enc, b"\1a\1b", props, b"one")
    append(log, MQTT5, b"next", b"", b"two")
    first, second = rows_of(log, tmp_path)
    assert (first["headers"], first["content_type"], first["payload"]) == ([], None, b"one")
    assert second["payload"] == b"two"


def test_only_what_is_wanted_is_taken(log: Log, tmp_path: Path) -> None:
    for index in range(20):
        append(log, MQTT5, f"a/{index % 4}".encode(), b"", b"")
        append(log, AMQP091, key_block(b"x", f"k{index % 3}".encode()), b"\0\0", b"")
    rows = rows_of(log, tmp_path, columns=("protocol",), encodings=1 << MQTT5)
    assert [row["protocol"] for row in rows] == ["mqtt"] * 20
    rows = rows_of(log, tmp_path, columns=("address", "routing_key"), wanted=Wanted(topics=("a/1",)))
    assert rows == [{"address": "a/1", "routing_key": "a/1"}] * 5
    rows = rows_of(
        log, tmp_path, columns=("routing_key",), wanted=Wanted(exchanges=("x",), routing_keys=("k2",))
    )
    assert rows == [{"routing_key": "k2"}] * 6
    assert rows_of(log, tmp_path, columns=("vhost",), wanted_vhosts=(b"other",)) == []


def test_more_keys_than_the_first_table_has_room_for(log: Log, tmp_path: Path) -> None:
    for index in range(3000):
        append(log, MQTT5, f"k/{index}".encode(), b"", b"")
    rows = rows_of(log, tmp_path, columns=("address",), wanted=Wanted(topics=("k/+",)))
    assert [row["address"] for row in rows] == [f"k/{index}" for index in range(3000)]


def test_a_payload_can_be_cut_and_its_size_stays(log: Log, tmp_path: Path) -> None:
    append(log, MQTT5, b"t", b"", bytes(range(100)))
    (row,) = rows_of(log, tmp_path, columns=("payload_size", "payload"), payload_max=3)
    assert row == {"payload_size": 100, "payload": b"\0\1\2"}


def test_many_rows_come_in_batches_of_arrow(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=4 << 20, traffic_retention_bytes=1 << 40)
    target = log.target((), False)
    for _ in range(100):
        log.appender.append_repeated(500, 0, target, b"t", b"", b"x" * 10, 0)
        log.flush()
    view = LogView(tmp_path)
    view.refresh()
    batches = list(
        read_parts(tmp_path, view.parts(view.first, view.end(written=True), 1 << 62), Selection(("offset",)))
    )
    assert len(batches) > 1
    offsets = pa.concat_arrays([batch.column(0) for batch in batches]).to_pylist()
    assert len(offsets) == 50_000
    assert offsets == sorted(set(offsets))
    log.close_sync()
