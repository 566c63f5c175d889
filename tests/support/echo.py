"""A listener whose connections answer each packet with its length, for tests of what all front ends share.

Packets are a u32 length and that many bytes; the packet b"login" logs in, b"bug" raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from penstock.log_core.batch._appender import Appender
from penstock.log_core.reading._tail import Cache
from penstock.log_core.wal._unwritten import Unwritten
from penstock.protocols.listening.listener import Listener, listening_socket
from penstock.protocols.net.buffers import Buffers
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_context import ConnectionContext, Limits
from penstock.subscriptions.tick.tick import Tick

__all__ = ["Echo", "EchoServer", "NoLog", "packet"]


class Echo(Connection):
    """Sends the length of every packet back."""

    login_after = 0

    def on_open(self) -> None:
        self.packets: list[bytes] = []
        self.calls = 0

    def received(self, buffer: bytearray, size: int) -> int:
        self.calls += 1
        at = 0
        while size - at >= 4:
            length = 4 + int.from_bytes(buffer[at : at + 4], "big")
            if size - at < length:
                self.want = length
                break
            packet = bytes(buffer[at + 4 : at + length])
            if packet == b"login":
                self.logged_in("somebody")
            elif packet == b"bug":
                raise RuntimeError("a bug")
            self.packets.append(packet)
            self.out.write(length.to_bytes(4, "big"))
            self.dirty()
            at += length
        return at


class NoLog:
    def __init__(self) -> None:
        self.unwritten = Unwritten(Appender(), Cache(0, 0))
        self.awaited = False

    def flush(self) -> None:
        pass

    def when_written(self, lsn: int, callback: Callable[[bool], None]) -> None:
        callback(True)

    def when_synced(self, lsn: int, callback: Callable[[bool], None]) -> None:
        callback(False)


class EchoServer:
    """A listener on loopback, on the running loop. `layers` are `Listener`'s: TLS, WebSocket, limits."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        front_end: str = "amqp",
        option: str = "listen",
        buffers: Buffers | None = None,
        kind: type[Echo] = Echo,
        **layers: Any,
    ) -> None:
        self.made: list[Echo] = []
        loop = asyncio.get_running_loop()
        log = NoLog()
        logger = logging.getLogger("penstock.test")
        self.context = context = ConnectionContext(
            loop, log, Tick(log, loop), limits or Limits(), logger, buffers=buffers or Buffers()
        )

        def make() -> Connection:
            self.made.append(kind(context))
            return self.made[-1]

        self.make = make
        listening = listening_socket(front_end, "127.0.0.1", 0, option=option)
        self.listener = Listener(listening, make, context, **layers)

    async def reason(self) -> str:
        """Why the last connection ended, once none is left."""
        while not self.made or self.listener.connections:
            await asyncio.sleep(0.001)
        return self.made[-1].reason


def packet(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body
