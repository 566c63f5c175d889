"""Publishing a message once: it has a number of its producer, or its exchange looks for duplicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.router.publishing.capacity import Capacity
from penstock.router.publishing.publishing import Published

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.router.arguments import Arguments
    from penstock.router.exchanges.exchanges import Exchange
    from penstock.router.publishing.refused_numbers import RefusedNumbers
    from penstock.router.routes._routes import Route
    from penstock.router.rows import ProducerName

__all__ = ["Once"]


class Once:
    """How a message is known again."""

    def __init__(
        self,
        numbered: tuple[ProducerName, int] | None,
        unsent: RefusedNumbers | None,
        exchange: Exchange | None,
    ) -> None:
        """`numbered`: its producer, and its number there. `unsent`: what of it was refused, if its publisher
        hears of that. `exchange`: where it is published.
        """
        self._numbered = numbered
        self._unsent = unsent
        self._seen = exchange.seen if exchange is not None else None

    def append(
        self, log: Log, route: Route, headers: Arguments, size: int, append: Callable[[], Published]
    ) -> Published:
        """Call `append`, unless the message of `size` bytes came before: the LSN is the one of then."""
        value = None if self._seen is None else self._seen.value_of(headers)
        if self._seen is not None and value is not None:
            first = self._seen.find(value)
            if first is not None:
                return Published(first, route, repeated=True)
            if Capacity().refusing(route, size) is not None:
                return _refused(log, route)
            with log.unit():
                published = append()
                self._seen.note(value, headers, published.lsn)
            return published
        if self._numbered is None:
            return append()
        name, sequence = self._numbered
        unsent = self._unsent
        if unsent is not None and unsent.before(name.key, sequence) is not None:
            return _refused(log, route)
        known = log.producers.admit_sequence(name.key, sequence)
        if known:
            return Published(known, route, repeated=True)
        if Capacity().refusing(route, size) is not None:
            if unsent is not None:
                unsent.refused(name.key, sequence)
            return _refused(log, route)
        log.producers.open()
        published = append()
        log.producers.note(name.key, sequence, sequence, published.lsn, label=name.label)
        if unsent is not None:
            unsent.kept(name.key, sequence)
        return published


def _refused(log: Log, route: Route) -> Published:
    """A message that may come again is nowhere, not even where there is room, or among the dead letters."""
    return Published(log.appender.next_lsn - 1, route, refused=True)
