"""The head of a queue: its oldest message that is not settled.

Memory tells, and nothing is read, taken or marked. After a restart, or when a queue has waited long, the
entries of its feeds may have left memory. Then the answer names an entry that has to be read first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["Head", "head_of"]

_NOTHING: Final = 2**64 - 1
_FEEDS_MAX: Final = 100
"""Memberships that are looked through: the head of a session with more is not told before it is taken."""
_REFUSED_MAX: Final = 1000
"""Entries in a row that were refused and not passed yet, which are looked through."""


class Head(NamedTuple):
    """The head of a queue, as memory tells it."""

    position: int = 0
    """Of the head in the log; 0: the queue has none, or memory does not tell."""
    unread: tuple[Feed, int] | None = None
    """The entry that has to be read before the head can be told (`Log.load_feed`)."""


def head_of(cursor: Cursor) -> Head:
    """The head of a cursor's queue."""
    low = cursor.low()
    if low == _NOTHING:
        return Head()
    if cursor.window:  # the oldest place of the window is not done
        return Head(low)
    if cursor.member_count > _FEEDS_MAX:
        return Head()
    unread: tuple[Feed, int] | None = None
    for feed in cursor.feeds:
        index = feed.missing(low)
        if index is None:
            index = feed.index_of(low)
            if feed.positions(index, 1) == [low]:
                return Head(_first_kept(cursor, feed, index, low))
            if index >= feed.end or feed.is_resident(index):
                continue
        # Without this entry the cursor knows no more than that its head does not lie below `low`.
        unread = unread or (feed, index)
    return Head(0, unread)


def _first_kept(cursor: Cursor, feed: Feed, index: int, position: int) -> int:
    """The position, or the next one, if the queue refused that message."""
    if cursor.fate(position) != "done":
        return position
    if cursor.member_count > 1:
        return 0
    later = feed.positions(index + 1, _REFUSED_MAX)
    return next((one for one in later if cursor.fate(one) != "done"), 0)
