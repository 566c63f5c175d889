"""Publishes batches by the clients that shovels are made of, and waits for all confirms.

So the rate of a shovel is compared with that of its own destination end, with as many messages under way.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pamqp.frame
import uvloop
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.links.amqp import wire
from penstock.protocols.links.amqp._in_flight import InFlight
from penstock.protocols.links.amqp.methods import Publish, QueueDeclare
from penstock.protocols.links.amqp.place import Place
from penstock.protocols.links.amqp10 import wire as wire10
from penstock.protocols.links.amqp10._messages import Departing, Messages
from penstock.protocols.links.amqp10.target import Sender
from penstock.protocols.links.native import wire as native
from penstock.protocols.native.codec import kinds

__all__ = ["AMQP", "AMQP10", "NATIVE", "UNDER_WAY", "Window", "declare", "publish", "rate"]

AMQP: Final = "amqp091"
AMQP10: Final = "amqp10"
NATIVE: Final = "penstock"
"""The protocols, as shovels name them."""
UNDER_WAY: Final = {AMQP: 20_000, AMQP10: 20_000, NATIVE: 50_000}
"""Our defaults of src-prefetch-count."""
_BATCH: Final = 1000
_USER: Final = "guest"
_CONFIRM: Final = struct.Struct(">QQII")
_PERSISTENT: Final = b"\x10\x00\x02"
"""Properties with a delivery mode of 2, as records have them."""
_PRODUCE: Final = struct.Struct(">QB3xI")


def declare(port: int, *queues: str) -> None:
    """Make durable queues."""

    async def made() -> None:
        async with await _amqp(port) as connection:
            for queue in queues:
                await connection.call(QueueDeclare(queue=queue, durable=True), commands.Queue.DeclareOk)

    uvloop.run(made())


def publish(protocol: str, port: int, target: str, count: int, size: int) -> float:
    """Publish persistent messages to a queue that is there; how many a second.

    Args:
        protocol: See the constants.
        port: For it, on this machine.
        target: The queue; by AMQP 1.0 its address.
        count: Messages, in whole thousands.
        size: Of each body, in bytes.

    """
    by: dict[str, Callable[[int, str, int, bytes], Awaitable[float]]] = {
        AMQP: _by_amqp,
        AMQP10: _by_amqp10,
        NATIVE: _by_native,
    }
    if count % _BATCH:
        raise ValueError(f"{count} is not a multiple of {_BATCH}")
    return uvloop.run(_awaited(by[protocol](port, target, count, b"x" * size)))


async def _awaited(rate: Awaitable[float]) -> float:
    return await rate


async def _amqp(port: int) -> wire.Connection:
    return await wire.Connection.open(Place.tcp("127.0.0.1", port, _USER, _USER), "/")


class Window:
    """Messages that are sent and not confirmed, at most so many; they are sent in batches."""

    def __init__(self, most: int, batch: int = _BATCH) -> None:
        self._most = most
        self._changed = asyncio.Event()
        self.batch: Final = batch
        self.sent = self.confirmed = 0

    async def room(self) -> None:
        """Wait until a batch may be sent, which counts as sent then."""
        while self.sent + self.batch - self.confirmed > self._most:
            self._changed.clear()
            await self._changed.wait()
        self.sent += self.batch

    def reached(self, confirmed: int) -> None:
        """So many are confirmed now."""
        self.confirmed = confirmed
        self._changed.set()


async def rate(
    count: int, window: Window, send: Callable[[], Awaitable[None]], take: Callable[[], Awaitable[None]]
) -> float:
    """Send batches until `count` messages are confirmed."""

    async def sending() -> None:
        for _ in range(count // window.batch):
            await window.room()
            await send()

    async def taking() -> None:
        while window.confirmed < count:
            await take()

    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sending())
        tasks.create_task(taking())
    return count / (time.monotonic() - began)


async def _by_amqp(port: int, queue: str, count: int, body: bytes) -> float:
    parts = (
        Publish(routing_key=queue),
        ContentHeader(0, len(body), commands.Basic.Properties(delivery_mode=2)),
        ContentBody(body),
    )
    batch = b"".join(pamqp.frame.marshal(part, wire.CHANNEL) for part in parts) * _BATCH
    window, in_flight = Window(UNDER_WAY[AMQP]), InFlight()
    async with await _amqp(port) as connection:
        await connection.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

        async def send() -> None:
            in_flight.published(window.sent - _BATCH + 1, _BATCH)
            connection.write((batch,))
            await connection.drain()

        async def take() -> None:
            await connection.taken_by(in_flight)
            for raw in in_flight.others:
                wire.raise_closed(raw)
            window.reached(window.confirmed + in_flight.settled()[1])

        return await rate(count, window, send, take)


class _Prepared(Sender):
    """Sends transfers that were written before."""

    async def send(self, frames: bytes) -> None:
        """Send a batch, once there is credit and a window for all of it."""
        while self._credit < _BATCH or self._connection.window < _BATCH:
            await self._wait()
        self._credit -= _BATCH
        self._sent += _BATCH
        self._connection.send_transfers(frames, _BATCH)
        await self._connection.drain()


async def _by_amqp10(port: int, address: str, count: int, body: bytes) -> float:
    message = s.encode_section(s.HEADER, [True]) + s.encode_section(s.DATA, body)
    window, in_flight = Window(UNDER_WAY[AMQP10]), InFlight()
    place = Place.tcp("127.0.0.1", port, _USER, _USER)
    async with await wire10.Connection.open(place, "/", product="bench") as connection:
        sender = _Prepared(connection, "bench", address, settled=False)
        await sender.attach()
        writer = Departing(channel=wire10.CHANNEL, handle=0, frame_max=connection.frame_max, settled=False)
        batches = []
        for first in range(0, count, _BATCH):
            messages = Messages()
            for _ in range(_BATCH):
                messages.append(message)
            batches.append(writer.put(messages, first, _BATCH, _BATCH))
        waiting = iter(batches)

        async def send() -> None:
            in_flight.published(window.sent - _BATCH + 1, _BATCH)
            await sender.send(next(waiting))

        async def take() -> None:
            await sender.take(in_flight)
            window.reached(window.confirmed + in_flight.settled()[1])

        return await rate(count, window, send, take)


async def _by_native(port: int, queue: str, count: int, body: bytes) -> float:
    window = Window(UNDER_WAY[NATIVE])
    login: dict[str, Any] = {"user": _USER, "password": _USER, "vhost": "/"}
    async with await native.Connection.open("bench", "127.0.0.1", port, None, login) as connection:
        await connection.request("open_producer", handle=1, name=queue, numbered=True, topic=queue)
        records = (struct.pack(">II", len(_PERSISTENT), len(body)) + _PERSISTENT + body) * _BATCH

        async def send() -> None:
            head = _PRODUCE.pack(window.sent, kinds.ACKS_FSYNC, _BATCH)
            connection.send(kinds.PRODUCE, 1, head, records)
            await connection.drain()

        async def take() -> None:
            for kind, _, payload in await connection.frames():
                if kind == kinds.CONFIRM:
                    window.reached(_CONFIRM.unpack(payload)[0])

        return await rate(count, window, send, take)
