"""`penstock log move`: a vhost for another worker, while the gateway is stopped.

A vhost's messages lie in the same segments as those of its worker's other vhosts, and are known there by
their positions. So the new worker gets a copy of the whole log, mostly by hard links (`backup`), and at its
start each of the two removes what is another worker's (`Broker._leave_strays`); what nobody needs any more
leaves the segments as it always does. That is why the new worker must not have a vhost yet: its log is that
copy.

    1  copy the log of the vhost's worker to worker-NNN.copy
    2  move away what worker-NNN has, and give the copy that name
    3  put the vhost's row in the log of worker 0: from here on it is the new worker's

After a crash before 3 the vhost is where it was; doing it again, without the copy, does all of it.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from penstock.config.sections.server import WORKERS_MAX
from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import Folder
from penstock.log_core.files.lock import Lock
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.log_core.replication.position import refuse_replicated
from penstock.log_tools.backup import NOTE, backup
from penstock.log_tools.reading import open_folder
from penstock.router.arguments import decode_table, encode_table
from penstock.router.rows import row_key
from penstock.workers.folders import worker_folder

__all__ = ["Moved", "move"]

_VHOST: Final = "vhost"
_OPTIONS: Final = LogOptions(min_free_bytes=0)
"""For one row: nothing is deleted, for nobody says what is needed."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The result."""

    vhost: str
    from_worker: int
    to_worker: int
    folder: str
    """Of the worker's log."""
    replaced: str
    """Where that is which was there before; empty: nothing was."""


def move(data_dir: Path, vhost: str, worker: int) -> Moved:
    """Give `vhost` to `worker`.

    Args:
        data_dir: Of the gateway, which is worker 0's.
        vhost: Its name.
        worker: A number from 1 on.

    Raises:
        StartError: the gateway runs, there is no such vhost, or that worker cannot have it.

    """
    open_folder(data_dir)
    refuse_replicated(data_dir)
    log = Log.open(data_dir, _OPTIONS)
    try:
        row = _checked(log, vhost, worker)
        source = row.get("worker", 0)
    finally:
        log.close_sync()
    folder, target = worker_folder(data_dir, source), worker_folder(data_dir, worker)
    replaced: Path | None = None
    with ExitStack() as stack:
        for one in {data_dir, folder, target}:
            if one.exists():
                stack.callback(Lock(Folder(one).lock).release)
        copy = target.with_name(f"{target.name}.copy")
        if copy.exists():
            raise StartError(f"{copy} exists", remedy="remove it: an interrupted move left it")
        backup(open_folder(folder), copy)
        (copy / NOTE).unlink()
        files = Files()
        files.reached("move.copied")
        if target.exists():
            replaced = target.with_name(f"{target.name}.replaced-{int(time.time())}")
            files.rename(target, replaced)
        files.reached("move.replaced")
        files.rename(copy, target)
        files.sync_folder(data_dir)
        files.reached("move.named")
    log = Log.open(data_dir, _OPTIONS)
    try:
        log.tables.put(_VHOST, row_key(vhost), encode_table({**row, "worker": worker}))
        log.flush()
    finally:
        log.close_sync()
    return Moved(vhost, source, worker, str(target), str(replaced or ""))


def _checked(log: Log, vhost: str, worker: int) -> dict[str, Any]:
    """The row of the vhost, which can be moved there. Raises StartError."""
    rows = {row["name"]: row for row in (decode_table(value) for _, value in log.tables.items(_VHOST))}
    if not 1 <= worker < WORKERS_MAX:
        raise StartError(
            f"a vhost cannot be moved to worker {worker}",
            remedy=f"name one from 1 to {WORKERS_MAX - 1}; worker 0, which has the users, cannot take one",
        )
    if vhost not in rows:
        known = ", ".join(f"'{name}'" for name in sorted(rows)[:20])
        raise StartError(f"there is no vhost '{vhost}'", remedy=f"there are {known}")
    has = sorted(name for name, row in rows.items() if row.get("worker", 0) == worker)
    if has:
        named = ", ".join(f"'{name}'" for name in has[:10])
        raise StartError(
            f"worker {worker} has vhosts: {named}",
            remedy="name a worker without vhosts; its log becomes a copy of the one that the vhost is in now",
        )
    return rows[vhost]
