"""Micro-batches for tests of tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from penstock.spark.schema import arrow_schema

SCHEMA = arrow_schema(["offset", "append_time"])


def batch(first: int, count: int, day: int = 1) -> pa.RecordBatch:
    """Rows of a day of May."""
    moment = datetime(2026, 5, day, tzinfo=UTC)
    return pa.RecordBatch.from_pydict(
        {"offset": list(range(first, first + count)), "append_time": [moment] * count}, SCHEMA
    )


def offsets(path: Path) -> list[int]:
    found: list[int] = DeltaTable(str(path)).to_pyarrow_table().column("offset").to_pylist()
    return sorted(found)
