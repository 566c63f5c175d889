"""The effect of an outcome on a delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.protocols.amqp10.codec.performatives import Accepted, Modified, Rejected

if TYPE_CHECKING:
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["settle"]


def settle(cursor: Cursor, seq: int, outcome: Any) -> None:
    """The delivery has this outcome; None and any unknown one: it was not processed."""
    match outcome:
        case Accepted():
            cursor.settle(seq)
        case Rejected():
            cursor.reject(seq)
        case Modified(undeliverable_here=True):
            cursor.reject(seq)
        case _:
            # Released, modified, or settled without an outcome.
            cursor.requeue(seq)
