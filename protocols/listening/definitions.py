"""The port through which front ends add their durable things to definitions; the management API uses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from penstock.router.vhost.vhost import Vhost

__all__ = ["OF_FRONTS", "OF_VHOST", "OF_WORKER", "Item", "Part", "join"]

Item = dict[str, Any]

OF_VHOST: Final = frozenset({"queues", "exchanges", "bindings", "policies", "parameters"})
"""Lists of a definitions file whose items are in a vhost: the broker's."""
OF_FRONTS: Final = ("mqtt_sessions", "webhooks")
"""The same, kept by front ends."""
OF_WORKER: Final = ("vhosts", *sorted(OF_VHOST), *OF_FRONTS)
"""Lists of which each worker has the part of its own vhosts."""


def join(whole: Item, parts: Iterable[Item]) -> Item:
    """The definitions of one worker, with the parts of others."""
    parts = list(parts)
    return {
        **whole,
        **{name: [*whole[name], *(one for part in parts for one in part[name])] for name in OF_WORKER},
    }


class Part(Protocol):
    """One list of a definitions file, by its key in `Front.definitions`."""

    def export(self, vhost: Vhost) -> Iterator[Item]:
        """All there is in a vhost, without its name."""

    def load(self, vhost: Vhost, item: Item) -> int:
        """Make one, unless it is there; the LSN to wait for, or 0.

        Raises:
            PenstockError: it cannot be; whatever the front end raises for its own mistakes, too.

        """
