"""The port through which a queue gives messages to one consumer. Front ends implement it.

A consumer belongs to one queue at a time (`Queue.attach`). The queue asks how much it may give (`credit`),
takes that much from its cursor, and lets the consumer encode its share (`deliver`). Messages that the
consumer took stay OUT in the cursor under their seq until it settles them (`cursor.settle`) or gives them
back (`cursor.requeue`).

After freeing credit the consumer calls `Queue.credit_gained`, once per read, not per message. A consumer
that had no credit when it was asked is not asked again before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["QueueConsumer"]


class QueueConsumer(Protocol):
    """One consumer, as its queue sees it."""

    @property
    def priority(self) -> int:
        """Higher ones are served first; a lower one only when no higher one has credit."""

    def credit(self) -> int:
        """Messages it would take now; 0 while its connection's output is above the high-water mark."""

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        """Encode items first, first + step ... below cursor.taken_count; returns how many, a prefix of these.

        The rest goes back to its place. A consumer without acknowledgements settles what it encoded
        before it returns. It takes from no cursor, and attaches and detaches nothing, in here.
        """

    def cancelled(self, reason: str) -> None:
        """The queue let go of this consumer (deleted, or the consumer failed): nothing more will come.

        Its unsettled messages are void; settling them does nothing.
        """
