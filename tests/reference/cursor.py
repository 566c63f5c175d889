"""A queue's cursor, as plainly as it can be said: the oracle of `_cursor`.

Everything is a list that is searched from the front. Feeds are lists of positions, records a dict from
position to (persistent, expires at or None). A place that was taken stays in `places` until it and all
before it are done, only so that restarts can be told.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OUT, READY, DONE = "out", "ready", "done"


@dataclass
class Record:
    """The fields of a record that a cursor reads."""

    persistent: bool
    stored_ms: int
    expires_ms: int | None


@dataclass
class Place:
    """A position this cursor came to."""

    pos: int
    tags: frozenset[int]
    count: int
    state: str
    seq: int
    released: int = 0

    @property
    def again(self) -> bool:
        return self.count + self.released > 0


@dataclass
class Membership:
    """Positions [from_pos, to_pos) of a feed."""

    feed: list[int]
    tag: int
    from_pos: int
    to_pos: int | None = None

    def holds(self, pos: int) -> bool:
        return self.from_pos <= pos and (self.to_pos is None or pos < self.to_pos) and pos in self.feed


@dataclass
class ReferenceCursor:
    """One cursor over `records`."""

    records: dict[int, Record]
    members: list[Membership] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Deliveries that failed, and others that were given back, by position."""
    notes: dict[int, bytes] = field(default_factory=dict)
    frontier: int = 0
    unclean_until: int = 0
    skip_transient_until: int = 0
    sent_until: int = 0
    awaited: bool = False
    ttl_ms: int = -1
    expired: int = 0
    seq: int = 0

    def join(self, feed: list[int], from_pos: int | None, tag: int, next_lsn: int) -> None:
        for member in self.members:
            if member.feed is feed and member.tag == tag and member.to_pos is None:
                return
        floor = max([self.frontier, *self.done, *self.counts])
        start = next_lsn if from_pos is None else min(next_lsn, max(from_pos, floor + 1))
        self.members.append(Membership(feed, tag, start))

    def leave(self, feed: list[int], tag: int, next_lsn: int) -> None:
        for member in self.members:
            if member.feed is feed and member.tag == tag and member.to_pos is None:
                member.to_pos = next_lsn

    def unread(self) -> list[int]:
        """Positions not come to yet, in log order, equal ones once."""
        found = {
            pos
            for member in self.members
            for pos in member.feed
            if pos > self.frontier and member.holds(pos) and pos not in self.done
        }
        return sorted(found)

    def take(self, n: int, written: int, now_ms: int) -> list[tuple[int, int, tuple[int, ...], int, bool]]:
        """(seq, position, tags, count, redelivered) of up to `n` records."""
        taken: list[Place] = []
        for place in self.places:
            if len(taken) < n and place.state == READY:
                if self.stale(place.pos, place.count + place.released, now_ms):
                    self.finish(place)
                else:
                    place.state = OUT
                    taken.append(place)
        for pos in self.unread():
            if len(taken) == n or pos > written:
                break
            self.frontier = pos
            count, released = self.counts.get(pos, (0, 0))
            if self.stale(pos, count + released, now_ms):
                self.notes.pop(pos, None)
                self.places.append(Place(pos, frozenset(), 0, DONE, 0))
                continue
            self.seq += 1
            tags = frozenset(member.tag for member in self.members if member.holds(pos))
            place = Place(pos, tags, count, OUT, self.seq, released)
            self.places.append(place)
            taken.append(place)
        return [
            (p.seq, p.pos, tuple(sorted(p.tags)), p.count, p.again or p.pos <= self.unclean_until)
            for p in taken
        ]

    def stale(self, pos: int, count: int, now_ms: int) -> bool:
        record = self.records[pos]
        if pos < self.skip_transient_until and not record.persistent:
            return True
        ends = [record.stored_ms + self.ttl_ms] if self.ttl_ms >= 0 else []
        if record.expires_ms is not None:
            ends.append(record.expires_ms)
        if ends and min(ends) == record.stored_ms and self.awaited and not count:
            return False
        if ends and min(ends) <= now_ms and pos > self.sent_until:
            self.expired += 1
            return True
        return False

    def find(self, seq: int) -> Place | None:
        for place in self.places:
            if place.seq == seq and place.state == OUT:
                return place
        return None

    def settle(self, seq: int) -> None:
        place = self.find(seq)
        if place is not None:
            self.finish(place)

    def finish(self, place: Place) -> None:
        place.state = DONE
        self.notes.pop(place.pos, None)

    def note(self, seq: int, note: bytes) -> None:
        place = self.find(seq)
        if place is not None:
            self.notes[place.pos] = note

    def release(self, seq: int) -> None:
        place = self.find(seq)
        if place is not None:
            place.state = READY
            place.released = min(place.released + 1, 63)

    def requeue(self, seq: int) -> None:
        place = self.find(seq)
        if place is not None:
            place.state = READY
            place.count += 1

    def put_back(self, seq: int) -> None:
        place = self.find(seq)
        if place is not None:
            place.state = READY

    def purge(self, before: int) -> int:
        n = self.ready_count()
        for place in self.places:
            if place.state == READY and place.pos < before:
                self.finish(place)
        if before - 1 > self.frontier:
            self.frontier = before - 1
            self.places.append(Place(self.frontier, frozenset(), 0, DONE, 0))
        return n - self.ready_count()

    def take_before(self, before: int) -> list[int]:
        taken = [place for place in self.places if place.state == READY and place.pos < before]
        for place in taken:
            place.state = OUT
        return [place.seq for place in taken]

    def ready_count(self) -> int:
        return len(self.unread()) + sum(place.state == READY for place in self.places)

    def outstanding(self) -> list[int]:
        return [place.seq for place in self.places if place.state == OUT]

    def low(self) -> int:
        undone = [place.pos for place in self.places if place.state != DONE]
        return min(undone + self.unread()[:1], default=2**64 - 1)

    def restart(self, *, clean: bool, last_lsn: int) -> ReferenceCursor:
        """The cursor after a restart, when every state record was kept."""
        fresh = ReferenceCursor(self.records)
        fresh.members = [
            Membership(member.feed, member.tag, member.from_pos, member.to_pos) for member in self.members
        ]
        undone = [place for place in self.places if place.state != DONE]
        mark = min((place.pos for place in undone), default=self.frontier + 1) - 1
        fresh.frontier = mark
        fresh.done = {pos for pos in self.done if pos > mark}
        fresh.notes = dict(self.notes)
        fresh.counts = {pos: count for pos, count in self.counts.items() if pos > self.frontier}
        before = mark
        for place in self.places:
            if place.state == DONE:  # and so is what lies between it and the place before it
                fresh.done.update(range(max(before, mark) + 1, place.pos + 1))
            before = place.pos
        for place in undone:
            count = place.count + (clean and place.state == OUT)
            if count + place.released:
                fresh.counts[place.pos] = count, place.released
        fresh.unclean_until = self.unclean_until if clean else last_lsn
        fresh.ttl_ms = self.ttl_ms
        fresh.skip_transient_until = self.skip_transient_until
        fresh.sent_until = self.sent_until
        return fresh
