"""Archives of a log, and what is read of both."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.log_core.log import Log
from penstock.spark.logs.archived_log import ArchivedLog
from penstock.spark.logs.planning import View, open_view, plan, selection_of
from penstock.spark.logs.reading import read_parts
from penstock.spark.logs.tiering import tier
from penstock.spark.options import ReadOptions
from tests.support.spark_logs import NOBODY, rewrite, seen

LATER_MS = 1 << 50


def archived(tmp_path: Path, **options: str) -> tuple[ArchivedLog, ReadOptions]:
    more = {"archive": f"parquet:{tmp_path / 'archive'}", "isolation": "written", **options}
    read = ReadOptions.parse({"path": str(tmp_path / "data"), **more})
    view = open_view(read)
    assert isinstance(view, ArchivedLog)
    view.refresh()
    return view, read


def rows(
    view: View,
    options: ReadOptions,
    columns: Sequence[str] = ("offset",),
    first: int = 0,
    last: int | None = None,
) -> list[Any]:
    """All rows of a query, through pickled tasks as Spark has them; of one column: its values."""
    selection = selection_of(view, options, columns, view.complete_from)
    end = view.end(written=True) if last is None else last
    found: list[Any] = []
    for task in plan(view, options, selection, first or view.first, end):
        parts, chosen = pickle.loads(pickle.dumps((task, selection)))
        for batch in read_parts(view.storage, parts, chosen):
            found += batch.column(0).to_pylist() if len(columns) == 1 else batch.to_pylist()
    return found


def forget(log: Log, tmp_path: Path, beyond: int = 1) -> None:
    """Retention takes closed segments until nothing up to `beyond` is left, and then no more."""
    log.low_water = lambda: NOBODY
    rewrite(log, [], lambda: seen(tmp_path / "data").first > beyond)


def run_tier(tmp_path: Path, before_ms: int = LATER_MS, **more: Any) -> list[int]:
    """The positions that were reached."""
    return [commit.last for commit in tier(tmp_path / "data", tmp_path / "archive", before_ms, **more)]
