"""The listeners of a gateway, seen from above: every connection of every front end, and what was before.

The composition root fills it; the HTTP front end reads it. Front ends do not know it: a connection answers
`Connection.info`, a listener counts what it opened and closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from penstock.lazy_dataclass import dataclass
from penstock.protocols.net.connection_info import ConnectionInfo, Totals

if TYPE_CHECKING:
    from penstock.protocols.listening.definitions import Part
    from penstock.protocols.listening.front_end import FrontEnd
    from penstock.protocols.listening.listener import Listener
    from penstock.protocols.net.connection import Connection
    from penstock.protocols.net.connection_context import Closed

__all__ = ["Live", "MemoryLimit", "Registry"]

_OF_CLIENTS: Final = ("amqp", "mqtt", "native")
"""Front ends whose connections are clients of the broker."""


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
    info: ConnectionInfo

    @property
    def name(self) -> str:
        """As RabbitMQ names connections: CLIENT -> SERVER, addresses with ports."""
        return self.connection.name


class Registry:
    """See the module."""

    def __init__(self) -> None:
        self.front_ends: dict[str, FrontEnd] = {}
        """By what they speak: "amqp", "mqtt", "native", "http"."""
        self.memory: MemoryLimit | None = None

    def listeners(self) -> Iterator[tuple[str, Listener]]:
        """(name, listener) of all; names are those of the ready line: "amqp", "amqps" and so on."""
        return (pair for front_end in self.front_ends.values() for pair in front_end.listeners.items())

    def accepting(self) -> Iterator[tuple[str, Listener]]:
        """The same, of those that somebody can connect to."""
        return ((name, listener) for name, listener in self.listeners() if listener.accepting)

    def of(self, protocol: str) -> list[Listener]:
        """The listeners of a front end."""
        front_end = self.front_ends.get(protocol)
        return [] if front_end is None else list(front_end.listeners.values())

    def connections(self) -> list[Live]:
        """Those whose client is logged in and that count as clients of the broker, oldest first."""
        found = []
        for _, listener in self.listeners():
            for connection in listener.connections:
                info = connection.info()
                if info is not None:
                    found.append(Live(connection, info))
        found.sort(key=lambda live: live.connection.id)
        return found

    def closed(self) -> list[Closed]:
        """Those of clients that ended last, the newest first."""
        found = [
            one for name in _OF_CLIENTS if name in self.front_ends for one in self.front_ends[name].closed
        ]
        return sorted(found, key=lambda one: one.closed_at, reverse=True)

    def definitions(self) -> dict[str, Part]:
        """The front ends' parts of the definitions, by key."""
        return {
            key: part for front_end in self.front_ends.values() for key, part in front_end.definitions.items()
        }

    def connection(self, name: str) -> Live | None:
        """The connection of that name."""
        return next((live for live in self.connections() if live.name == name), None)

    def totals(self, protocol: str) -> Totals:
        """Totals of all connections of a protocol since the start, those that are gone included."""
        sum_ = Totals()
        for totals in self.totals_by_version(protocol).values():
            sum_.add(totals)
        return sum_

    def totals_by_version(self, protocol: str) -> dict[str, Totals]:
        """The same by `Connection.spoken`; what is not there was not spoken yet."""
        found: dict[str, Totals] = {}
        for listener in self.of(protocol):
            for spoken, gone in listener.gone.items():
                found.setdefault(spoken, Totals()).add(gone)
            for connection in listener.connections:
                found.setdefault(connection.spoken, Totals()).add(connection.totals())
        return found

    def totals_in_parts(self, protocol: str) -> Iterator[Totals]:
        """Parts of `totals` as of the first one: between two parts, somebody else may have the loop."""
        for listener in self.of(protocol):
            # A connection that is lost meanwhile counts by itself, for `gone` is of the beginning.
            connections = list(listener.connections)
            gone = Totals()
            for totals in listener.gone.values():
                gone.add(totals)
            yield gone
            for connection in connections:
                yield connection.totals()

    def bytes(self, protocol: str) -> tuple[int, int]:
        """Received and sent by all connections of a protocol, those that are gone included."""
        received = sent = 0
        for listener in self.of(protocol):
            received += listener.gone_bytes_in + sum(one.bytes_in for one in listener.connections)
            sent += listener.gone_bytes_out + sum(one.bytes_out for one in listener.connections)
        return received, sent

    def channels(self) -> tuple[int, int]:
        """Channels ever opened and closed."""
        opened = closed = 0
        for listener in self.of("amqp"):
            found = [*listener.gone.values(), *(one.totals() for one in listener.connections)]
            opened += sum(totals.channels_opened for totals in found)
            closed += sum(totals.channels_closed for totals in found)
        return opened, closed
