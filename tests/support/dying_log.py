"""A log that rolls, seals, checkpoints, deletes and stops, until it dies at the step PENSTOCK_FAILPOINT.

    python -m tests.support.dying_log FOLDER

Each line of the output is a confirmed LSN and its feed; the last one is "done".
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.log_core.files.files import Files
from penstock.log_core.log import Log
from penstock.log_core.state.tables import feed_key
from tests.support.logs import KIB, Unsynced, append, durable_feed, open_log, settle


class _Dying(Unsynced):
    def __init__(self) -> None:
        super().__init__()
        Files.__init__(self)
        self._looks = 0

    def free_bytes(self, folder: Path) -> int:
        """Two of three segments go into the further folder."""
        self._looks += folder.name == "wal"
        return (1 << 61) * (self._looks % 3 == 0) if folder.name == "wal" else 1 << 60


class _Everything:
    lp = 0

    def verdict(self, enc: int, key: bytes) -> int:
        return 1


def _search(log: Log) -> None:
    """Into a feed of what is found, which is dropped."""
    found: list[Any] = []
    end = log.appender.next_lsn
    log.search(1, _Everything(), lambda *result: found.append(result), last=end, durable=True)
    log.flush()
    while not found:
        log._inbox.wait()
    if found[0][0] is not None:
        log.tables.put("feed", feed_key(found[0][0].id), b"")


def main(folder: Path) -> None:
    """Append, sync and say each confirmed LSN."""
    further = Path(f"{folder}.further")
    further.mkdir(exist_ok=True)
    log = open_log(folder, _Dying(), checkpoint_bytes=100 * KIB, folders=(str(further),))
    feed = next((feed for feed in log.feeds.values()), None) or durable_feed(log)
    acked = stuck = lsn = 0

    def mark(needs: Any, done: Callable[[], object]) -> None:
        needs.need(stuck)
        needs.need_feed(feed.id, acked, 2**64 - 1)
        done()

    # In the first half segments are deleted; then one record is needed for ever, and they are rewritten.
    log.low_water = lambda: min(acked, stuck or acked)
    log.mark_needs = mark
    for number in range(60):
        if number == 30:
            stuck = lsn
        if number in (10, 20, 25):
            _search(log)
        lsn = append(log, [feed], bytes(9000))
        log.tables.put("t", b"%d" % (number % 7), b"%d" % lsn)
        assert log.wait_synced(log.appender.next_lsn - 1)
        print(lsn, feed.id, flush=True)
        acked = lsn - 5
        settle(log)
        log.tend(1 << 60)
        settle(log)
    log.close_sync()
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
