"""The bindings of one vhost: made, found again, removed; with their rows and their places in slots.

A binding is its (source, destination, key, arguments): the same four again are the same binding. It is
durable when both its ends are. A queue is in a slot once however many bindings put it there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.router.arguments import Arguments, encode_table
from penstock.router.exchanges.entries import Binding, DestinationKind, QueueEntry
from penstock.router.exchanges.exchanges import Exchange
from penstock.router.exchanges.feeds import Feeds
from penstock.router.names import wire
from penstock.router.rows import row_key

if TYPE_CHECKING:
    from penstock.log_core.log import Log

__all__ = ["Bindings"]

logger = logging.getLogger("penstock.router")

Destination = QueueEntry | Exchange


class Bindings:
    """See the module."""

    def __init__(self, vhost: str, log: Log, feeds: Feeds) -> None:
        self._vhost = vhost
        self._log = log
        self._feeds = feeds

    def add(
        self, source: Exchange, destination: Destination, key: str, arguments: Arguments
    ) -> tuple[Binding, bool]:
        """The binding, and whether it is new. Then wait for its `lsn`.

        Raises:
            InvalidMatch, InvalidPattern, InvalidBinding: see `Exchange.slot_of_binding`; nothing was made.

        """
        identity = self._identity(destination, key, arguments)
        known = source.bindings.get(identity)
        if known is not None:
            return known, False
        binding = self._place(source, destination, key, arguments, b"")
        if source.durable and destination.durable:
            # The row comes before the membership: a position in it is one the binding has already seen.
            self._keep(binding, key, arguments)
        binding.lsn = max(binding.lsn, self._link(binding))
        return binding, True

    def keep(self, binding: Binding, key: str) -> int:
        """The queue of a binding without arguments became durable: so does the binding. Answers its LSN."""
        assert isinstance(binding.destination, QueueEntry)
        if binding.source.durable and not binding.row:
            self._keep(binding, key, {})
            self._feeds.keep(self._vhost, binding.slot)
        return binding.lsn

    def _keep(self, binding: Binding, key: str, arguments: Arguments) -> None:
        source, destination = binding.source, binding.destination
        binding.row = self._row_key(source, destination, key, arguments)
        value = {
            "vhost": self._vhost,
            "kind": _kind(destination),
            "destination": destination.name,
            "source": source.name,
            "key": key,
            "arguments": arguments,
            "at": self._log.appender.next_lsn,
        }
        binding.lsn = self._log.tables.put("binding", binding.row, encode_table(value))

    def find(
        self, source: Exchange, destination: Destination, key: str, arguments: Arguments
    ) -> Binding | None:
        """The binding of these four, if there is one."""
        return source.bindings.get(self._identity(destination, key, arguments))

    def remove(self, binding: Binding, *, deleted: bool = False) -> int:
        """Take a binding out; the LSN to wait for. `deleted`: its destination queue is gone already.

        Then look whether its source lives on without it.
        """
        source, destination, slot = binding.source, binding.destination, binding.slot
        del source.bindings[binding.identity]
        lsn = 0
        if binding.row:
            lsn = self._log.tables.delete("binding", binding.row)
        if isinstance(destination, Exchange):
            del destination.incoming[binding]
            slot.exchanges[destination] -= 1
            if not slot.exchanges[destination]:
                del slot.exchanges[destination]
                slot.touch()
        else:
            destination.unbound(binding)
            lsn = max(lsn, self._feeds.leave(slot, destination, deleted=deleted))
        if slot.unused:
            source.discard(slot)
        return lsn

    # At start

    def restore(
        self, row: bytes, value: Mapping[str, Any], source: Exchange, destination: Destination
    ) -> None:
        """Put back a binding of the last run, and the queue's membership if its record has it not."""
        arguments, key = value["arguments"], value["key"]
        binding = self._place(source, destination, key, arguments, row)
        if isinstance(destination, QueueEntry):
            self._feeds.take_over(self._vhost, binding.slot)
        self._link(binding, from_pos=value["at"])

    # Inside

    def _identity(self, destination: Destination, key: str, arguments: Arguments) -> tuple[object, ...]:
        return (_kind(destination), destination.name, key, encode_table(arguments))

    def _row_key(self, source: Exchange, destination: Destination, key: str, arguments: Arguments) -> bytes:
        return row_key(
            self._vhost, _kind(destination), destination.name, source.name, key, encode_table(arguments)
        )

    def _place(
        self,
        source: Exchange,
        destination: Destination,
        key: str,
        arguments: Arguments,
        row: bytes,
    ) -> Binding:
        if _kind(destination) == "share":
            slot = source.slot("slashed", wire(key))
        else:
            slot = source.slot_of_binding(wire(key), arguments, destination)
        binding = Binding(source, destination, self._identity(destination, key, arguments), slot, row, 0)
        source.bindings[binding.identity] = binding
        if isinstance(destination, Exchange):
            destination.incoming[binding] = None
        else:
            destination.bound(binding)
        return binding

    def _link(self, binding: Binding, from_pos: int | None = None) -> int:
        destination, slot = binding.destination, binding.slot
        if isinstance(destination, QueueEntry):
            return self._feeds.join(self._vhost, slot, destination, from_pos=from_pos)
        count = slot.exchanges.get(destination, 0)
        slot.exchanges[destination] = count + 1
        if not count:
            slot.touch()
        return 0


def _kind(destination: Destination) -> DestinationKind:
    if isinstance(destination, Exchange):
        return "exchange"
    assert destination.kind != "subscription"  # these are bound to nothing but their stream
    return destination.kind
