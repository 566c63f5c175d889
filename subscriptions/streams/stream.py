"""A stream: a queue whose messages stay, read by any number of consumers, each from its own position.

Owns one feed, which gets every record routed to the stream once, however many bindings match it. The feed
survives a restart whole. Entry i of the feed has the offset `base + i`. So offsets have no gaps and stay
the same over restarts. A row (position, offset) in the table `stream` anchors them, renewed at each
checkpoint:

    key = feed id, 4 bytes big-endian; value = position u64 | offset u64, little-endian:
    entries below that position have lower offsets, the first one from there on has that offset

The position of a named consumer, the offset at which it continues, is a row of the table `stream_cursor`:
key = feed id | name, value = u64.

A consumer is a `Reader`: a transient queue of its own with a cursor on the feed. It gives nothing back,
because nothing is ever taken: an acknowledgement is credit and no more. Readers see only synced messages,
so that no offset is given to another message after a power cut.

Retention drops whole segments. Readers that are still before them continue with the first message that is
kept. A stream that compacts keeps, of messages beyond traffic retention, only the last one of each key
(`log_core/maintenance/compaction.py`). Readers skip the offsets of the others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.log_core.maintenance.compaction import Compacted
from penstock.log_core.state.tables import feed_key
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.errors import ConsumerRefused, NotForStreams
from penstock.subscriptions.queue.queue import Getter, Queue

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.log_core.maintenance._seal import Needs
    from penstock.subscriptions.dispatch.consumer import QueueConsumer
    from penstock.subscriptions.queue.limits import Rules
    from penstock.subscriptions.queues import Queues

__all__ = ["Reader", "Stream"]

TABLE: Final = "stream"
CURSORS: Final = "stream_cursor"
_ANCHOR: Final = struct.Struct("<QQ")
_NOTHING: Final = 2**64 - 1
_COMPACT_EACH_S: Final = 60.0
"""Least time between two looks whether a stream is due for compaction."""


class Reader(Queue):
    """One consumer's place in a stream. Made by `Stream.reader`; it ends with its consumer."""

    __slots__ = ("_stream", "cursor_name")

    def __init__(self, queues: Queues, stream: Stream, index: int, cursor_name: str) -> None:
        super().__init__(queues, 0, stream.name, stream.vhost, kind=Kind.EXCLUSIVE)
        self._stream = stream
        self.cursor_name = cursor_name
        """Under which its place is kept; "": it is not."""
        self.cursor.rules.delivery_limit = 0  # what is given back is done
        self.cursor.rules.ttl_ms = -2  # retention alone decides how long a stream keeps its messages
        self.cursor.begin(stream.feed, index)
        queues.used(stream.feed)

    @property
    def index(self) -> int:
        """The first entry of the stream's feed that is not done."""
        return self._stream.feed.index_of(self.cursor.mark + 1)

    def attach(self, consumer: QueueConsumer, *, exclusive: bool = False) -> None:
        """Serve `consumer`, now."""
        super().attach(consumer)
        self._stream.reads(self)

    def detach(self, consumer: QueueConsumer, *, requeue: bool = False) -> None:
        """The consumer is gone, and the reader with it."""
        self._stream.keep(self)
        super().detach(consumer, requeue=requeue)
        if not self.consumer_count:
            self.delete()

    def mark_dirty(self) -> None:
        """It got further."""
        self._stream.keep_soon(self)

    def watch(self) -> None:
        """Caught up: the stream wakes its readers when there is more to see."""

    def delete(self) -> tuple[int, int]:
        """End it."""
        self._stream.left(self)
        return super().delete()


class Stream(Queue):
    """See the module. Made by `Queues`, then `begin`."""

    __slots__ = (
        "_compact_timer",
        "_compacted",
        "_compacts",
        "_max_age_s",
        "_max_bytes",
        "_readers",
        "_seen",
        "_waiting",
        "base",
        "feed",
    )

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.feed: Feed
        self.base = 0
        """Offset of the feed's entry 0; may be negative: the first entries of this run have no offset 0."""
        self._readers: dict[Reader, None] = {}
        self._waiting = False  # for a sync, or at the feed
        self._seen = 0, 0, 0
        self._max_age_s: float | None = None
        self._max_bytes: int | None = None
        self._compacts = False
        self._compacted = Compacted({}, 0)
        self._compact_timer: Any = None

    def begin(self, feed: Feed) -> None:
        """Its feed, once, when the stream was made or restored."""
        self.feed = feed
        self._queues.used(feed)
        row = self.log.tables.get(TABLE, feed_key(feed.id))
        if row is not None:
            position, offset = _ANCHOR.unpack(row)
            self.base = offset - feed.index_of(position)
        self.anchor()

    def anchor(self) -> None:
        """Put the row that offsets are counted from after the next start."""
        row = _ANCHOR.pack(self.log.appender.next_lsn, self.base + self.feed.end)
        if self.log.tables.get(TABLE, feed_key(self.feed.id)) != row:
            self.log.tables.put(TABLE, feed_key(self.feed.id), row)

    # Offsets

    @property
    def first_offset(self) -> int:
        """Of the oldest message that is kept."""
        return self.base + self.feed.start

    @property
    def next_offset(self) -> int:
        """Of the next message."""
        return self.base + self.feed.end

    def offset_of_time(self, time_ms: int, found: Callable[[int | None], object]) -> None:
        """Call `found` with the offset of the first message not older than `time_ms`, or the next one.

        None: it could not be looked for.
        """

        def at(lsn: int | None) -> None:
            if lsn is None:
                found(None)
            else:
                self.offset_at(lsn, found)

        self.log.seek_time(time_ms, at)

    def offset_at(self, position: int, found: Callable[[int], object]) -> None:
        """Call `found`, perhaps at once, with the offset of the first message from `position` on."""
        self.log.when_index(self.feed, position, lambda index: found(self.base + index))

    def _visible(self) -> int:
        return self.feed.index_of(self.log.synced_lsn + 1)

    # Reading

    def reader(self, offset: int, cursor_name: str = "") -> Reader:
        """A new reader that begins with `offset`, or with the nearest one there is.

        Raises:
            ConsumerRefused: another one keeps its place under `cursor_name`.

        """
        if cursor_name and any(reader.cursor_name == cursor_name for reader in self._readers):
            raise ConsumerRefused(
                f"stream {self.name!r} in vhost {self.vhost!r} has a consumer with cursor {cursor_name!r}",
                remedy="cancel it first, or take another name",
            )
        index = min(max(offset - self.base, self.feed.start), self.feed.end)
        return Reader(self._queues, self, index, cursor_name)

    def reads(self, reader: Reader) -> None:
        """Part of Reader.attach."""
        self._readers[reader] = None
        if reader.cursor_name:
            reader.cursor.is_kept = True
        reader.cursor.reach(self._visible())
        self._wait()

    def left(self, reader: Reader) -> None:
        """Part of Reader.delete."""
        self._readers.pop(reader, None)

    def _wait(self) -> None:
        """Be told when there is more to see: by the next sync when it is written, else by the feed."""
        if self._waiting or not self._readers:
            return
        self._waiting = True
        if self.feed.end > self._visible():
            self.log.when_synced(self.log.appender.next_lsn - 1, self._synced)
        else:
            self.feed.waiters[self] = None

    def fed(self, feed: Feed) -> None:
        """There are new entries, and they are written."""
        self.log.when_synced(self.log.written_lsn, self._synced)

    def _synced(self, ok: bool) -> None:
        self._waiting = False
        if not ok or self.deleted:
            return
        visible = self._visible()
        for reader in self._readers:
            reader.cursor.reach(visible)
            reader.wake()
        self._wait()

    # Places that are kept

    def kept_offset(self, cursor_name: str) -> int | None:
        """Where the next consumer with this cursor goes on; None: there was none yet."""
        row = self.log.tables.get(CURSORS, self._cursor_key(cursor_name))
        return None if row is None else int.from_bytes(row, "little")

    def keep(self, reader: Reader) -> None:
        """Put where a reader got to, if it has a name.

        Of one that left, what is given back counts as done: it is not looked at any more.
        """
        if reader.cursor_name and reader in self._readers and reader.cursor.dirty and not self.deleted:
            reader.cursor.clean()
            offset = max(self.base + reader.index, 0).to_bytes(8, "little")
            self.log.tables.put(CURSORS, self._cursor_key(reader.cursor_name), offset)
            self.tick.schedule()

    def keep_soon(self, reader: Reader) -> None:
        """The same, within the time that cursors are kept in."""
        self.tick.after(self._queues.options.cursor_flush_ms / 1000, lambda: self._keep_when_known(reader))

    def _keep_when_known(self, reader: Reader) -> None:
        """The entries around its place may have left memory: then a thread reads them first."""
        position = reader.cursor.mark + 1

        def known() -> None:
            if reader.cursor.mark + 1 == position:
                self.keep(reader)
            else:  # it got further meanwhile
                self._keep_when_known(reader)

        self.log.when_indexed([(self.feed, position)], known)

    def _cursor_key(self, cursor_name: str) -> bytes:
        return feed_key(self.feed.id) + cursor_name.encode("utf-8", "surrogateescape")

    # Retention

    def retain(self, max_age_s: float | None, max_bytes: int | None, *, compacts: bool = False) -> None:
        """Keep no more than this, counted in whole segments of the log; None: no limit.

        With `compacts`, of the messages beyond traffic retention only the last one of each key.
        """
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._compacts = compacts
        if not compacts:
            self._compacted = Compacted({}, 0)
        elif self._compact_timer is None:
            self._compact_timer = self.tick.after(_COMPACT_EACH_S, self._compact)

    def _compact(self) -> None:
        self._compact_timer = None
        if self._compacts and not self.deleted:
            self._compact_timer = self.tick.after(_COMPACT_EACH_S, self._compact)
            self.log.compact(self.feed, self._compacted.until, self._found)

    def _found(self, compacted: Compacted) -> None:
        if self._compacts and not self.deleted:
            self._compacted = compacted

    def evict(self, before: int, evicted: Callable[[int], object]) -> None:
        """Drop what it has below position `before`; as `Queue.evict`."""
        n = len(self.feed)
        self.log.forget_before(self.feed, before)
        self.dropped += n - len(self.feed)
        evicted(n - len(self.feed))

    def low(self) -> int:
        """Drop what retention does not want; the lowest position still kept."""
        if self._max_age_s is not None or self._max_bytes is not None:
            self.log.trim(self.feed, self._max_age_s, self._max_bytes)
        return self.feed.base_of(self.feed.start) or _NOTHING

    def needs(self, needs: Needs) -> None:
        """Everything that retention wants, and of that what compaction keeps."""
        marks = self._compacted.marks.get(needs.base)
        if marks is None:
            needs.need_feed(self.feed.id, self.low(), _NOTHING)
        elif self.low() < needs.end:
            needs.need_marked(marks)

    # As a queue

    @property
    def ready_count(self) -> int:
        """Messages kept."""
        return len(self.feed)

    @property
    def consumer_count(self) -> int:
        """Readers, each with a place of its own."""
        return len(self._readers)

    def has_moved(self) -> bool:
        """Whether it has got or dropped messages, or a reader came or went, since this was asked last."""
        before, self._seen = self._seen, (self.feed.start, self.feed.end, len(self._readers))
        return self._seen != before

    def apply(self, rules: Rules) -> None:
        """A stream has no rules of queues; see `retain`."""

    def attach(self, consumer: QueueConsumer, *, exclusive: bool = False) -> None:
        """Not on a stream itself: see `reader`."""
        raise NotForStreams("consuming without an offset", self.name, self.vhost)

    def get(self, getter: Getter) -> None:
        """Not on a stream."""
        raise NotForStreams("basic.get", self.name, self.vhost)

    def purge(self) -> int:
        """Not on a stream."""
        raise NotForStreams("queue.purge", self.name, self.vhost)

    def delete(self) -> tuple[int, int]:
        """End it and its readers; as `Queue.delete`."""
        if self.deleted:
            return 0, 0
        count = len(self.feed)
        if self._compact_timer is not None:
            self._compact_timer.cancel()
        for reader in list(self._readers):
            reader.delete()
        _, lsn = super().delete()
        prefix = feed_key(self.feed.id)
        lsn = max(lsn, self.log.tables.delete(TABLE, prefix))
        for key in [key for key in self.log.tables.keys(CURSORS) if key.startswith(prefix)]:
            self.log.tables.delete(CURSORS, key)
        self._queues.unused(self.feed)
        self.tick.schedule()
        return count, lsn
