"""The thread that syncs: what it is asked for while it works, descriptors it gives up, failures, the bell."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore

import pytest

from penstock.log_core.files.files import Files
from penstock.log_core.wal._committer import Committer
from tests.support.limits import LIMIT_S

Answer = tuple[int, int, OSError | None]


class Gated(Files):
    """Each sync waits for a permit; what was synced is noted."""

    def __init__(self) -> None:
        super().__init__("")
        self.permits = Semaphore(0)
        self.begun: SimpleQueue[int] = SimpleQueue()
        self.error: OSError | None = None

    def fdatasync(self, fd: int) -> None:
        self.begun.put(fd)
        assert self.permits.acquire(timeout=LIMIT_S)
        if self.error is not None:
            raise self.error


class Stand:
    def __init__(self, folder: Path, files: Files) -> None:
        self.files = files
        self.answers: SimpleQueue[Answer] = SimpleQueue()
        self.committer = Committer(files, lambda *answer: self.answers.put(answer))
        self.fds = [os.open(folder / str(n), os.O_RDWR | os.O_CREAT) for n in range(3)]

    def answer(self) -> Answer:
        return self.answers.get(timeout=LIMIT_S)

    def is_open(self, fd: int) -> bool:
        try:
            os.fstat(fd)
        except OSError:
            return False
        return True


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path, files := Gated())
    yield stand
    files.permits.release(1000)
    stand.committer.stop()


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path, Files(""))
    yield stand
    stand.committer.stop()


def test_requests_during_a_sync_share_the_next_one(gated: Stand) -> None:
    assert isinstance(gated.files, Gated)
    gated.committer.want((gated.fds[0],), 1, 10)
    assert gated.files.begun.get(timeout=LIMIT_S) == gated.fds[0]
    for lsn in (2, 3, 4):
        gated.committer.want((gated.fds[0],), lsn, 10 * lsn)
    gated.files.permits.release(2)
    assert gated.answer() == (1, 10, None)
    assert gated.answer() == (4, 40, None)
    assert gated.committer.syncs == 2 and gated.committer.ns > 0


def test_a_released_descriptor_is_closed_when_no_sync_can_use_it(gated: Stand) -> None:
    assert isinstance(gated.files, Gated)
    old, new = gated.fds[:2]
    gated.committer.want((old,), 1, 1)
    gated.files.begun.get(timeout=LIMIT_S)
    gated.committer.want((old, new), 2, 2)
    gated.committer.release(old)  # the sync that is wanted next names it
    gated.files.permits.release()
    assert gated.answer() == (1, 1, None)
    assert gated.files.begun.get(timeout=LIMIT_S) == old
    assert gated.is_open(old)
    gated.files.permits.release(2)
    assert gated.answer() == (2, 2, None)
    gated.committer.want((new,), 3, 3)  # handled behind what was released
    gated.files.begun.get(timeout=LIMIT_S)
    gated.files.begun.get(timeout=LIMIT_S)
    assert not gated.is_open(old) and gated.is_open(new)
    gated.files.permits.release()


def test_a_failure_is_told_and_is_the_last(gated: Stand) -> None:
    assert isinstance(gated.files, Gated)
    gated.files.error = OSError(errno.EIO, "it is gone")
    gated.files.permits.release(2)
    gated.committer.want((gated.fds[0],), 1, 1)
    _, _, error = gated.answer()
    assert error is not None and error.errno == errno.EIO
    gated.committer.want((gated.fds[0],), 2, 2)
    gated.committer.stop()
    assert gated.answers.empty()


def test_the_system_refuses_and_says_why(real: Stand) -> None:
    bell = real.committer.hang_bell()
    read_end, write_end = os.pipe()
    real.committer.want((write_end,), 1, 1)  # a pipe cannot be synced
    _, _, error = real.answer()
    assert error is not None and error.errno == errno.EINVAL and error.strerror
    assert not select.select([bell], [], [], 0)[0]
    os.close(read_end)
    os.close(write_end)


def test_the_bell_rings_instead_of_a_call(real: Stand) -> None:
    bell = real.committer.hang_bell()
    assert real.committer.answer_bell() == (0, 0)
    for lsn in (1, 2):
        real.committer.want((real.fds[0], real.fds[1]), lsn, 100 * lsn)
        assert select.select([bell], [], [], LIMIT_S)[0]
        assert real.committer.answer_bell() == (lsn, 100 * lsn)
        assert not select.select([bell], [], [], 0)[0]
    assert real.committer.take_bell_down() == (2, 200)
    assert real.answers.empty()
    real.committer.want((real.fds[0],), 3, 300)
    assert real.answer() == (3, 300, None)


def test_requested_syncs_happen_before_the_stop(gated: Stand) -> None:
    assert isinstance(gated.files, Gated)
    gated.committer.want((gated.fds[0],), 7, 70)
    gated.files.permits.release()
    gated.committer.stop()
    assert gated.answer() == (7, 70, None)
