"""Logs that Spark reads, rewritten, and what is seen of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.log_core.log import Log
from penstock.log_core.maintenance._seal import Needs
from penstock.log_core.maintenance.retention import Retention
from penstock.spark.logs.log_view import LogView
from tests.support.logs import keep_house, settle

NOBODY = (1 << 64) - 1


def seen(path: Path) -> LogView:
    view = LogView(path)
    view.refresh()
    return view


def rewrite(log: Log, needed: list[int], done: Callable[[], bool]) -> None:
    """Let traffic retention end, and closed segments be rewritten until `done`, and not while others read."""

    def mark(needs: Needs, done: Any) -> None:
        for lsn in needed:
            needs.need(lsn)
        done()

    log.mark_needs = mark
    log.usual_retention = Retention(0, log.usual_retention.keep_s)
    ends = time.monotonic() + 300
    while not done():
        assert time.monotonic() < ends, log.statistics()
        keep_house(log)
    # No more than that: what is under way is finished.
    log.mark_needs = None
    log.usual_retention = Retention(1 << 40, log.usual_retention.keep_s)
    while log._housekeeping.busy:
        settle(log)
