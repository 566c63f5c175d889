"""The feeds behind slots: made by a slot's first queue, let go by its last one, dropped when nobody reads
them any more.

A queue that is unbound still reads what was routed to it before, so a feed outlives its slot until the last
membership is read to its end. A feed with a durable queue has a row in the table `feed`: the log rebuilds
exactly those at start. The row says which slot the feed belongs to, and nothing (it is empty) once the slot
has let go of it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.log_core.tables import FEED_TABLE, feed_key, feed_of_key
from penstock.router.arguments import decode_table, encode_table
from penstock.router.exchanges import Slot

if TYPE_CHECKING:
    from penstock.log_core._feed import Feed
    from penstock.log_core.log import Log
    from penstock.router.entries import QueueEntry
    from penstock.subscriptions.queues import Queues

__all__ = ["Feeds"]

logger = logging.getLogger("penstock.router")


class Feeds:
    """Memberships of queues in slots, for all vhosts."""

    def __init__(self, log: Log, queues: Queues) -> None:
        self._log = log
        self._queues = queues
        queues.on_feed_unused = self._drop
        self._stored: dict[bytes, int] = {
            bytes(value): feed_of_key(key) for key, value in log.tables.items(FEED_TABLE) if value
        }
        """Feeds of the last run by what they belong to, until a slot takes them over."""

    def join(
        self, vhost: str, slot: Slot, entry: QueueEntry, tag: int = 0, from_pos: int | None = None
    ) -> int:
        """`entry` gets what this slot matches; the LSN to wait for. Joining again is counted."""
        count = slot.members.get(entry, 0)
        slot.members[entry] = count + 1
        if count:
            return 0
        changed = slot.feed is None
        if slot.feed is None:
            slot.feed = self._log.new_feed()
        if entry.durable:
            slot.durable_members += 1
            if slot.durable_members == 1:
                changed = True
                self._keep(vhost, slot, slot.feed)
        lsn = entry.queue.join(slot.feed, from_pos, tag)
        if changed:
            slot.touch()
        return lsn

    def leave(self, slot: Slot, entry: QueueEntry, tag: int = 0, *, deleted: bool = False) -> int:
        """`entry` gets nothing more of this slot, once it has left as often as it joined; the LSN to wait
        for.

        `deleted`: its queue is gone and its memberships with it.
        """
        count = slot.members[entry] - 1
        if count:
            slot.members[entry] = count
            return 0
        del slot.members[entry]
        feed = slot.feed
        assert feed is not None
        changed = False
        if entry.durable:
            slot.durable_members -= 1
            changed = slot.durable_members == 0
        if not slot.members:
            slot.feed = None
            changed = True
        lsn = 0 if deleted else entry.queue.leave(feed, tag)
        if slot.feed is None and self._log.tables.get(FEED_TABLE, feed_key(feed.id)):
            # Nobody is bound any more, but somebody still reads: a later binding makes a feed of its own.
            self._log.tables.put(FEED_TABLE, feed_key(feed.id), b"")
        if changed:
            slot.touch()
        return lsn

    def _keep(self, vhost: str, slot: Slot, feed: Feed) -> None:
        key = feed_key(feed.id)
        if not self._log.tables.get(FEED_TABLE, key):
            self._log.tables.put(FEED_TABLE, key, _row(vhost, slot))

    def _drop(self, feed: Feed) -> None:
        self._log.tables.delete(FEED_TABLE, feed_key(feed.id))
        self._log.drop_feed(feed)

    # At start

    def take_over(self, vhost: str, slot: Slot) -> None:
        """Give a restored slot the feed it had in the last run, if it had one."""
        if slot.feed is None and (feed_id := self._stored.pop(_row(vhost, slot), None)) is not None:
            slot.feed = self._log.feed(feed_id)

    def stored_slots(self) -> list[tuple[str, str, str, bytes]]:
        """(vhost, exchange, syntax, pattern) of the feeds that no slot has taken over yet."""
        rows = [decode_table(value) for value in self._stored]
        return [(row["vhost"], row["exchange"], row["syntax"], row["pattern"]) for row in rows]

    def restored(self) -> int:
        """All slots have theirs: drop the feeds nobody reads. How many were dropped."""
        unused = [
            feed
            for key, _ in self._log.tables.items(FEED_TABLE)
            if not self._queues.is_used(feed := self._log.feed(feed_of_key(key)))
        ]
        for feed in unused:
            self._drop(feed)
        # A feed that is read but belongs to nothing: its binding is gone, and its queue has left it by now.
        for row, feed_id in self._stored.items():
            key = feed_key(feed_id)
            if self._log.tables.get(FEED_TABLE, key) == row:
                self._log.tables.put(FEED_TABLE, key, b"")
        self._stored.clear()
        return len(unused)


def _row(vhost: str, slot: Slot) -> bytes:
    return encode_table(
        {"vhost": vhost, "exchange": slot.exchange.name, "syntax": slot.syntax, "pattern": slot.pattern}
    )
