"""The effect of an outcome on a delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.protocols.amqp10.channel._core import HOW_ACCEPTED, HOW_REJECTED, HOW_RELEASED
from penstock.protocols.amqp10.codec.performatives import Accepted, Modified, Rejected

if TYPE_CHECKING:
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["how_of", "settle"]


def how_of(outcome: Any) -> int:
    """How a delivery with this outcome ends; None and any unknown one: it was not processed."""
    match outcome:
        case Accepted():
            return HOW_ACCEPTED
        case Rejected() | Modified(undeliverable_here=True):
            return HOW_REJECTED
    return HOW_RELEASED


def settle(cursor: Cursor, seq: int, outcome: Any) -> None:
    """The delivery has this outcome."""
    how = how_of(outcome)
    if how == HOW_ACCEPTED:
        cursor.settle(seq)
    elif how == HOW_REJECTED:
        cursor.reject(seq)
    else:
        cursor.requeue(seq)
