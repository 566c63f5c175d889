"""Logs that hold back: nobody sees a message before it is durable, and the test says when that is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from penstock.log_core.files.files import Files
from penstock.log_core.log import Log

__all__ = ["Held", "HeldCommitter", "logs_hold_back"]

Done = Callable[[int, int, OSError | None], object]


class HeldCommitter:
    """A committer that answers at once, or while `held` with `let_go`."""

    def __init__(self, held: Held, done: Done) -> None:
        self.syncs = self.ns = 0
        self._held = held
        self._done = done
        self._wanted: tuple[int, int] | None = None

    def want(self, descriptors: tuple[int, ...], lsn: int, mark: int) -> None:
        self._wanted = lsn, mark
        if not self._held.on:
            self.answer()

    def answer(self) -> None:
        if self._wanted is not None:
            (lsn, mark), self._wanted = self._wanted, None
            self._done(lsn, mark, None)

    def release(self, fd: int) -> None:
        os.close(fd)

    def hang_bell(self) -> int:
        raise NotImplementedError

    def answer_bell(self) -> tuple[int, int]:
        raise NotImplementedError

    def take_bell_down(self) -> tuple[int, int]:
        raise NotImplementedError

    def stop(self) -> None:
        pass


class Held:
    """All logs of a test."""

    def __init__(self) -> None:
        self.on = False
        """Nothing becomes durable."""
        self.committers: list[HeldCommitter] = []

    def make(self, files: Files, done: Done) -> HeldCommitter:
        self.committers.append(HeldCommitter(self, done))
        return self.committers[-1]

    @contextmanager
    def held(self) -> Iterator[None]:
        """In the block nothing becomes durable; behind it all of it does."""
        self.on = True
        try:
            yield
        finally:
            self.on = False
            for committer in self.committers:
                committer.answer()


def logs_hold_back(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Every log that is opened from now on holds back."""
    held = Held()
    monkeypatch.setattr(Log, "open", partial(Log.open, committer=held.make, holds_back=True))
    return held
