"""The tables: what a row costs in memory."""

from __future__ import annotations

import tracemalloc

import orjson

from penstock.log_core.batch._appender import Appender
from penstock.log_core.state.tables import Tables


def test_rows_take_their_own_size_in_memory() -> None:
    """A buffer that an encoder left behind a value must not be kept with each row."""
    tables = Tables(Appender(lambda: 0))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for i in range(200):
            tables.put("t", i.to_bytes(4, "big"), orjson.dumps({"i": i}))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 200 * 1000
