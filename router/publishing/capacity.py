"""Capacity: whether queues that may refuse messages have room for messages that are appended as a whole or
not at all.

`Publishing.append` gives a message to those queues of its route that have room. Some messages must be
nowhere if one queue refuses them, because their publisher numbered them or because they belong to a unit.
This module checks those first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.router.routes._routes import Route
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["Capacity", "full"]


class Capacity:
    """Of messages that are to be appended one after the other, while the loop does nothing else."""

    def __init__(self) -> None:
        self._before: dict[Cursor, tuple[int, int]] = {}
        """Messages and their bytes that each queue is to get already."""

    def refusing(self, route: Route, size: int) -> Cursor | None:
        """The queue without room for one more message of `size` bytes; None: the message is counted."""
        for guard in route.guards:
            count, before = self._before.get(guard, (0, 0))
            if guard.queue.refuses(size, before=count, before_bytes=before):
                return guard
        for guard in route.guards:
            count, before = self._before.get(guard, (0, 0))
            self._before[guard] = count + 1, before + size
        return None


def full(guard: Cursor) -> str:
    """The error for a queue without room."""
    name = guard.queue.name
    return f"queue '{name}' is full and refuses more" if name else "the vhost's quota leaves no room"
