"""A connection that is served by another worker and whose bytes pass through this one.

A socket is handed over (`handover`); but behind TLS or WebSocket there is state that cannot be. Its layers
stay here, and what they carry goes through a pair of sockets: towards the worker by `Passage`, in the
place of a scanner, back by this protocol. Either side waits while the other one takes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from penstock.protocols.net._socket import Passage, SocketTransport

if TYPE_CHECKING:
    from penstock.protocols.net.connection import Connection

__all__ = ["Relay"]

_BUFFER: Final = bytearray(256 * 1024)
"""Where all relays read into; valid only between get_buffer and buffer_updated."""
_HIGH: Final = 256 * 1024


class Relay(asyncio.BufferedProtocol):
    """The way back; `connection` is the client's, of which only the transport is used from now on."""

    def __init__(self, connection: Connection, inner: socket.socket) -> None:
        self._connection = connection
        self._transport: SocketTransport
        SocketTransport(connection.loop, inner, self)
        self._transport.set_write_buffer_limits(high=_HIGH)
        connection.quick = Passage(self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SocketTransport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        client = self._connection.transport
        if client is not None and not client.is_closing():
            client.write(bytes(memoryview(_BUFFER)[:nbytes]))
            if not self._connection.writable:
                self._transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.close("its worker closed it")

    def pause_writing(self) -> None:
        self._connection.pause_reading("relay")

    def resume_writing(self) -> None:
        self._connection.resume_reading("relay")

    # Calls of the connection

    def client_writable(self) -> None:
        """The client takes output again."""
        self._transport.resume_reading()

    def client_lost(self) -> None:
        """The client is gone."""
        self._transport.close()
