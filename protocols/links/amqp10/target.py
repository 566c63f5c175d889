"""The link that messages go by: credit, transfers, and their outcomes.

Source: AMQP 1.0 part 2, sections 2.6.7 to 2.6.12, part 3, section 3.4.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from penstock.protocols.amqp10.codec.frames import encode_transfer
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Disposition,
    Flow,
    Rejected,
    Released,
    Source,
    Target,
)
from penstock.protocols.links.amqp._in_flight import InFlight
from penstock.protocols.links.amqp10._messages import Departing, Messages
from penstock.protocols.links.amqp10.run import Refused
from penstock.protocols.links.amqp10.wire import CHANNEL, Connection

__all__ = ["Sender"]

_HANDLE: Final = 0
_SERIAL: Final = 0xFFFFFFFF
_DURABLE: Final = 2
_SETTLED: Final = 1
_HEAD: Final = 64
"""Bytes of a frame in front of a message, at most."""


class Sender:
    """The destination of a shovel by AMQP 1.0. One task publishes, another one takes."""

    def __init__(self, connection: Connection, name: str, address: str, *, settled: bool) -> None:
        """A link that `attach` opens; `settled`: nobody waits for outcomes."""
        self._connection = connection
        self._name = name
        self._address = address
        self._settled = settled
        self._departing = Departing(
            channel=CHANNEL, handle=_HANDLE, frame_max=connection.frame_max, settled=settled
        )
        self._sent = 0
        self._credit = 0
        self._room = asyncio.Event()

    async def attach(self) -> None:
        """Open the link. Raises Closed, OSError."""
        target = Target(self._address, durable=_DURABLE)
        attach = Attach(
            self._name, _HANDLE, False, _SETTLED if self._settled else 0, 0, Source(self._name), target
        )
        attach.initial_delivery_count = 0
        self._connection.send(attach)
        attached = False
        while not attached:
            for performative, _ in await self._connection.frames():
                self._flowed(performative)
                if isinstance(performative, Attach):
                    attached = performative.target is not None

    def _flowed(self, performative: Any) -> None:
        """A flow gives credit to the link, or a window to the session."""
        if not isinstance(performative, Flow):
            return
        if performative.handle is not None and performative.link_credit is not None:
            count = performative.delivery_count or 0
            self._credit = performative.link_credit - ((self._sent - count) & _SERIAL)
            if performative.echo:
                self._connection.send_flow(_HANDLE, delivery_count=self._sent, credit=self._credit)
        self._room.set()

    async def publish(self, messages: Messages) -> None:
        """Send messages, as there is credit for them. Raises OSError."""
        departing, connection = self._departing, self._connection
        while messages:
            if self._credit <= 0 or connection.window <= 0:
                await self._wait()
                continue
            frames = departing.put(messages, self._sent & _SERIAL, self._credit, connection.window)
            if not departing.count:
                await self._send_in_parts(messages.pop())
                continue
            self._credit -= departing.count
            self._sent += departing.count
            connection.send_transfers(frames, departing.frames)
        await connection.drain()

    async def _send_in_parts(self, payload: bytes) -> None:
        """Send a message that needs more transfers than the session has a window for."""
        number = self._sent & _SERIAL
        self._credit -= 1
        self._sent += 1
        most = self._connection.frame_max - _HEAD
        for at in range(0, len(payload), most):
            while self._connection.window <= 0:
                await self._wait()
            first, more, part = at == 0, at + most < len(payload), payload[at : at + most]
            frame = encode_transfer(CHANNEL, _HANDLE, number if first else None, self._settled, more, part)
            self._connection.send_transfers(frame, 1)

    async def _wait(self) -> None:
        """Wait for credit, or for a window."""
        self._room.clear()
        await self._room.wait()

    async def take(self, in_flight: InFlight) -> None:
        """Take the next outcomes.

        Raises:
            Refused: a message is refused.
            Closed: the broker ended the link.
            OSError: the connection is lost.

        """
        refusals: list[Refused] = []
        for performative, _ in await self._connection.frames():
            self._flowed(performative)
            if isinstance(performative, Disposition) and performative.role:
                try:
                    self._decided(performative, in_flight)
                except Refused as error:
                    refusals.append(error)
        if refusals:
            raise min(refusals, key=lambda one: one.before)

    def _decided(self, disposition: Disposition, in_flight: InFlight) -> None:
        state, last = disposition.state, disposition.last
        first, last = (
            self._sent - ((self._sent - 1 - one) & _SERIAL)
            for one in (disposition.first, disposition.first if last is None else last)
        )
        if isinstance(state, Accepted):
            in_flight.accepted(first, last)
            if not disposition.settled:
                done = Disposition(False, disposition.first, disposition.last, True, state)
                self._connection.send(done)
        elif isinstance(state, Rejected):
            told = "" if state.error is None else f": {state.error.description or state.error.condition}"
            raise Refused(f"destination: it refuses a message{told}", first - 1)
        elif isinstance(state, Released):
            raise Refused(f"destination: it has no place for a message to '{self._address}'", first - 1)
        elif state is not None:
            outcome = type(state).__name__.lower()
            raise Refused(f"destination: a message has the outcome {outcome}", first - 1)
