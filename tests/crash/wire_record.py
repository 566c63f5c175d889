"""Stands between a bridge and its broker, and records how often either delivers each message of QoS 2.

A PUBLISH is a delivery of its own, unless it repeats one of the same packet id whose PUBREL has not passed.
Such a packet is sent again after a lost connection, and whoever receives it must know it by its id. Behind a
PUBREL its sender must not repeat it, and the receiver may have forgotten the id. So a subscriber behind the
bridge may get a message as often as the broker has delivered it, and no more. The bridge itself must deliver
each message once.

Source: MQTT 5.0, 4.3.3 and 4.4; 3.1.1 has the same.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tests.support.brokers import free_port
from tests.support.loop_thread import LoopThread

__all__ = ["WireRecord"]

_PUBLISH, _PUBREL = 3, 6
_QOS, _QOS_2 = 0x06, 0x04
_CHUNK = 1 << 16


class Deliveries:
    """Those of one sender."""

    def __init__(self, producer: str, *, mqtt5: bool) -> None:
        """Of the messages of `producer`, whose name their bodies begin with."""
        self.by_number = Counter[int]()
        """How often each message was delivered."""
        self._producer = producer.encode()
        self._mqtt5 = mqtt5
        self._under_way: dict[int, int] = {}
        """Messages by packet id."""

    def see(self, kind: int, packet: bytes) -> None:
        """The sender sends a packet: `kind` with flags, and what follows on the size."""
        if kind >> 4 == _PUBREL:
            self._under_way.pop(int.from_bytes(packet[:2], "big"), None)
        if kind >> 4 != _PUBLISH or kind & _QOS != _QOS_2:
            return
        at = 2 + int.from_bytes(packet[:2], "big")
        packet_id = int.from_bytes(packet[at : at + 2], "big")
        at += 2
        if self._mqtt5:
            size, after = _varint(packet, at)
            at = after + size
        producer, text, _ = packet[at:].split(b" ", 2)
        number = int(text)
        if producer == self._producer and self._under_way.get(packet_id) != number:
            self._under_way[packet_id] = number
            self.by_number[number] += 1

    @property
    def again(self) -> int:
        """Deliveries of messages that had been delivered before."""
        return sum(count - 1 for count in self.by_number.values())


class WireRecord:
    """Listens on `port`, where TLS ends, and passes bytes on to a port without TLS. Use it as a context."""

    def __init__(self, target: int, *, mqtt5: bool, tls: ssl.SSLContext | None = None) -> None:
        """A record of the streams in2, which the broker delivers, and out2, which the bridge does."""
        self.port = free_port()
        self.by_broker = Deliveries("in2", mqtt5=mqtt5)
        self.by_bridge = Deliveries("out2", mqtt5=mqtt5)
        self._target = target
        self._tls = tls
        self._thread = LoopThread("wire record")

    def __enter__(self) -> Self:
        self._server = self._thread.run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.end(self._server.close)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        ways = [
            asyncio.ensure_future(_pass(reader, back, self.by_bridge.see)),
            asyncio.ensure_future(_pass(there, writer, self.by_broker.see)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in ways:
                one.cancel()
            for end in (writer, back):
                end.transport.abort()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable byte integer, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 128:
            return value, at


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, see: Callable[[int, bytes], None]
) -> None:
    """Pass bytes on, and show each whole packet in them first."""
    rest = b""
    with suppress(OSError, asyncio.CancelledError):
        while data := await reader.read(_CHUNK):
            rest += data
            at = 0
            while len(rest) - at >= 2:
                # The size has four bytes at most, the last one without the upper bit.
                head = rest[at + 1 : at + 5]
                if all(byte & 128 for byte in head):
                    break
                size, start = _varint(rest, at + 1)
                if len(rest) < start + size:
                    break
                see(rest[at], rest[start : start + size])
                at = start + size
            rest = rest[at:]
            writer.write(data)
            await writer.drain()
