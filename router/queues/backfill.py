"""Backfill: a queue first reads what was published before it existed.

A binding made with `x-penstock-backfill` brings its queue everything from now on, and what it would have
brought since then. The queue joins the feed of the binding's slot at once. A search (`Log.search`) finds
the older records. Their feed is joined as a part that ends where the first begins: no gap, nothing twice,
in the order of the log. Until then the queue hands out nothing.

Today's exchanges and bindings decide what it "would have brought". A record is routed again, and wanted if
that leads to the queue by this slot. So a message published to an exchange that is gone is not found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.log_core.state.tables import FEED_TABLE, feed_key
from penstock.router.errors import BackfillRefused
from penstock.router.names import ENC_AMQP091, ENC_MQTT5, split_key_block
from penstock.router.queues.start_position import StartPosition, parse_since

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record
    from penstock.log_core.feeds._feed import Feed
    from penstock.log_core.log import Log
    from penstock.router.arguments import Arguments
    from penstock.router.exchanges.entries import QueueEntry
    from penstock.router.exchanges.exchanges import Slot
    from penstock.router.vhost.state import VhostState

__all__ = ["ARGUMENT", "History", "backfill", "check_backfill", "find_position", "since_of", "without_since"]

ARGUMENT: Final = "x-penstock-backfill"

History = Callable[[Callable[[bool], None]], None]
"""Starts a backfill; what it is given is called when the queue has its history, durably if it is durable, or
with False when that failed."""


def since_of(vhost: str, queue: str, value: object, now_ms: int) -> StartPosition:
    """The moment that the argument names.

    Raises:
        BackfillRefused: it names none.

    """
    since = parse_since(value, now_ms)
    if since is None:
        raise BackfillRefused(
            queue,
            vhost,
            f"{value!r} is no moment",
            'give a time ("2024-05-01T10:00:00Z"), an interval ("-15m"), milliseconds or "pos:N"',
        )
    return since


def check_backfill(vhost: str, queue: str, *, is_stream: bool, frontier: int) -> None:
    """Check that a queue can get what was published before; `frontier`: the last position it handed out.

    Raises:
        BackfillRefused: it cannot.

    """
    if is_stream:
        reason = "the offsets of a stream begin with its first message"
        raise BackfillRefused(queue, vhost, reason, "declare a queue of another type")
    if frontier:
        raise BackfillRefused(queue, vhost, "it has handed out messages already", "backfill a new queue")


def without_since(arguments: Arguments) -> Arguments:
    """The arguments that tell one binding from another: when its history begins does not."""
    return {name: value for name, value in arguments.items() if name != ARGUMENT}


def find_position(log: Log, lp: int, since: StartPosition, found: Callable[[int | None], None]) -> None:
    """Call `found` with the position of a moment: that of the first record kept which is not older.

    `lp`: the partition whose records are meant. None: it could not be looked for.
    """

    def clamped(position: int | None) -> None:
        # Older segments hold only what some queue needs.
        found(None if position is None else max(position, log.oldest_lsn(lp)))

    if since.position:
        clamped(since.position)
    else:
        log.seek_time(since.time_ms, clamped)


def backfill(
    vhost: VhostState,
    entry: QueueEntry,
    slot: Slot,
    tag: int,
    since: StartPosition,
    until: int,
    done: Callable[[int, bool], None],
) -> None:
    """Give a queue what `slot`, of which it is a member from `until` on, would have brought since then.

    The queue is on hold, and released at the end.

    `done` gets the last position of the history (0: there is none) once the queue has it, durably if the
    queue is durable, or is gone; and False when it could not be had.
    """
    log = vhost.broker.log
    queue = entry.queue

    def found(feed: Feed | None, ok: bool) -> None:
        last = lsn = 0
        if feed is not None and queue.deleted:
            log.drop_feed(feed)
        elif feed is not None:
            last = feed.last_position
            with log.unit():
                if queue.durable:
                    log.tables.put(FEED_TABLE, feed_key(feed.id), b"")
                lsn = queue.join_part(feed, 1, until, tag)
        queue.release()
        vhost.broker.tick.schedule()
        if lsn:
            log.when_synced(lsn, lambda synced: done(last, synced))
        else:
            done(last, ok)

    def at(position: int | None) -> None:
        if position is None:
            found(None, False)
            return
        log.search(position, _Slot(vhost, entry, slot), found, last=until, durable=queue.durable)

    find_position(log, vhost.lp, since, at)


class _Slot:
    """The messages that one slot brings one queue: a `Matcher` of a search."""

    def __init__(self, vhost: VhostState, entry: QueueEntry, slot: Slot) -> None:
        self._vhost = vhost
        self.lp = vhost.lp
        self._entry = entry
        self._slot = slot

    def verdict(self, enc: int, key: bytes) -> int:
        """0 it does not go there, 1 it does, 2 its headers decide."""
        if enc == ENC_AMQP091:
            parts = split_key_block(key)
            if parts is None:
                return 0
            if parts[0] == "":
                # Routing would make a feed for the queue of that name, if there is one.
                return int(self._slot.exchange.name == "" and self._is_matched(parts[1]))
        elif enc != ENC_MQTT5:
            return 0
        route = self._vhost.publishing.route(None, enc, key, None)
        return 2 if route.per_message else int(self._feed in route.target.feeds)

    def is_wanted(self, record: Record) -> bool:
        """Whether the record's headers lead there."""
        headers = self._vhost.headers_of(record)
        route = self._vhost.publishing.route(None, record.enc, record.key, headers)
        return self._feed in route.target.feeds

    def _is_matched(self, key: bytes) -> bool:
        """Whether a message with this key to the default exchange goes to the slot."""
        if self._slot.syntax == "dotted":
            return self._slot in self._slot.exchange.tails_of([key])
        return key == self._slot.pattern

    @property
    def _feed(self) -> Feed | None:
        return self._entry.own_feed or self._slot.feed
