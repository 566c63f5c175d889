"""The stores that the suite runs on. A further one is a further `Subject`, and no other change."""

from __future__ import annotations

import copy
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest

from penstock.log_core.log import Log
from penstock.subscriptions.log_store.embedded import EmbeddedStore
from penstock.subscriptions.log_store.port import LogStore
from tests.conformance.log_store.naive import Disk, NaiveStore
from tests.support.logs import BROKEN, FailingFiles, files_made, open_log


class Subject(Protocol):
    """Runs one store: starts it, stops it, does it harm."""

    async def open(self) -> LogStore:
        """The store with what it kept; the one before was stopped or killed."""

    async def stop(self) -> None:
        """Stop it cleanly."""

    async def kill(self) -> None:
        """End it as kill -9 does."""

    def break_disk(self) -> None:
        """From now on nothing can be made durable."""


class Embedded:
    """The embedded log in small segments, so that tests cross many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives = 0

    async def open(self) -> LogStore:
        self._files = FailingFiles()
        self._log: Log = open_log(self._folder / str(self._lives), self._files)
        return EmbeddedStore(self._log)

    async def stop(self) -> None:
        await self._log.close()

    async def kill(self) -> None:
        left = self._folder / str(self._lives + 1)
        files_made(self._log)
        shutil.copytree(self._folder / str(self._lives), left)
        (left / "CLEAN").unlink(missing_ok=True)
        self._lives += 1
        await self._log.close()

    def break_disk(self) -> None:
        self._files.sync_error = BROKEN


class Naive:
    """Lists in memory."""

    def __init__(self) -> None:
        self._disk = Disk()

    async def open(self) -> LogStore:
        self._store = NaiveStore(self._disk)
        return self._store

    async def stop(self) -> None:
        if not self._store.failing:
            self._store._keep()
        self._disk = copy.deepcopy(self._store.kept)

    async def kill(self) -> None:
        self._disk = copy.deepcopy(self._store.kept)

    def break_disk(self) -> None:
        self._store.failing = True


@pytest.fixture(params=["embedded", "naive"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    return Embedded(tmp_path) if request.param == "embedded" else Naive()


@pytest.fixture
async def store(subject: Subject) -> AsyncIterator[LogStore]:
    """A store that is open; a test that stops or kills it opens it again."""
    opened = await subject.open()
    yield opened
    await subject.stop()
