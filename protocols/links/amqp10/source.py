"""The link that messages come by: credit, deliveries out of transfers, and what is settled of them.

Credit is what the prefetch leaves beside the deliveries that are not settled. It is given anew when a quarter
of the prefetch is free, so that a flow serves many messages.

Source: AMQP 1.0 part 2, sections 2.6.7 to 2.6.12.
"""

from __future__ import annotations

from typing import Final

from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Disposition,
    Flow,
    Source,
    Target,
    Transfer,
)
from penstock.protocols.links.amqp10.wire import Connection, Frame

__all__ = ["Receiver"]

_HANDLE: Final = 0
_SERIAL: Final = 0xFFFFFFFF
_DURABLE: Final = 2
"""As RabbitMQ's shovel has it: the queue is made durable where an address makes one."""
_SETTLED: Final = 1


class Receiver:
    """The source of a shovel by AMQP 1.0. One task takes."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        address: str,
        *,
        prefetch: int,
        settled: bool,
        left: int | None,
    ) -> None:
        """A link that `attach` opens.

        Args:
            connection: Of its own.
            name: Of the link.
            address: Where messages come from.
            prefetch: Messages under way at most.
            settled: Whether the broker settles them itself, when it sends them.
            left: Messages that are wanted at all; None = all.

        """
        self._connection = connection
        self._name = name
        self._address = address
        self._prefetch = prefetch
        self._settled_there = settled
        self._left = left
        self._credit = 0
        self._count = 0
        """Deliveries so far, as flows have it."""
        self._unsettled = 0
        self._last = -1
        """The id of the last delivery, without its turns at 2^32; -1: none came."""
        self._settled = -1
        self._parts: list[bytes] = []
        self.waiting: int | None = None
        """Messages that wait at the source, if it says so."""

    async def attach(self) -> None:
        """Open the link, and let messages come. Raises Closed, OSError."""
        connection = self._connection
        source = Source(self._address, durable=_DURABLE)
        settles = _SETTLED if self._settled_there else 0
        connection.send(Attach(self._name, _HANDLE, True, settles, 0, source, Target(self._name)))
        attached = False
        while not attached:
            for performative, _ in await connection.frames():
                if isinstance(performative, Attach):
                    if performative.source is not None:
                        attached = True
                        self._count = performative.initial_delivery_count or 0
        self._top_up()

    def _top_up(self) -> None:
        wanted = self._prefetch - self._unsettled
        if self._left is not None:
            wanted = min(wanted, self._left)
        if wanted - self._credit >= max(self._prefetch // 4, 1) or (self._credit == 0 and wanted > 0):
            self._credit = wanted
            self._connection.send_flow(_HANDLE, delivery_count=self._count, credit=wanted)

    async def take(self) -> list[tuple[int, bytes]]:
        """The next messages, at least one, with their growing numbers. Raises Closed, OSError."""
        found: list[tuple[int, bytes]] = []
        while not found:
            for frame in await self._connection.frames():
                self._took(frame, found)
        if self._settled_there:
            self._top_up()
        return found

    def _took(self, frame: Frame, found: list[tuple[int, bytes]]) -> None:
        performative, payload = frame
        if isinstance(performative, Flow):
            if performative.available is not None:
                self.waiting = performative.available
            if performative.echo:
                self._connection.send_flow(_HANDLE, delivery_count=self._count, credit=self._credit)
            return
        if not isinstance(performative, Transfer):
            return
        if performative.aborted:
            self._parts.clear()
            return
        self._parts.append(payload)
        if performative.delivery_id is not None and len(self._parts) == 1:
            if self._last < 0:
                self._last, self._settled = performative.delivery_id, performative.delivery_id - 1
            else:
                self._last += (performative.delivery_id - self._last) & _SERIAL
        if performative.more:
            return
        found.append((self._last, self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)))
        self._parts = []
        self._count += 1
        self._credit -= 1
        if self._left is not None:
            self._left -= 1
        if not self._settled_there:
            self._unsettled += 1

    def settle(self, number: int, count: int) -> None:
        """Accept the deliveries up to this one, which are `count`. Raises OSError."""
        first = (self._settled + 1) & _SERIAL
        self._connection.send(Disposition(True, first, number & _SERIAL, True, Accepted()))
        self._settled = number
        self._unsettled -= count
        self._top_up()

    def look(self) -> None:
        """Ask how many messages wait. Raises OSError."""
        self._connection.send_flow(_HANDLE, delivery_count=self._count, credit=self._credit, echo=True)

    async def drain(self) -> None:
        """Wait until the source takes more. Raises OSError."""
        await self._connection.drain()
