"""Searches of the past for tests: which keys are wanted, and the feed that a search finds."""

from __future__ import annotations

from penstock.log_core.batch._batch import Record
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.log import Log


class Wanted:
    """Wants some keys, and of some keys the records with an even body."""

    def __init__(self, yes: set[bytes], ask: set[bytes]) -> None:
        self.yes, self.ask = yes, ask
        self.asked: list[bytes] = []

    lp = 0

    def verdict(self, enc: int, key: bytes) -> int:
        self.asked.append(key)
        return 2 if key in self.ask else int(key in self.yes)

    def is_wanted(self, record: Record) -> bool:
        return record.key in self.ask and record.body[0] % 2 == 0


def search(log: Log, first: int, last: int, wanted: Wanted, *, durable: bool = True) -> Feed | None:
    found: list[tuple[Feed | None, bool]] = []
    log.search(first, wanted, lambda *result: found.append(result), last=last, durable=durable)
    log.flush()
    while not found:
        log._inbox.wait()
    feed, ok = found[0]
    assert ok
    return feed
