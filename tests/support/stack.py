"""A server of echoes with its clients, over real sockets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from penstock.protocols.net.buffers import Buffers
from penstock.protocols.net.connection_context import Limits
from tests.support.echo import Echo, EchoServer, packet


class Stack(EchoServer):
    """Closes what was opened to it."""

    def __init__(
        self, limits: Limits | None = None, max_connections: int = 0, buffers: Buffers | None = None
    ) -> None:
        super().__init__(limits, buffers=buffers, max_connections=max_connections)
        self.writers: list[asyncio.StreamWriter] = []

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        self.writers.append(writer)
        return reader, writer

    async def stuck(self) -> tuple[Echo, asyncio.StreamWriter]:
        """A connection that is held, for its client, which is logged in, reads nothing; and the client."""
        reader, writer = await self.client()
        writer.write(packet(b"login"))
        await reader.readexactly(4)
        echo = self.made[-1]
        transport: asyncio.Transport = writer.transport
        transport.pause_reading()
        while not echo.reading_paused:
            echo.out.write(bytes(100_000))
            echo.flush()
            await asyncio.sleep(0)
        return echo, writer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self.writers:
            writer.close()
        await self.listener.drain(5)
        for writer in self.writers:
            with suppress(ConnectionError):
                await writer.wait_closed()
