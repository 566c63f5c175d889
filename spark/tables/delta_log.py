"""The log of a Delta table on a file system, over power cuts: deltalake writes it, and syncs nothing.

A commit is a new file _delta_log/VERSION.json (20 digits); now and then VERSION.checkpoint.parquet has all so
far, and _last_checkpoint names it (Delta's PROTOCOL.md, "Delta Log Entries", "Checkpoints"). A power cut may
leave any of them missing or cut off, and the files that deltalake wrote when it compacted, too. Work that
a job notes as done was durable before, so none of it is lost when `mend` takes the rest back.

How far back that goes. A job makes its commit durable, and those before it, before it makes the next one; so
of two commits of one job (their `txn` names it) the older one is on the disk, and what a cut tore lies behind
it. Between two of its own a job makes up to three others (compaction, vacuum), and others who write to the
table any number. `mend` looks at all that readers need, back to the last whole checkpoint. Of commits that a
job has built on it says that they are damaged, and takes nothing back.
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
from penstock.spark.locations import sync

__all__ = ["make_durable", "mend"]

_LOG: Final = logging.getLogger("penstock.spark")

_RECENT: Final = 8
"""Commits that are made durable at once: a job's own, and what it or others made just before."""
_PARQUET: Final = b"PAR1"


@dataclass(frozen=True)
class _Commit:
    path: Path
    added: dict[Path, int]
    """The files and their sizes, in bytes."""
    removed: frozenset[Path]
    who: str = ""
    """The job that made it; "": it is no job's."""
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
    commits, whole = _needed(table)
    built_on = _built_on(commits)
    later: set[Path] = set()
    bad = len(commits)
    for index in reversed(range(len(commits))):
        commit = commits[index]
        # A file of another size was not on the disk yet; one that a later commit removed may be gone, and
        # what became of the files of long ago is not for us to say.
        ours = index > built_on - _RECENT
        wrong = [path for path, size in commit.added.items() if path not in later and _size(path) != size]
        if commit.torn or (ours and wrong):
            bad = index
        later |= commit.removed
    if bad < len(commits) and (bad <= built_on or (bad == 0 and not whole)):
        raise SparkError(
            f"the Delta table {table} is damaged in {commits[bad].path.name} or a file that it adds",
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
    return [_read(table, path) for path in _paths(table)[-_RECENT:]]


def _needed(table: Path) -> tuple[Sequence[_Commit], bool]:
    """The commits behind the newest whole checkpoint, at least the newest ones; whether there is one."""
    paths = _paths(table)
    found = (path for path in (table / "_delta_log").glob("*.checkpoint*.parquet") if _ends(path))
    checkpoint = max((path.name.partition(".")[0] for path in found), default="")
    behind = sum(path.stem > checkpoint for path in paths)
    return [_read(table, path) for path in paths[-max(_RECENT, behind) :]], bool(checkpoint)


def _paths(table: Path) -> list[Path]:
    return sorted(path for path in (table / "_delta_log").glob("*.json") if path.stem.isdecimal())


def _built_on(commits: Sequence[_Commit]) -> int:
    """The index of the newest commit after which its job made another one; -1: there is none."""
    newest = -1
    seen: set[str] = set()
    for index in reversed(range(len(commits))):
        who = commits[index].who
        if who and who in seen:
            newest = max(newest, index)
        seen.add(who)
    return newest


def _read(table: Path, path: Path) -> _Commit:
    added: dict[Path, int] = {}
    removed = set()
    who = ""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    except ValueError:
        lines = []
    for line in lines:
        if "add" in line:
            added[table / unquote(line["add"]["path"])] = int(line["add"]["size"])
        elif "remove" in line:
            removed.add(table / unquote(line["remove"]["path"]))
        elif "txn" in line:
            who = line["txn"]["appId"]
    return _Commit(path, added, frozenset(removed), who, not lines)


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
