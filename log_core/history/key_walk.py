"""The walk over the bytes of segments on a thread, whose key blocks somebody on the loop decides about."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from penstock.log_core.batch._batch import BLOCK, Batch, Record
from penstock.log_core.batch._blocks import contents
from penstock.log_core.history._history import KeyScan
from penstock.log_core.threads._pace import Pace

__all__ = ["KeyWalk", "Matcher", "Stopped", "Undecided", "batches_of"]

_SLICE: Final = 128
"""Key blocks that the loop decides about in one go; about a millisecond."""
_KEYS_MAX: Final = 1_000_000
"""Key blocks that are remembered; more are asked about again."""
_ASK: Final = 0x80000000


class Matcher(Protocol):
    """Says what is wanted; on the loop."""

    @property
    def lp(self) -> int:
        """The partition whose records it is asked about; those of others are passed over."""

    def verdict(self, enc: int, key: bytes) -> int:
        """Of a key block: 0 not wanted, 1 wanted, 2 ask for each record."""

    def is_wanted(self, record: Record) -> bool:
        """Of one record, whose key block's verdict was 2."""


class Stopped(Exception):
    """The log closes."""


class Undecided(Exception):
    """The matcher failed."""


class KeyWalk:
    """Of one search; `stop` on the loop, everything else on the thread of the search."""

    def __init__(
        self, matcher: Matcher, scan: KeyScan, post: Callable[..., None], pace: Pace | None = None
    ) -> None:
        """`post` runs something on the loop; `pace`: that of the scan, which ends with the walk."""
        self._matcher = matcher
        self._scan = scan
        self._post = post
        self._pace = pace
        self._answers: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._verdicts: dict[tuple[int, bytes], int] = {}
        self.stopped = False

    def stop(self) -> None:
        """The log closes: the thread gets `Stopped` instead of an answer."""
        self.stopped = True
        if self._pace is not None:
            self._pace.stop()
        self._answers.put(None)

    def entries(self, data: memoryview, offset: int, first: int, last: int, base: int) -> bytes:
        """The wanted entries there, as `KeyScan.take` has them, unmarked. Raises Stopped, Undecided."""
        scan = self._scan
        while unknown := scan.unknown(data, offset, first, last, base):
            self.decide(unknown)
        entries = scan.take(data, offset, first, last, base)
        if scan.keys > _KEYS_MAX:
            scan.clear()
        return self._asked(data, offset, base, entries) if scan.asks else entries

    def decide(self, unknown: list[tuple[int, bytes]]) -> None:
        """Tell the scan about these key blocks. Raises Stopped, Undecided."""
        self.ask(self._decide, unknown)
        for enc, key in unknown:
            self._scan.decide(enc, key, self._verdicts[enc, key])

    def _asked(self, view: memoryview, offset: int, base: int, entries: bytes) -> bytes:
        """Without those of the records to be asked about that are not wanted."""
        kept = bytearray()
        batches = batches_of(view, offset)
        batch = next(batches)
        for entry in memoryview(entries).cast("I"):
            lsn = base + (entry & ~_ASK)
            if entry & _ASK:
                while lsn >= batch.base_lsn + batch.count:
                    batch = next(batches)
                if not self.ask(self._wanted, batch.record(lsn - batch.base_lsn)):
                    continue
            kept += (entry & ~_ASK).to_bytes(4, "little")
        return bytes(kept)

    def ask(self, function: Callable[..., None], argument: object) -> object:
        """Run `function(argument)` on the loop until it calls `answer`. Raises Stopped, Undecided."""
        self._post(function, argument)
        answer = self._answers.get()
        if self.stopped:
            raise Stopped
        if isinstance(answer, Exception):
            raise Undecided(repr(answer)) from answer
        return answer

    # On the loop

    def answer(self, value: object) -> None:
        """Let the thread go on; it raises an exception that it gets."""
        self._answers.put(value)

    def _decide(self, unknown: list[tuple[int, bytes]], at: int = 0) -> None:
        if at == 0:
            self._verdicts = {}
        try:
            for enc, key in unknown[at : at + _SLICE]:
                self._verdicts[enc, key] = self._matcher.verdict(enc, key)
        except Exception as error:
            self.answer(error)
            return
        if at + _SLICE < len(unknown):
            self._post(self._decide, unknown, at + _SLICE)
        else:
            self.answer(True)

    def _wanted(self, record: Record) -> None:
        try:
            self.answer(self._matcher.is_wanted(record))
        except Exception as error:
            self.answer(error)


def batches_of(view: memoryview, offset: int) -> Iterator[Batch]:
    """The batches from `offset` on, those in blocks included, without what is damaged."""
    while offset < len(view):
        size = int.from_bytes(view[offset : offset + 4], "little")
        try:
            batch = Batch.parse(view[offset : offset + size])
        except ValueError:
            offset += 32
            continue
        with contextlib.suppress(ValueError):
            yield from contents(view[offset : offset + size]) if batch.kind == BLOCK else [batch]
        offset += size
