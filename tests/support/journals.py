"""A journal in memory: a partition that several nodes share; a test can hold up or blur its answers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue

from penstock.errors import LogError
from penstock.log_core.replication.journal import Answer, Bounds, JournalFailed, Trimmed


class Partition:
    """The entries that all nodes see."""

    def __init__(self) -> None:
        self.first = 0
        self.entries: list[bytes] = []
        self.lock = threading.Lock()
        self.notes: list[str] = []

    @property
    def nbytes(self) -> int:
        """Of the entries that are not trimmed."""
        with self.lock:
            return sum(len(raw) for raw in self.entries[self.first :])

    def put(self, raw: bytes) -> int:
        with self.lock:
            self.entries.append(raw)
            return len(self.entries) - 1


class MemoryJournal:
    """One node's handle. Entries are kept at once, unless `hold` is on: then `let_go` keeps them.

    `silent`: how many of the next answers have no offset. `slow`: its followers get nothing for now.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.silent = 0
        self.hold = False
        self.slow = False
        self.closely = 0
        """How often a standby began to read each entry at once."""
        self.ended = 0
        """How often it read no more so."""
        self._held: deque[tuple[int, bytes]] = deque()
        self._answer: Answer | None = None
        self._answers: SimpleQueue[tuple[int, int | None, LogError | None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (told := self._answers.get()) is not None:
            assert self._answer is not None
            self._answer(*told)

    def claim(self, raw: bytes) -> int:
        return self.partition.put(raw)

    def begin(self, answer: Answer) -> None:
        self._answer = answer

    def append(self, index: int, raw: bytes) -> None:
        with self._lock:
            if self.hold:
                self._held.append((index, raw))
            else:
                self._keep(index, raw)

    def _keep(self, index: int, raw: bytes) -> None:
        offset: int | None = self.partition.put(raw)
        if self.silent:
            self.silent -= 1
            offset = None
        self._answers.put((index, offset, None))

    def let_go(self) -> None:
        with self._lock:
            self.hold = False
            while self._held:
                self._keep(*self._held.popleft())

    def fail(self, reason: str) -> None:
        self._answers.put((0, None, JournalFailed(reason)))

    @property
    def topic(self) -> str:
        return "test"

    def hint(self, raw: bytes) -> int:
        return self.partition.put(raw)

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        for offset in range(max(first, self.partition.first), end):
            yield offset, self.partition.entries[offset]

    def follow(self, first: int) -> MemoryFollower:
        return MemoryFollower(self, first)

    def follow_closely(self, first: int) -> MemoryFollower:
        self.closely += 1
        return MemoryFollower(self, first, is_close=True)

    def note(self, text: str) -> None:
        self.partition.notes.append(text)

    def notes(self) -> list[str]:
        return list(self.partition.notes)

    def bounds(self) -> Bounds:
        return Bounds(self.partition.first, len(self.partition.entries))

    def trim(self, before: int) -> None:
        self.partition.first = max(self.partition.first, before)

    def close(self) -> None:
        self._answers.put(None)
        self._thread.join()


class MemoryFollower:
    """Reads a partition in order."""

    def __init__(self, journal: MemoryJournal, first: int, *, is_close: bool = False) -> None:
        self._journal = journal
        self._is_close = is_close
        self._partition = journal.partition
        self._next = first

    def poll(self, seconds: float) -> list[tuple[int, bytes]]:
        partition = self._partition
        if self._next < partition.first:
            raise Trimmed("the next entry was deleted")
        until = time.monotonic() + seconds
        while (self._journal.slow or self._next >= len(partition.entries)) and time.monotonic() < until:
            time.sleep(0.005)
        if self._journal.slow:
            return []
        found = list(enumerate(partition.entries[self._next :], self._next))
        self._next += len(found)
        return found

    def begin(self, first: int) -> None:
        self._next = first

    def end(self) -> None:
        self._journal.ended += self._is_close

    def end_seen(self) -> int:
        return len(self._partition.entries)

    def bounds(self, seconds: float) -> Bounds:
        return Bounds(self._partition.first, len(self._partition.entries))

    def close(self) -> None:
        pass
