"""Rows as frames of AMQP: byte for byte those of the reference, for any rows, nulls and slices of batches."""

from __future__ import annotations

import zlib
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.spark.publishing.messages import SHARES, Envelope, Numbers, encoder, parts
from penstock.spark.schema import arrow_schema
from tests.reference.spark_messages import publish

COLUMNS = (
    "protocol",
    "address",
    "routing_key",
    "offset",
    "event_time",
    "priority",
    "persistent",
    "message_id",
    "correlation_id",
    "reply_to",
    "content_type",
    "content_encoding",
    "type",
    "app_id",
    "headers",
    "payload",
)
FIXED = {
    "boolean": 1,
    "int16": 2,
    "int32": 4,
    "double": 8,
    "int64": 8,
    "decimal": 5,
    "timestamp": 8,
    "void": 0,
}

shorts = st.text(max_size=40)
headers = st.builds(
    lambda name, kind, value: {"name": name, "type": kind, "value": value[: FIXED.get(kind, len(value))]},
    st.one_of(st.text(max_size=20), st.sampled_from(["x-penstock-producer", "x-penstock-", "x-penstoc"])),
    st.sampled_from(["string", "bytes", *FIXED]),
    st.binary(min_size=8, max_size=300),
)
tables = st.binary(max_size=9).map(
    lambda data: {"name": "t", "type": "table", "value": len(data).to_bytes(4, "big") + data}
)
rows = st.fixed_dictionaries(
    {
        "protocol": st.sampled_from([None, "amqp091", "mqtt", "mqt"]),
        "address": st.none() | shorts,
        "routing_key": st.none() | st.text(alphabet="a/.é", max_size=60),
        "event_time": st.none()
        | st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)),
        "priority": st.none() | st.integers(0, 127),
        "persistent": st.none() | st.booleans(),
        "correlation_id": st.none() | st.binary(max_size=255),
        **{
            name: st.none() | shorts
            for name in ("message_id", "reply_to", "content_type", "content_encoding", "type", "app_id")
        },
        "headers": st.none() | st.lists(headers | tables, max_size=4),
        "payload": st.none() | st.binary(max_size=200) | st.integers(0, 20000).map(bytes),
    }
)


@example(
    [{**dict.fromkeys(COLUMNS), "event_time": datetime(4148, 1, 1, 0, 0, 0, 999_993, tzinfo=UTC)}],
    set(),
    None,
    None,
    0,
    1,
    True,
    None,
)
@given(
    st.lists(rows, min_size=1, max_size=12),
    st.sets(st.sampled_from(COLUMNS)),
    st.none() | shorts,
    st.none() | st.text(alphabet="k/", max_size=9),
    st.integers(0, 3),
    st.integers(1, 5),
    st.booleans(),
    st.none() | st.integers(1, 4),
)
def test_rows_are_what_the_reference_makes_of_them(
    found: list[dict[str, Any]],
    without: set[str],
    exchange: str | None,
    key: str | None,
    skipped: int,
    at_once: int,
    by_offset: bool,
    tasks: int | None,
) -> None:
    names = [name for name in COLUMNS if name not in without - {"payload", "offset"}]
    for index, row in enumerate(found):
        row["offset"] = 10 + 3 * index
    batch = pa.RecordBatch.from_pylist(found, arrow_schema(names)).slice(skipped)
    kept = [{name: row[name] for name in names} for row in found[skipped:]]
    by_key, task = tasks is not None, (tasks or 1) - 1
    numbers = Numbers("job", 7, by_offset, by_key, tasks or 1, task)
    encode = encoder(Envelope(exchange, key), numbers, 4096)
    made = list(parts(encode, batch, at_once, 1 << 20))
    sent = [row for row in kept if not by_key or share(row) % numbers.tasks == task]
    assert [part.messages for part in made] == [
        len(sent[at : at + at_once]) for at in range(0, len(sent), at_once)
    ]
    assert sum(part.nbytes for part in made) == sum(len(row["payload"] or b"") for row in sent)
    wanted = b""
    counts: Counter[str] = Counter()
    for row in sent:
        producer = f"job/{share(row)}" if by_key else "job"
        number = row["offset"] if by_offset else 7 + counts[producer]
        counts[producer] += 1
        wanted += publish(row, producer, number, 4096, exchange, key)
    assert b"".join(part.frames for part in made) == wanted


def share(row: dict[str, Any]) -> int:
    """Of its key."""
    texts = [row.get(name) or "" for name in ("address", "routing_key")]
    return zlib.crc32("\0".join(texts).encode()) % SHARES
