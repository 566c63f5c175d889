"""`_inbox.pyi` in Python alone: for the client where no compiled kernel is.

It takes no batches as they are stored: their checksums cost more here than what they save.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from penstock.protocols.native.codec._records import Chunk, Record


class Inbox:
    takes_stored: Final = False

    def __init__(self, kind: type[Record], source: Any, used_most: int, used_bytes_most: int) -> None:
        if not issubclass(kind, Record):
            raise TypeError("kind is a class of records")
        self._chunks: deque[Chunk] = deque()
        self._kind = kind
        self.source = source
        self.used_most = used_most
        self.used_bytes_most = used_bytes_most
        self.waiting = self.used = self.used_bytes = 0
        self.position = 0
        self.due = False

    def deliver(self, payload: bytes) -> tuple[int, Any]:
        chunk = Chunk(payload)
        if not chunk.pull:
            if chunk.left:
                self._chunks.append(chunk)
                self.waiting += chunk.left
            return 0, ()
        return chunk.pull, [chunk.next(self._kind, self.source)[0] for _ in range(chunk.left)]

    def deliver_stored(self, payload: bytes) -> None:
        raise ValueError("a stored batch, which nobody asked for")

    def _count(self, n: int) -> None:
        self.waiting -= n
        self.used += n
        self.due = self.used >= self.used_most or self.used_bytes >= self.used_bytes_most

    def next(self) -> Record | None:
        if not self._chunks:
            return None
        chunk = self._chunks[0]
        record, size = chunk.next(self._kind, self.source)
        self.used_bytes += size
        self.position = record.position
        self._count(1)
        if not chunk.left:
            self._chunks.popleft()
        return record

    def take(self, most: int) -> list[Record]:
        found = []
        while len(found) < most and (record := self.next()) is not None:
            found.append(record)
        return found

    def columns(self, most: int) -> Columns:
        parts: list[Chunk] = []
        count = 0
        while count < most and self._chunks:
            chunk = self._chunks[0]
            part = chunk.copied()
            part.left = min(most - count, chunk.left)
            parts.append(part)
            count += part.left
            for _ in range(part.left):
                self.position, size = chunk.skip()
                self.used_bytes += size
            self._count(part.left)
            if not chunk.left:
                self._chunks.popleft()
        return Columns(parts, self._kind, self.source, count)

    def head(self) -> int | None:
        return self._chunks[0].position() if self._chunks else None

    def clear(self) -> int:
        dropped = self.waiting
        for chunk in self._chunks:
            while chunk.left:
                self.used_bytes += chunk.skip()[1]
        self._chunks.clear()
        self._count(dropped)
        return dropped

    def granted(self) -> tuple[int, int]:
        found = min(self.used, 0xFFFFFFFF), min(self.used_bytes, 0xFFFFFFFF)
        self.used = self.used_bytes = 0
        self.due = False
        return found


class Columns:
    def __init__(self, parts: list[Chunk], kind: type[Record], source: Any, count: int) -> None:
        self._parts = parts
        self._kind = kind
        self.source = source
        self.count = count

    def records(self) -> list[Record]:
        found = []
        for part in self._parts:
            chunk = part.copied()
            found += [chunk.next(self._kind, self.source)[0] for _ in range(chunk.left)]
        return found

    def bodies(self) -> list[bytes]:
        return [record.body for record in self.records()]

    def positions(self) -> list[int]:
        return [record.position for record in self.records()]

    def timestamps_ms(self) -> list[int]:
        return [record.timestamp_ms for record in self.records()]

    def ranges(self) -> list[tuple[int, int]]:
        return [(part.tag, part.tag + part.left - 1) for part in self._parts]
