"""The bytes of a client's connection, where kernels read them: in the buffer that they were received into.

    buffer   | used | unread: what `read` gives | room for more |
             0      start                       end

`read` gives what is unread as soon as there is more of it than before. Its caller says by `used` how much of
that it needs no more. A piece that is larger than the buffer makes the buffer grow. When nobody reads, the
buffer fills, and TCP carries that pressure to the other end.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final, Self

__all__ = ["Stream"]

_ROOM: Final = 512 << 10
_WRITE_AHEAD: Final = 1 << 20
"""Bytes that may wait to be written before `drain` does."""


class Stream(asyncio.BufferedProtocol):
    """See the module. One task reads; any may write."""

    def __init__(self) -> None:
        self._buffer = bytearray(_ROOM)
        self._start = self._end = 0
        self._is_more = False
        """More is unread than the reader has seen."""
        self._is_full = False
        self._is_over = False
        self._error: OSError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._closed = asyncio.Event()
        self._transport: Any = None

    @classmethod
    async def connect(
        cls, host: str, port: int, tls: ssl.SSLContext | None = None, server_name: str | None = None
    ) -> Self:
        """Connect by TCP; with TLS the server must be `server_name`, by default `host`. Raises OSError."""
        named = (server_name or host) if tls is not None else None
        _, made = await asyncio.get_running_loop().create_connection(
            cls, host, port, ssl=tls, server_hostname=named
        )
        return made

    # In

    async def read(self, silence_s: float | None = None) -> memoryview:
        """All that is unread, once there is more than before. It is valid until the next call.

        Raises:
            TimeoutError: nothing came for so many seconds.
            OSError: the connection is lost, or was ended.

        """
        if not self._is_more:
            if self._is_full:
                self._grow()
            async with asyncio.timeout(silence_s):
                while not self._is_more:
                    if self._is_over:
                        raise self._error or ConnectionResetError("the connection was ended there")
                    self._reader = asyncio.get_running_loop().create_future()
                    await self._reader
        self._is_more = False
        return memoryview(self._buffer)[self._start : self._end]

    def used(self, size: int, *, more: bool = False) -> None:
        """So many bytes of what `read` gave are done with. `more`: the rest was not looked at."""
        self._start += size
        left = self._end - self._start
        self._is_more |= more and left > 0
        if not left:
            self._start = self._end = 0
        elif len(self._buffer) - self._end < len(self._buffer) // 4 and self._start >= left:
            self._buffer[:left] = self._buffer[self._start : self._end]
            self._start, self._end = 0, left
        if self._is_full and self._end < len(self._buffer):
            self._is_full = False
            self._transport.resume_reading()

    def _grow(self) -> None:
        """The buffer has a piece that is larger: make room for the rest of it."""
        left = self._end - self._start
        made = bytearray(max(len(self._buffer), 2 * left))
        made[:left] = memoryview(self._buffer)[self._start : self._end]
        self._buffer, self._start, self._end, self._is_full = made, 0, left, False
        self._transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._is_more = True
        if self._end == len(self._buffer):
            self._is_full = True
            self._transport.pause_reading()
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # Out

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be written any more."""
        return bool(self._is_over or self._transport.is_closing())

    def write(self, *parts: bytes) -> None:
        """Send. Raises ConnectionResetError: the connection is lost."""
        if self.is_lost:  # uvloop would raise a RuntimeError
            raise ConnectionResetError("the connection is lost")
        self._transport.writelines(parts)

    async def drain(self) -> None:
        """Wait until the other end takes more. Raises OSError."""
        await self._may_write.wait()
        if self._is_over:
            raise self._error or ConnectionResetError("the connection is lost")

    async def close(self) -> None:
        """Send what waits, and end the connection."""
        self._transport.close()
        await self._closed.wait()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    # As a protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(_WRITE_AHEAD)

    def eof_received(self) -> bool:
        self._is_over = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        if isinstance(exc, OSError):
            self._error = exc
        self._wake()
        self._may_write.set()
        self._closed.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()
