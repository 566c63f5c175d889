"""Stops, kills and writes in any order: rows are all there after each start.

Files that were never written to are removed, and their numbers used again, so a checkpoint may name a number
that belongs to a later file by now. A kill is a copy of the folder as it is.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.log_core.log import Log
from tests.support.examples import histories
from tests.support.logs import open_log, settle


class History:
    """A log, and how many rows were written to it: row N has the key N."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0
        self.rows = 0
        self.log: Log = open_log(self.data)

    @property
    def data(self) -> Path:
        return self.folder / str(self.generation)

    def write(self) -> None:
        self.log.tables.put("rows", b"%d" % self.rows, b"")
        self.rows += 1
        self.log.flush()

    def checkpoint(self) -> None:
        self.log._housekeeping.checkpoint()

    def stop(self) -> None:
        self.log.close_sync()
        self.start()

    def kill(self) -> None:
        settle(self.log)
        before = self.data
        self.generation += 1
        shutil.copytree(before, self.data)
        self.log.close_sync()
        self.start()

    def start(self) -> None:
        self.log = open_log(self.data)
        assert {int(key) for key in self.log.tables.keys("rows")} == set(range(self.rows))


STEPS = (History.write, History.checkpoint, History.stop, History.kill)
write, checkpoint, stop, kill = STEPS


@settings(max_examples=histories(40))
@given(st.lists(st.sampled_from(STEPS), max_size=16))
@example([write, stop, kill, stop, stop, kill, kill, stop, stop, write, kill, kill])
def test_every_row_is_there_after_each_start(steps: list[Callable[[History], None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        try:
            for step in steps:
                step(history)
        finally:
            history.log.close_sync()
