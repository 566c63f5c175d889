"""All queues of vhosts by name, for lists. They are sorted anew when a queue came or went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.protocols.http.shared.lists import chosen_in_parts, sorted_in_parts
from penstock.router.exchanges.entries import QueueEntry

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost

__all__ = ["SortedQueues", "name_of_queue"]


def name_of_queue(entry: QueueEntry) -> tuple[str, str]:
    """The place of a queue in such a list."""
    return entry.queue.vhost, entry.listed_name


class SortedQueues:
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[str, tuple[tuple[int, int], list[QueueEntry]]] = {}
        """By vhost: how many queues had been made and deleted, and its queues."""

    async def of(self, vhosts: Sequence[Vhost]) -> list[QueueEntry]:
        """The queues, sessions and subscriptions of these vhosts that are listed, by `name_of_queue`.

        `vhosts` are sorted by name.
        """
        for name in self._known.keys() - self._broker.vhosts.keys():
            del self._known[name]
        found: list[QueueEntry] = []
        for vhost in vhosts:
            entries = await self._of(vhost)
            if len(vhost.sessions):
                entries = await chosen_in_parts(entries, lambda entry: entry.is_listed)
            found += entries
        return found

    async def bound_to_default(self, vhost: Vhost) -> list[QueueEntry]:
        """The queues that are bound to the default exchange: all that were declared, by name."""
        entries = await self._of(vhost)
        if len(entries) == len(vhost.queues):
            return entries
        return await chosen_in_parts(entries, lambda entry: entry.kind == "queue")

    async def _of(self, vhost: Vhost) -> list[QueueEntry]:
        queues = self._broker.queues
        state = queues.created, queues.deleted
        before, entries = self._known.get(vhost.name, ((-1, -1), []))
        if before != state:
            entries = await sorted_in_parts(vhost.entries(), name_of_queue)
            self._known[vhost.name] = state, entries
        return entries
