"""The queues of a data folder, as the tables say: which feeds each reads, and what of them it still needs.

A queue needs the records of its memberships that are above its mark and in no finished run of its cursor
(docs/reference/format.md, 8.1). It needs records that are not persistent only from feeds that keep all:
after a restart other such records are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from penstock.errors import LogError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.state.tables import FEED_TABLE, KEEPS_TABLE, Tables, feed_of_key
from penstock.router.arguments import decode_table
from penstock.router.sessions.sessions import TABLE as SESSIONS
from penstock.router.sessions.sessions import split_row

__all__ = ["Membership", "QueueState", "keeping_feeds", "queues"]

OPEN: Final = 2**64 - 1
_CURSOR_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Membership:
    """The part of a feed that belongs to a queue: positions [first, end)."""

    feed: int
    first: int
    end: int


@dataclass(slots=True)
class QueueState:
    """One durable queue, session or shared subscription."""

    vhost: str
    kind: str
    """"queue", "session", "share", "subscription"; "stream" for a queue that keeps all it got."""
    name: str
    qid: int
    mark: int = 0
    """Everything up to it is done."""
    memberships: list[Membership] = field(default_factory=list)
    done: list[tuple[int, int]] = field(default_factory=list)
    """Finished positions above the mark, [first, last] each, ascending."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} in vhost {self.vhost!r}"

    def needs(self, position: int) -> bool:
        """Whether a position of one of its feeds is not finished."""
        if position <= self.mark:
            return False
        low, high = 0, len(self.done)
        while low < high:
            middle = (low + high) // 2
            if self.done[middle][1] < position:
                low = middle + 1
            else:
                high = middle
        return not (low < len(self.done) and self.done[low][0] <= position)


def keeping_feeds(tables: Tables) -> set[int]:
    """The ids of the feeds that keep everything, as streams' do."""
    return {feed_of_key(key) for key in tables.keys(KEEPS_TABLE)}


def queues(tables: Tables) -> Iterator[QueueState]:
    """All durable queues with a readable cursor. Raises LogError for a cursor that cannot be read."""
    of_streams = {
        (row["vhost"], row["queue"]): feed_of_key(key)
        for key, value in tables.items(FEED_TABLE)
        if value and "queue" in (row := decode_table(value))
    }
    for _, value in tables.items("queue"):
        row = decode_table(value)
        kind = row.get("kind", "queue")
        if row.get("arguments", {}).get("x-queue-type") == "stream":
            kind = "stream"
        state = QueueState(row["vhost"], kind, row["name"], row["qid"])
        if kind == "stream":
            feed = of_streams.get((state.vhost, state.name))
            state.memberships = [Membership(feed, 0, OPEN)] if feed is not None else []
        else:
            _take_cursor(tables, state)
        yield state
    for key, value in tables.items(SESSIONS):
        vhost, client_id, _ = split_row(value)
        state = QueueState(vhost, "session", client_id, int.from_bytes(key, "big"))
        _take_cursor(tables, state)
        yield state


def _take_cursor(tables: Tables, state: QueueState) -> None:
    raw = tables.get("cursor", state.qid.to_bytes(8, "big"))
    if raw is not None:
        _read_cursor(raw, state)


def _read_cursor(raw: bytes, state: QueueState) -> None:
    if not raw or raw[0] != _CURSOR_VERSION:
        raise LogError(
            f"the cursor of {state} is of another version or empty", remedy="run `penstock log verify`"
        )
    values = _integers(raw[1:])
    try:
        state.mark = next(values)
        next(values)  # unclean until
        for _ in range(next(values)):
            feed, _, first, end = next(values), next(values), next(values), next(values)
            state.memberships.append(Membership(feed, first, end or OPEN))
        last = state.mark
        for _ in range(next(values)):
            start = last + next(values)
            last = start + next(values)
            if next(values) & 1:
                state.done.append((start, last))
    except StopIteration:
        raise LogError(f"the cursor of {state} ends early", remedy="run `penstock log verify`") from None


def _integers(raw: bytes) -> Iterator[int]:
    """Unsigned LEB128, one after the other."""
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            yield value
            value = shift = 0
