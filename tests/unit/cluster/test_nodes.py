"""A standby and an owner over a journal in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.replica import Replica
from penstock.cluster.standby import Claimed, Standby
from penstock.log_core.log import Log
from tests.support.journals import MemoryJournal, Partition
from tests.support.logs import options

Owner = dict[str, object] | None


class Node:
    """One node: a standby in a thread until it claims."""

    def __init__(self, root: Path, partition: Partition, name: str, *, suspect_s: float = 60.0) -> None:
        self.root = root / name
        self.root.mkdir()
        self.journal = MemoryJournal(partition)
        self.owners: list[Owner] = []
        self.claimed: Claimed | None = None
        self._standby = Standby(
            self.journal,
            self.root,
            identity={"node": name},
            suspect_s=suspect_s,
            on_follows=lambda: None,
            on_owner=self.owners.append,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.claimed = self._standby.run()

    @contextmanager
    def serving(self) -> Iterator[tuple[Replica, Log]]:
        """As the owner that it has become."""
        wait_until(lambda: self.claimed is not None)
        assert self.claimed is not None
        replica = Replica(self.journal, self.root, self.claimed, stop_s=1.0)
        log = Log.open(self.root, options(), files=replica.files, committer=replica.committer)
        try:
            yield replica, log
        finally:
            log.close_sync()
            replica.close()

    def stop(self) -> None:
        self._standby.stop()
        self._thread.join()
        self.journal.close()


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    partition, nodes = Partition(), []

    def make(name: str, **settings: Any) -> Node:
        nodes.append(Node(tmp_path, partition, name, **settings))
        return nodes[-1]

    yield make
    for node in nodes:
        node.stop()


def test_a_standby_knows_an_owner_whose_claim_was_trimmed(made: Callable[..., Node]) -> None:
    first = made("a")
    with first.serving() as (replica, _):
        claim = replica.owner.claim
        wait_until(lambda: replica.owner.kept > 0)
        first.journal.trim(claim + 1)
        second = made("b")
        wait_until(lambda: second.owners)
        assert second.owners == [{"node": "a"}]
    wait_until(lambda: second.owners == [{"node": "a"}, None])
