"""A fault at every call of `Files` in the life of a log: nothing confirmed is lost, and nothing hangs.

One life starts after a kill, rolls, closes, checkpoints, deletes and stops. A run without a fault counts the
calls of each kind. Each of them fails then, in a life of its own: once, or from that call on, with an I/O
error or since the disk is full; or a write takes only half of what it is given. The suite takes each fifth
call and the last four, which a stop makes, and of a full disk each fifteenth; `make log-faults` takes all.
`free_bytes` is left out: only a log with a loop, or with several folders, asks for it.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.errors import LogError, StartError
from penstock.log_core.batch._batch import LOST, Batch
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.log import Log
from tests.support.logs import KIB, Unsynced, append, batch_of, durable_feed, load_entries, open_log, settle

pytestmark = pytest.mark.timeout(120)

KINDS: Final = (
    "write_batches",
    "fdatasync",
    "allocate",
    "create",
    "write_all",
    "fsync",
    "sync_folder",
    "truncate",
    "rename",
    "unlink",
)
STRIDE: Final = 1 if os.environ.get("PENSTOCK_ALL_FAULTS") else 5
FEWER: Final = 3
STOP_CALLS: Final = 4
KEPT: Final = 4
"""So many of the newest confirmed records are needed: retention may not delete them."""


class Faulty(Unsynced):
    """Counts the calls of each kind. Call `at` of `kind` fails, and with `lasting` all later ones, too."""

    def __init__(self, kind: str = "", at: int = 0, *, lasting: bool = False, code: int = errno.EIO) -> None:
        """`code` 0: a write is short."""
        super().__init__()
        self._code = code
        self.calls: Counter[str] = Counter()
        self.failed = 0
        self._kind, self._at, self._lasting = kind, at, lasting
        self._lock = threading.Lock()

    def _look(self, kind: str) -> bool:
        """Whether the call is to do only half of it. Raises OSError."""
        with self._lock:
            self.calls[kind] += 1
            number = self.calls[kind]
            if kind == self._kind and (number == self._at or (self._lasting and number > self._at)):
                self.failed += 1
                if self._code:
                    raise OSError(self._code, os.strerror(self._code))
                return True
        return False

    def write_batches(self, fd: int, batches: list[Batch], offset: int, skip: int = 0) -> int:
        if self._look("write_batches"):
            raw = b"".join(bytes(batch) for batch in batches)[skip:]
            return os.pwrite(fd, raw[: -(-len(raw) // 2)], offset)
        return super().write_batches(fd, batches, offset, skip)


def _faulty(kind: str) -> Callable[..., Any]:
    def call(self: Faulty, *arguments: Any, **named: Any) -> Any:
        self._look(kind)
        return getattr(super(Faulty, self), kind)(*arguments, **named)

    return call


for _kind in KINDS[1:]:
    setattr(Faulty, _kind, _faulty(_kind))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int], int]:
    """A folder as a kill leaves it, what was confirmed in it, and its feed."""
    path = tmp_path_factory.mktemp("killed")
    log = open_log(path / "log")
    feed = durable_feed(log)
    confirmed = [append(log, [feed], bytes(9000)) for _ in range(20)]
    assert log.wait_synced(confirmed[-1])
    settle(log)
    shutil.copytree(path / "log", path / "copy")
    log.close_sync()
    return path / "copy", confirmed, feed.id


def _work(log: Log, feed: Feed, confirmed: list[int]) -> None:
    """Append until the work is done or the log refuses; each LSN that was confirmed goes into `confirmed`."""
    log.low_water = lambda: confirmed[-KEPT]
    for number in range(24):
        lsn = append(log, [feed], bytes(9000))
        log.tables.put("t", b"%d" % (number % 3), b"%d" % lsn)
        if not _is_kept(log, log.appender.next_lsn - 1):
            return
        confirmed.append(lsn)
        if number % 6 == 5:
            settle(log)
            log._housekeeping.checkpoint()
            settle(log)
            log.tend(1 << 60)
            settle(log)


def _is_kept(log: Log, lsn: int) -> bool:
    """Wait until `lsn` is durable; False: the log failed, or the disk is full and stays so."""
    done: list[bool] = []
    log.when_synced(lsn, done.append)
    log.flush()
    while not done:
        if log._wal.pending:
            log.tend(1 << 60)  # as each second
            if log._wal.pending:
                return False
        else:
            log._inbox.wait(60)
    return done[0]


def _live(folder: Path, feed_id: int, files: Faulty, confirmed: list[int]) -> None:
    """One life: a start, work, a stop."""
    try:
        log = open_log(folder, files, checkpoint_bytes=100 * KIB)
    except (OSError, StartError):
        return
    try:
        _work(log, log.feed(feed_id), confirmed)
    except LogError:
        assert log.failed is not None
    finally:
        log.close_sync()


def _check(folder: Path, feed_id: int, confirmed: list[int]) -> None:
    """The log starts, in this process too, and holds what was confirmed and is needed."""
    log = open_log(folder)
    assert log.recovery.holes == []
    feed = log.feed(feed_id)
    for index in range(feed.start, feed.end):
        load_entries(log, feed, index)
    kept = feed.positions(feed.start, 1000)
    assert set(confirmed[-KEPT:]) <= set(kept)
    for lsn in confirmed[-KEPT:]:
        assert batch_of(log, lsn).kind != LOST
    log.close_sync()


@pytest.fixture(scope="module")
def calls(killed: tuple[Path, list[int], int], tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often a life without a fault calls each kind."""
    source, confirmed, feed_id = killed
    folder = tmp_path_factory.mktemp("counted") / "log"
    shutil.copytree(source, folder)
    files, mine = Faulty(), list(confirmed)
    _live(folder, feed_id, files, mine)
    assert len(mine) == len(confirmed) + 24
    _check(folder, feed_id, mine)
    return files.calls


def test_a_life_calls_every_kind(calls: Counter[str]) -> None:
    assert set(calls) == set(KINDS)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize(
    ("kind", "code"),
    [*((kind, code) for kind in KINDS for code in (errno.EIO, errno.ENOSPC)), ("write_batches", 0)],
)
def test_a_fault_at_each_call_loses_nothing_confirmed(
    kind: str,
    code: int,
    lasting: bool,
    killed: tuple[Path, list[int], int],
    calls: Counter[str],
    tmp_path: Path,
) -> None:
    source, confirmed, feed_id = killed
    numbers = range(1, calls[kind] + 1)
    if code == errno.EIO:
        chosen = sorted({*numbers[::STRIDE], *numbers[-STOP_CALLS:]})
    else:
        chosen = list(numbers[:: STRIDE * FEWER if STRIDE > 1 else 1])
    met = 0
    for at in chosen:
        folder = tmp_path / f"{at}"
        shutil.copytree(source, folder)
        files, mine = Faulty(kind, at, lasting=lasting, code=code), list(confirmed)
        try:
            _live(folder, feed_id, files, mine)
            _check(folder, feed_id, mine)
        except BaseException as error:
            error.add_note(f"{kind} with {code}, call {at} of {calls[kind]}")
            raise
        met += bool(files.failed)
        shutil.rmtree(folder)
    assert met >= len(chosen) / 2, "threads vary the number of calls a little, not more"
