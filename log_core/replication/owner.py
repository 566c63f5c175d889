"""The owner's side of the journal: appends entries under one claim, and knows how far they are kept.

Any thread may append. Answers come in a thread of the journal. Everything that waits for the journal is told
by `on_kept`, from that thread. After an error nothing is kept any more, and `on_kept` is called once more.

`begins` has, for each file of the folder, where its newest copy begins in the journal. The journal must hold
everything from the lowest of these offsets on.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from penstock.errors import LogError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.replication.entries import Entry, Kind, decode, encode
from penstock.log_core.replication.fence import Gap, OwnerFence
from penstock.log_core.replication.journal import Journal, JournalFailed
from penstock.log_core.replication.position import Begin

__all__ = ["ANSWER_BOUNDS_S", "Owner", "boot_time"]

ANSWER_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a histogram of answer times."""


def boot_time() -> float:
    """Seconds since the machine started, with the time that it slept: `CLOCK_BOOTTIME`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class _Sent:
    index: int
    at: float
    at_bytes: int
    """Bytes of all entries before it, ever."""
    nbytes: int
    begins: str
    """Name of a file whose newest copy begins here; empty: of none."""
    completes: str
    """Name of a file whose newest copy is whole with this entry."""


class Owner:
    """Of one journal, from a claim until it fails or is closed."""

    def __init__(
        self,
        journal: Journal,
        claim: int,
        begins: dict[str, Begin],
        nbytes: int = 0,
        *,
        answered_at: float,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        """`claim`: offset of the CLAIM that was kept, and was sent at `answered_at`, on `clock`. `begins` and
        `nbytes`: as in `Position`."""
        self.claim: Final = claim
        self.last = 0
        """Index of the entry that was appended last."""
        self.failed: LogError | None = None
        self.gaps_read = 0
        self.answer_s = 0.0
        """Seconds from sending to the answer, of all of them together."""
        self.answer_counts = [0] * (len(ANSWER_BOUNDS_S) + 1)
        """Entries that were answered, by their time: up to each of ANSWER_BOUNDS_S, and above."""
        self.answered_at = answered_at
        """When the newest entry that was answered was sent: the owner's lease counts from it."""
        self.unanswered_bytes = 0
        self.nbytes = nbytes
        """Bytes of all entries ever appended to the journal."""
        self.on_kept: Callable[[], object] = lambda: None
        self.on_asked: Callable[[bytes], object] = lambda request: None
        """Told the payload of an ASK, from the journal's thread."""
        self._journal = journal
        self._clock = clock
        self._fence = OwnerFence(claim)
        self._begins = dict(begins)
        self._begun: dict[str, Begin | None] = {}
        self._sent: deque[_Sent] = deque()
        self._lock = threading.Condition()
        journal.begin(self._answered)

    @property
    def kept(self) -> int:
        """Entries up to this index are on the other machines, too."""
        return self._fence.kept

    @property
    def kept_offset(self) -> int:
        """The offset of entry `kept`."""
        return self._fence.offset_of(self._fence.kept)

    @property
    def oldest_s(self) -> float:
        """Seconds since the oldest entry that is not answered was sent; 0: all are answered."""
        with self._lock:
            return self._clock() - self._sent[0].at if self._sent else 0.0

    def append(
        self,
        kind: Kind,
        name: str = "",
        payload: bytes | memoryview = b"",
        *,
        offset: int = 0,
        total: int = 0,
        begins: bool = False,
        completes: bool = False,
    ) -> int:
        """Append an entry; its index.

        `begins`: the newest copy of the file begins with it, and is whole with the entry that `completes`.
        Raises JournalFailed, also when the owner has failed before.
        """
        with self._lock:
            if self.failed is not None:
                raise JournalFailed(self.failed.message, remedy=self.failed.remedy)
            index = self.last + 1
            raw = encode(kind, self.claim, index, name=name, payload=payload, offset=offset, total=total)
            self._journal.append(index, raw)
            self.last = index
            first, whole = (name if begins else ""), (name if completes else "")
            self._sent.append(_Sent(index, self._clock(), self.nbytes, len(raw), first, whole))
            self.nbytes += len(raw)
            self.unanswered_bytes += len(raw)
            if kind == Kind.DROP:
                self._begins.pop(name, None)
                self._begun.pop(name, None)
            return index

    def wait_below(self, nbytes: int) -> None:
        """Wait until fewer than `nbytes` bytes are not answered. Raises JournalFailed."""
        with self._lock:
            self._lock.wait_for(lambda: self.failed is not None or self.unanswered_bytes < nbytes)
            if self.failed is not None:
                raise JournalFailed(self.failed.message, remedy=self.failed.remedy)

    def wait_kept(self, index: int, timeout_s: float | None = None) -> bool:
        """Wait until entry `index` is kept; False: it is not, in this time or ever."""
        with self._lock:
            self._lock.wait_for(lambda: self.failed is not None or self.kept >= index, timeout_s)
            return self.kept >= index

    def begins(self) -> dict[str, Begin]:
        """Where the newest copy of each file begins; of a copy that is not kept yet, the one before."""
        with self._lock:
            return dict(self._begins)

    def fail(self, error: LogError) -> None:
        """Nothing more is kept; the first call counts."""
        with self._lock:
            if self.failed is None:
                self.failed = error
            self._lock.notify_all()
        self.on_kept()

    # The journal's thread

    def _answered(self, index: int, offset: int | None, error: LogError | None) -> None:
        if self.failed is not None:
            return
        try:
            if error is not None:
                raise error
            self._take(index, offset)
        except LogError as failure:
            self.fail(failure)
        except Exception as failure:  # whoever waits must hear of it
            self.fail(JournalFailed(f"an internal error: {failure!r}"))

    def _take(self, index: int, offset: int | None) -> None:
        fence = self._fence
        before, base = fence.kept, fence.offset_of(0)
        fence.answered(index, offset)
        while fence.gap is not None:
            self.gaps_read += 1
            gap = fence.gap
            fence.gap_read(self._between(gap))
        if fence.kept == before:
            return
        exact = fence.offset_of(0) == base
        now = self._clock()
        with self._lock:
            while self._sent and self._sent[0].index <= fence.kept:
                self._note(self._sent.popleft(), exact, now)
            self._lock.notify_all()
        self.on_kept()

    def _between(self, gap: Gap) -> Iterator[tuple[int, Entry]]:
        for offset, raw in self._journal.read(gap.first, gap.end):
            entry = decode(raw)
            if entry.kind == Kind.ASK and entry.claim == self.claim:
                self.on_asked(bytes(entry.payload))
            yield offset, entry

    def _note(self, sent: _Sent, exact: bool, now: float) -> None:
        self.answered_at = sent.at
        self.answer_s += now - sent.at
        self.answer_counts[bisect_left(ANSWER_BOUNDS_S, now - sent.at)] += 1
        self.unanswered_bytes -= sent.nbytes
        if sent.begins:
            # Behind a gap only the place of the newest entry is known for sure.
            known = exact or sent.index == self.kept
            place = Begin(self._fence.offset_of(sent.index), sent.at_bytes)
            self._begun[sent.begins] = place if known else None
        if sent.completes:
            begun = self._begun.pop(sent.completes, None)
            if begun is not None:
                self._begins[sent.completes] = begun
