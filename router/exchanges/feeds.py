"""The feeds behind slots: made by a slot's first queue, released by its last one, dropped when nobody reads
them.

A queue that may refuse messages has a feed of its own. So has a stream, whose feed survives a restart
whole. An MQTT session has some of its own, too (`router.sessions.sessions`), and so has an exchange or
queue with a traffic retention of its own (`router.policies.retention`).

An unbound queue still reads what was routed to it before. So a feed outlives its slot until the last
membership is read to its end. A feed with a durable queue has a row in the table `feed`: the log rebuilds
exactly those at start. The row says which slot or queue the feed belongs to. It is empty when its owner
has released it, and for a session's feed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.log_core.state.tables import FEED_TABLE, feed_key, feed_of_key
from penstock.router.arguments import decode_table, encode_table
from penstock.router.exchanges.exchanges import Slot

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.log_core.log import Log
    from penstock.router.exchanges.entries import QueueEntry
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
        self.retaining: set[str] = set()
        """The vhosts whose routes depend on which queues stand in a slot: see `retentions`."""

    def join(
        self, vhost: str, slot: Slot, entry: QueueEntry, tag: int = 0, from_pos: int | None = None
    ) -> int:
        """`entry` gets what this slot matches; the LSN to wait for. Joining again is counted."""
        count = slot.members.get(entry, 0)
        slot.members[entry] = count + 1
        if count:
            return 0
        if vhost in self.retaining:
            slot.touch()
        if entry.own_feed is not None:
            slot.guarded += (entry,)
            slot.touch()
            return 0
        return self._share(vhost, slot, entry, tag, from_pos)

    def _share(self, vhost: str, slot: Slot, entry: QueueEntry, tag: int, from_pos: int | None = None) -> int:
        changed = slot.feed is None
        if slot.feed is None:
            slot.feed = self._log.new_feed()
        if entry.durable:
            slot.durable_members += 1
            if slot.durable_members == 1:
                changed = True
                self._keep_slot(slot.feed, vhost, slot)
        lsn = entry.queue.join(slot.feed, from_pos, tag)
        if changed:
            slot.touch()
        return lsn

    def keep(self, vhost: str, slot: Slot) -> None:
        """A queue that has joined became durable."""
        assert slot.feed is not None
        slot.durable_members += 1
        if slot.durable_members == 1:
            self._keep_slot(slot.feed, vhost, slot)
            slot.touch()

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
        if entry.queue.vhost in self.retaining:
            slot.touch()
        if entry.own_feed is not None:
            slot.guarded = tuple(other for other in slot.guarded if other is not entry)
            slot.touch()
            return 0
        return self._unshare(slot, entry, tag, deleted=deleted)

    def _unshare(self, slot: Slot, entry: QueueEntry, tag: int, *, deleted: bool = False) -> int:
        feed = slot.feed
        assert feed is not None
        changed = False
        if entry.durable:
            slot.durable_members -= 1
            changed = slot.durable_members == 0
        if len(slot.members) == len(slot.guarded):
            slot.feed = None
            changed = True
        lsn = 0 if deleted else entry.queue.leave(feed, tag)
        if slot.feed is None:
            self._let_go(feed)
        if changed:
            slot.touch()
        return lsn

    def _keep(self, feed: Feed, row: bytes) -> None:
        key = feed_key(feed.id)
        if not self._log.tables.get(FEED_TABLE, key):
            self._log.tables.put(FEED_TABLE, key, row)

    def _keep_slot(self, feed: Feed, vhost: str, slot: Slot) -> None:
        if not self._log.tables.get(FEED_TABLE, feed_key(feed.id)):
            self._keep(feed, _row(vhost, slot))

    def _let_go(self, feed: Feed) -> None:
        """Nobody is bound by it any more, but somebody may still read: what is bound later gets another."""
        key = feed_key(feed.id)
        if self._log.tables.get(FEED_TABLE, key):
            self._log.tables.put(FEED_TABLE, key, b"")

    # Feeds of one queue

    def of_stream(self, vhost: str, name: str) -> Feed:
        """The feed of a stream: that of the last run, or a new one."""
        row = _queue_row(vhost, name)
        known = self._stored.pop(row, None)
        if known is not None:
            return self._log.feed(known)
        feed = self._log.new_feed(keeps=True)
        self._keep(feed, row)
        return feed

    def of_retention(self, vhost: str, lp: int, thing: str, name: str) -> Feed:
        """A new retention feed: of a vhost with that log partition, of an exchange or queue."""
        row = encode_table({"vhost": vhost, "keeper": thing, "name": name})
        feed = self._log.retention_feeds.new(lp, row)
        self._queues.used(feed)
        return feed

    def drop_retention_feed(self, feed: Feed) -> None:
        """Forget a retention feed."""
        self._queues.unused(feed)

    def of_session(self, *, durable: bool) -> Feed:
        """A new feed of a session's own; its session says whose it is."""
        feed = self._log.new_feed()
        if durable:
            self._log.tables.put(FEED_TABLE, feed_key(feed.id), b"")
        return feed

    def guard(self, vhost: str, entry: QueueEntry) -> None:
        """From now on `entry` has a feed of its own, so that a message can be kept from it alone."""
        if entry.own_feed is not None:
            return
        row = _queue_row(vhost, entry.name)
        known = self._stored.pop(row, None)
        feed = entry.own_feed = self._log.new_feed() if known is None else self._log.feed(known)
        if entry.durable:
            self._keep(feed, row)
        entry.queue.join(feed)
        for slot in dict.fromkeys(entry.slots()):
            slot.guarded += (entry,)
            self._unshare(slot, entry, 0)
            slot.touch()

    def unguard(self, vhost: str, entry: QueueEntry) -> None:
        """`entry` shares the feeds of its slots again; what it has so far stays."""
        feed = entry.own_feed
        if feed is None:
            return
        entry.own_feed = None
        for slot in dict.fromkeys(entry.slots()):
            slot.guarded = tuple(other for other in slot.guarded if other is not entry)
            self._share(vhost, slot, entry, 0)
            slot.touch()
        entry.queue.leave(feed)
        self._let_go(feed)

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
        return [
            (row["vhost"], row["exchange"], row["syntax"], row["pattern"])
            for row in rows
            if "exchange" in row
        ]

    def stored_retention_feeds(self) -> list[tuple[str, str, str, Feed]]:
        """(vhost, what it is, name, feed) of the retention feeds of the last run, which are in use again."""
        rows = [(stored, decode_table(stored)) for stored in self._stored]
        found = []
        for stored, row in rows:
            if "keeper" in row:
                feed = self._log.feed(self._stored.pop(stored))
                self._queues.used(feed)
                found.append((row["vhost"], row["keeper"], row["name"], feed))
        return found

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


def _queue_row(vhost: str, queue: str) -> bytes:
    return encode_table({"vhost": vhost, "queue": queue})
