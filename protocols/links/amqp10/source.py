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
)
from penstock.protocols.links.amqp10._messages import Arriving
from penstock.protocols.links.amqp10.wire import FRAME_MAX, Connection

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
        self._arriving = Arriving(frame_max=FRAME_MAX)
        self.messages = self._arriving.messages
        """Of the last `take`."""
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

    async def take(self) -> list[tuple[int, int]]:
        """Take the next messages, at least one: number of the first one, and how many follow on it, with it.

        Numbers grow.

        Raises:
            Closed: the broker ended the link.
            OSError: the connection is lost.

        """
        arriving = self._arriving
        arriving.begin()
        while not arriving.runs:
            others = await self._connection.taken_by(arriving)
            for performative in others:
                if isinstance(performative, Flow):
                    self._flowed(performative)
        runs = [self._took(first, count) for first, count in arriving.runs]
        if self._settled_there:
            self._top_up()
        return runs

    def _took(self, first: int, count: int) -> tuple[int, int]:
        """Messages with ids from `first` on came."""
        if self._last < 0:
            self._last, self._settled = first - 1, first - 1
        number = self._last + ((first - self._last) & _SERIAL)
        self._last = number + count - 1
        self._count += count
        self._credit -= count
        if self._left is not None:
            self._left -= count
        if not self._settled_there:
            self._unsettled += count
        return number, count

    def _flowed(self, flow: Flow) -> None:
        if flow.available is not None:
            self.waiting = flow.available
        if flow.echo:
            self._connection.send_flow(_HANDLE, delivery_count=self._count, credit=self._credit)

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
