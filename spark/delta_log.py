"""The log of a Delta table on a file system, over power cuts: deltalake writes it, and syncs nothing.

A commit is a new file _delta_log/VERSION.json (20 digits); now and then VERSION.checkpoint.parquet has all so
far, and _last_checkpoint names it (Delta's PROTOCOL.md, "Delta Log Entries", "Checkpoints"). A power cut may
leave any of them missing or cut off, and the files that deltalake wrote when it compacted, too. What a job
notes as done was made durable before, so nothing of it is lost when `mend` takes the rest back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from penstock.spark.errors import SparkError
from penstock.spark.places import sync

__all__ = ["make_durable", "mend"]

_LOG: Final = logging.getLogger("penstock.spark")

_RECENT: Final = 8
"""Commits that are looked at. Between two that are made durable a job makes a few: compaction, vacuum."""
_PARQUET: Final = b"PAR1"


@dataclass(frozen=True)
class _Commit:
    path: Path
    added: dict[Path, int]
    """The files and their sizes, in bytes."""
    removed: frozenset[Path]
    torn: bool = False


def make_durable(table: Path) -> None:
    """Put the newest commits and what they add on the disk."""
    log = table / "_delta_log"
    paths: set[Path] = set()
    for commit in _recent(table):
        paths.update(path for path in commit.added if path.exists())  # else a later commit removed it
        paths.update(log.glob(f"{commit.path.stem}.*"))
    paths.update(log.glob("_last_checkpoint"))
    folders = {path.parent for path in paths} | {table, log}
    for path in [*sorted(paths), *sorted(folders)]:
        sync(path)


def mend(table: Path) -> list[str]:
    """Take back what a power cut left half done; the names of what was removed from the log.

    Raises SparkError when that would take more than commits that nobody noted as done.
    """
    log = table / "_delta_log"
    gone = [path for path in log.glob("*.checkpoint*.parquet") if not _ends(path)]
    if gone:
        gone += log.glob("_last_checkpoint")
    commits = _recent(table)
    later: set[Path] = set()
    bad = len(commits)
    for index in reversed(range(len(commits))):
        commit = commits[index]
        # A file of another size was not on the disk yet; one that a later commit removed may be gone.
        wrong = [path for path, size in commit.added.items() if path not in later and _size(path) != size]
        if commit.torn or wrong:
            bad = index
        later |= commit.removed
    if commits and bad == 0:
        raise SparkError(
            f"the Delta table {table} is damaged in {commits[0].path.name} or a file that it adds",
            remedy="restore it from a copy, or write to another table with another checkpoint",
        )
    # The newest first: the log has no hole whenever this ends.
    for commit in reversed(commits[bad:]):
        gone += sorted(log.glob(f"{commit.path.stem}.*"), reverse=True)
    names = list(dict.fromkeys(path.name for path in gone))
    for name in names:
        (log / name).unlink(missing_ok=True)
    if names:
        sync(log)
        _LOG.warning("the table %s goes back to before a power cut: without %s", table, ", ".join(names))
    return names


def _recent(table: Path) -> Sequence[_Commit]:
    """The newest commits, oldest first."""
    paths = sorted(path for path in (table / "_delta_log").glob("*.json") if path.stem.isdecimal())
    return [_read(table, path) for path in paths[-_RECENT:]]


def _read(table: Path, path: Path) -> _Commit:
    added: dict[Path, int] = {}
    removed = set()
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    except ValueError:
        lines = []
    for line in lines:
        if "add" in line:
            added[table / unquote(line["add"]["path"])] = int(line["add"]["size"])
        elif "remove" in line:
            removed.add(table / unquote(line["remove"]["path"]))
    return _Commit(path, added, frozenset(removed), not lines)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _ends(path: Path) -> bool:
    """Whether a Parquet file is whole: it ends with the format's name."""
    with path.open("rb") as file:
        file.seek(max(_size(path) - len(_PARQUET), 0))
        return file.read() == _PARQUET
