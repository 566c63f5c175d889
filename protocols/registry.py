"""The listeners of a gateway, seen from above: every connection of every front end, and what was before.

The composition root fills it; the HTTP front end reads it. Front ends do not know it: a connection answers
`Connection.facts`, a listener counts what it opened and closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.protocols.facts import ConnectionFacts, Totals

if TYPE_CHECKING:
    from penstock.protocols.connection import Connection
    from penstock.protocols.front import Front
    from penstock.protocols.listener import Listener

__all__ = ["Live", "MemoryLimit", "Registry"]


class MemoryLimit(Protocol):
    """When publishers wait for memory; the composition root's."""

    @property
    def limit_bytes(self) -> int:
        """0: there is none."""

    @property
    def available_bytes(self) -> int:
        """The memory there is."""

    def change(self, limit_bytes: int) -> None:
        """Another limit from now on, until the process ends."""


@dataclass(slots=True)
class Live:
    """An open connection and what it says of itself."""

    connection: Connection
    facts: ConnectionFacts

    @property
    def name(self) -> str:
        """As RabbitMQ names connections: CLIENT -> SERVER, addresses with ports."""
        return self.connection.name


class Registry:
    """See the module."""

    def __init__(self) -> None:
        self.fronts: dict[str, Front] = {}
        """By what they speak: "amqp", "mqtt", "native", "http"."""
        self.memory: MemoryLimit | None = None

    def listeners(self) -> Iterator[tuple[str, Listener]]:
        """(name, listener) of all; names are those of the ready line: "amqp", "amqps" and so on."""
        return (pair for front in self.fronts.values() for pair in front.listeners.items())

    def accepting(self) -> Iterator[tuple[str, Listener]]:
        """The same, of those that somebody can connect to."""
        return ((name, listener) for name, listener in self.listeners() if listener.accepting)

    def of(self, protocol: str) -> list[Listener]:
        """The listeners of a front end."""
        front = self.fronts.get(protocol)
        return [] if front is None else list(front.listeners.values())

    def connections(self) -> list[Live]:
        """Those whose client is logged in and that count as clients of the broker, oldest first."""
        found = []
        for _, listener in self.listeners():
            for connection in listener.connections:
                facts = connection.facts()
                if facts is not None:
                    found.append(Live(connection, facts))
        found.sort(key=lambda live: live.connection.id)
        return found

    def connection(self, name: str) -> Live | None:
        """The connection of that name."""
        return next((live for live in self.connections() if live.name == name), None)

    def totals(self, protocol: str) -> Totals:
        """What all connections of a protocol moved since the start, those that are gone included."""
        sum_ = Totals()
        for listener in self.of(protocol):
            sum_.add(listener.gone)
            for connection in listener.connections:
                sum_.add(connection.totals())
        return sum_

    def channels(self) -> tuple[int, int]:
        """Channels ever opened and closed."""
        opened = closed = 0
        for _, listener in self.listeners():
            opened += listener.gone.channels_opened
            closed += listener.gone.channels_closed
            for connection in listener.connections:
                totals = connection.totals()
                opened += totals.channels_opened
                closed += totals.channels_closed
        return opened, closed
