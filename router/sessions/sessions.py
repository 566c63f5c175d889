"""The MQTT sessions of one vhost: queues outside the names of AMQP, with topic filters instead of bindings.

A session's queue has one consumer at most and belongs to a client id, not to a connection. Its filters are
slashed, on the MQTT exchange. Each is subscribed with a tag, which the cursor says of what it brought:

    nobody has the filter yet   it leads to the session's own feed for that tag (`exchanges.Own`), one for all
                                such filters: most filters are one session's alone, and cost a trie's node
    somebody has it             the session is a member of the filter's slot, whose feed all others share

A durable session survives a restart, with its filters and what the front end says of each (`options`); what
else a session is (packet ids, expiry) is the front end's, in tables of its own.

    table session  key    qid u64 big-endian
                   value  size u16 | vhost | size u16 | client id | of each own feed: tag u32 | feed id u32
    table filter   see `filters`
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import Arguments
from penstock.router.authorization.identity import Identity
from penstock.router.errors import AccessRefused, NotFound, TopicRefused
from penstock.router.exchanges.entries import SessionEntry
from penstock.router.exchanges.exchanges import Own, Slot
from penstock.router.names import binding_key, text, wire
from penstock.router.queues.backfill import backfill
from penstock.router.sessions.filters import LISTED, OWN, Filters, Kept, is_noted, read_page
from penstock.subscriptions.dispatch.strategies import Kind

if TYPE_CHECKING:
    from penstock.router.queues.start_position import StartPosition
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["TABLE", "Sessions", "Subscribed", "Unsubscribed", "split_row"]

TABLE: Final = "session"

_SIZE: Final = struct.Struct("<H")
_OWN: Final = struct.Struct("<II")
_NO_ARGUMENTS: Final[Arguments] = {}


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The result of a subscription."""

    new: bool
    """False: the session had this filter already."""
    lsn: int
    """Wait for it before the subscription is promised; 0 when nothing is durable."""


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The result of ending a subscription."""

    existed: bool
    lsn: int
    """Wait for it before it is promised; 0 when nothing was durable."""


class Sessions:
    """The sessions of a vhost."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self.entries: dict[str, SessionEntry] = {}
        """By client id."""
        self.filter_count = 0
        """Filters of all sessions."""
        self.noted: list[str] = []
        """Client ids of the last run with a filter that the front end wants to hear of."""

    def __len__(self) -> int:
        return len(self.entries)

    def client_ids(self) -> list[str]:
        """The client ids that have a session."""
        return list(self.entries)

    def get(self, client_id: str) -> SessionEntry | None:
        """The session's entry, if there is one."""
        return self.entries.get(client_id)

    # Beginning and ending

    def queue(self, client_id: str, *, durable: bool) -> Queue:
        """The session's queue; made, durable or not, when there is none."""
        entry = self.entries.get(client_id)
        if entry is None:
            vhost = self._vhost
            with vhost.changing():
                queue = vhost.broker.queues.create(
                    client_id, vhost.name, durable=durable, kind=Kind.EXCLUSIVE
                )
                entry = self._add(queue)
                self._put(entry)
        return entry.queue

    def _add(self, queue: Queue) -> SessionEntry:
        entry = SessionEntry("session", queue, b"", _NO_ARGUMENTS)
        queue.data = entry
        self.entries[queue.name] = entry
        return entry

    def _put(self, entry: SessionEntry) -> None:
        if not entry.durable:
            return
        names = b"".join(_SIZE.pack(len(name)) + name for name in map(wire, (self._vhost.name, entry.name)))
        own = b"".join(_OWN.pack(own.tag, own.feed.id) for own in entry.own)
        entry.lsn = self._vhost.broker.log.tables.put(TABLE, _key(entry), names + own)

    def policed(self, client_id: str) -> Arguments:
        """The rules of policies for the session's queue, as arguments (`x-max-length`: an int)."""
        entry = self.entries.get(client_id)
        if entry is None:
            return _NO_ARGUMENTS
        return self._vhost.policies.effective(entry.listed_name, _NO_ARGUMENTS)

    def delete(self, client_id: str) -> int:
        """End a session with its filters and messages; the LSN to wait for."""
        entry = self.entries.get(client_id)
        if entry is None:
            return 0
        vhost = self._vhost
        with vhost.changing():
            filters = self._filters(entry)
            self.filter_count -= len(filters.all)
            del self.entries[client_id]
            _, lsn = vhost.remove_queue(entry)
            for kept in list(filters.all.values()):
                self._unbind(entry, kept, deleted=True)
                filters.remove(kept)
            entry.own = ()
            if entry.durable:
                filters.put(vhost.broker.log.tables, entry.queue.qid)
                lsn = max(lsn, filters.lsn, vhost.broker.log.tables.delete(TABLE, _key(entry)))
        return lsn

    # Filters

    def _filters(self, entry: SessionEntry) -> Filters:
        if entry.filters is None:
            entry.filters = Filters()
            entry.filters.load(self._vhost.broker.log.tables, entry.queue.qid, entry.pages)
        return entry.filters

    def filters(self, client_id: str) -> list[Kept]:
        """The session's subscriptions, not to be changed; empty when there is no such session."""
        entry = self.entries.get(client_id)
        return [] if entry is None else list(self._filters(entry).all.values())

    def topics(self, client_id: str) -> list[str]:
        """The filters that lead to the session itself; for a look at many sessions."""
        entry = self._entry(client_id)
        filters = entry.filters
        if filters is None:
            filters = Filters()
            filters.load(self._vhost.broker.log.tables, entry.queue.qid, entry.pages)
        return [kept.topic for kept in filters.all.values() if not kept.kind & LISTED]

    def rest(self, client_id: str) -> None:
        """Nobody works with the session for now: forget of a durable one what can be read again."""
        entry = self.entries.get(client_id)
        if entry is not None and entry.durable:
            entry.filters = None
            entry.lsn = 0  # whoever works with it next puts rows of its own behind this one

    @contextmanager
    def changing(self, client_id: str) -> Iterator[Filters]:
        """Changes of a session's filters within are one atomic unit, put at its end: then see `lsn`.

        Raises:
            NotFound: there is no such session.

        """
        entry = self._entry(client_id)
        filters = self._filters(entry)
        with self._vhost.changing():
            filters.depth += 1
            try:
                yield filters
            finally:
                filters.depth -= 1
                if entry.durable and not filters.depth:
                    entry.pages = filters.put(self._vhost.broker.log.tables, entry.queue.qid)

    def _entry(self, client_id: str) -> SessionEntry:
        entry = self.entries.get(client_id)
        if entry is None:
            raise NotFound("queue", client_id, self._vhost.name)
        return entry

    def permit(self, identity: Identity, topic_filter: str) -> None:
        """Whether the identity may have what a filter matches: at SUBSCRIBE, and when permissions change.

        The filter is without what stands for the way it is delivered (`$share/GROUP/`).

        Raises:
            AccessRefused: it may not read from the MQTT exchange, or not by this filter.

        """
        vhost, exchange = self._vhost.name, self._vhost.mqtt_exchange.name
        authorizer, user = self._vhost.broker.authorizer, identity.username
        if not authorizer.allow(identity, vhost, "read", exchange):
            raise AccessRefused("exchange", exchange, vhost, user, "read")
        key = binding_key(wire(topic_filter))
        if not authorizer.allow_topic(identity, vhost, "read", exchange, key, topic_filter):
            raise TopicRefused(exchange, vhost, user, "read", key)

    def subscribe(
        self,
        client_id: str,
        topic_filter: str,
        tag: int,
        identity: Identity,
        options: bytes = b"",
        kind: int = 0,
    ) -> Subscribed:
        """Bind a filter; its messages carry `tag`. The same filter again gets the new tag and options.

        Args:
            client_id: The session's.
            topic_filter: Of the front end, checked.
            tag: Below 2^31.
            identity: The user who subscribes.
            options: Data of the front end, which it gets back with the subscription.
            kind: LISTED for what leads nowhere, NOTED, or both.

        Raises:
            AccessRefused: see `permit`.
            InvalidPattern: the filter has too many levels.
            NotFound: there is no such session.

        """
        if not kind & LISTED:
            self.permit(identity, topic_filter)
        entry = self._entry(client_id)
        with self.changing(client_id) as filters:
            known = filters.all.get(topic_filter)
            if known is None:
                if not kind & LISTED:
                    kind |= self._bind(entry, wire(topic_filter), tag)
                filters.add(Kept(topic_filter, tag, kind, options))
                self.filter_count += 1
            elif (known.tag, known.options, known.kind & ~OWN) != (tag, options, kind):
                if known.tag != tag and not kind & LISTED:
                    self._retag(entry, known, tag)
                known.kind, known.tag, known.options = kind | known.kind & OWN, tag, options
                filters.changed(known)
        return Subscribed(known is None, max(filters.lsn, entry.lsn))

    def unsubscribe(self, client_id: str, topic_filter: str) -> Unsubscribed:
        """Take a filter back; what was routed by it until now stays."""
        entry = self.entries.get(client_id)
        known = None if entry is None else self._filters(entry).all.get(topic_filter)
        if entry is None or known is None:
            return Unsubscribed(False, 0)
        with self.changing(client_id) as filters:
            lsn = self._unbind(entry, known)
            filters.remove(known)
            self.filter_count -= 1
        return Unsubscribed(True, max(filters.lsn, lsn))

    def _bind(self, entry: SessionEntry, pattern: bytes, tag: int, *, shared: bool = False) -> int:
        """Let the session have what a filter brings; the kind it becomes."""
        vhost = self._vhost
        exchange = vhost.mqtt_exchange
        if not shared and exchange.filter(pattern) is None:
            # Before a feed is made: it may be refused.
            own = exchange.own(pattern, lambda: self._own(entry, tag))
            own.count += 1
            exchange.touch("slashed", pattern)
            return OWN
        slot = exchange.slot("slashed", pattern)
        vhost.broker.feeds.join(vhost.name, slot, entry, tag)
        return 0

    def _own(self, entry: SessionEntry, tag: int) -> Own:
        """The session's own feed for a tag."""
        for own in entry.own:
            if own.tag == tag:
                return own
        own = Own(entry, tag, self._vhost.broker.feeds.of_session(durable=entry.durable))
        entry.own += (own,)
        entry.queue.join(own.feed, None, tag)
        self._put(entry)
        return own

    def _disown(self, entry: SessionEntry, own: Own, *, deleted: bool = False) -> None:
        """One filter less leads to a feed of the session's own."""
        own.count -= 1
        if own.count == 0 and not deleted:
            entry.own = tuple(other for other in entry.own if other is not own)
            entry.queue.leave(own.feed, own.tag)
            self._put(entry)

    def _unbind(self, entry: SessionEntry, kept: Kept, *, deleted: bool = False) -> int:
        if kept.kind & LISTED:
            return 0
        vhost, pattern, lsn = self._vhost, wire(kept.topic), 0
        exchange = vhost.mqtt_exchange
        there = exchange.filter(pattern)
        assert there is not None
        if kept.kind & OWN:
            own = self._own(entry, kept.tag)
            if isinstance(there, Own):
                exchange.disown(pattern)
            else:
                there.owns = tuple(other for other in there.owns if other is not own)
            exchange.touch("slashed", pattern)
            self._disown(entry, own, deleted=deleted)
        else:
            assert isinstance(there, Slot)
            lsn = vhost.broker.feeds.leave(there, entry, kept.tag, deleted=deleted)
        if isinstance(there, Slot) and there.unused:
            exchange.discard(there)
        return max(lsn, entry.lsn)

    def _retag(self, entry: SessionEntry, kept: Kept, tag: int) -> None:
        pattern = wire(kept.topic)
        exchange = self._vhost.mqtt_exchange
        there = exchange.filter(pattern)
        if kept.kind & OWN:
            before, own = self._own(entry, kept.tag), self._own(entry, tag)
            own.count += 1
            if isinstance(there, Slot):
                there.owns = tuple(own if other is before else other for other in there.owns)
            else:
                exchange.disown(pattern)
                exchange.own(pattern, lambda: own)
            exchange.touch("slashed", pattern)
            self._disown(entry, before)
        else:
            assert isinstance(there, Slot) and there.feed is not None
            # In this order: a feed that nobody reads for a moment is dropped.
            entry.queue.join(there.feed, None, tag)
            entry.queue.leave(there.feed, kept.tag)

    def replay(
        self,
        client_id: str,
        topic_filter: str,
        since: StartPosition,
        identity: Identity,
        done: Callable[[int, bool], None],
    ) -> None:
        """Bind the only filter of a new session, with what it would have brought since then; see `backfill`.

        Raises:
            AccessRefused, InvalidPattern: as `subscribe`.

        """
        self.permit(identity, topic_filter)
        entry = self._entry(client_id)
        with self.changing(client_id) as filters:
            self._bind(entry, wire(topic_filter), 0, shared=True)
            filters.add(Kept(topic_filter, 0, 0, b""))
            self.filter_count += 1
        slot = self._vhost.mqtt_exchange.filter(wire(topic_filter))
        assert isinstance(slot, Slot)
        entry.queue.hold()
        until = self._vhost.broker.log.appender.next_lsn
        backfill(self._vhost, entry, slot, 0, since, until, done)

    # At start

    def restore(self, qid: int, client_id: str, own: list[tuple[int, int]]) -> SessionEntry:
        """Put back the durable session of the last run; `own`: its feeds, (tag, feed id)."""
        broker = self._vhost.broker
        entry = self._add(broker.queues.restore(qid, client_id, self._vhost.name, kind=Kind.EXCLUSIVE))
        entry.own = tuple(Own(entry, tag, broker.log.feed(feed)) for tag, feed in own)
        return entry

    def restore_page(self, entry: SessionEntry, page: int, value: bytes) -> None:
        """Put back the filters of one of its rows."""
        vhost = self._vhost
        exchange = vhost.mqtt_exchange
        own = {own.tag: own for own in entry.own}
        entry.pages |= 1 << page
        for topic, tag, kind, _ in read_page(value):
            self.filter_count += 1
            if kind & OWN:
                exchange.restore_own(topic, own[tag])
                own[tag].count += 1
            elif not kind & LISTED:
                slot = exchange.slot("slashed", topic)
                vhost.broker.feeds.take_over(vhost.name, slot)
                vhost.broker.feeds.join(vhost.name, slot, entry, tag)
        if is_noted(value):
            self.noted.append(entry.name)


def _key(entry: SessionEntry) -> bytes:
    return entry.queue.qid.to_bytes(8, "big")


def split_row(value: bytes) -> tuple[str, str, list[tuple[int, int]]]:
    """(vhost, client id, own feeds as (tag, feed id)) of a row of the table `session`."""
    names, at = [], 0
    for _ in range(2):
        (size,) = _SIZE.unpack_from(value, at)
        at += _SIZE.size
        names.append(text(value[at : at + size]))
        at += size
    return names[0], names[1], list(_OWN.iter_unpack(value[at:]))
