"""Erlang's port mapper, one for each node: it sends the node to others through links that a test can cut.

The protocol is that of epmd, as far as nodes need it: a node registers itself (ALIVE2), asks for the port of
another one (PORT_PLEASE2), or for all names (NAMES). Source: "Distribution Protocol", ERTS User's Guide.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from tests.support.brokers import free_port
from tests.support.loop_thread import LoopThread

__all__ = ["PortMapper"]

_ALIVE2_REQUEST, _ALIVE2_ANSWER = 120, 118
_PORT_REQUEST, _PORT_ANSWER = 122, 119
_NAMES_REQUEST = 110
_NORMAL_NODE, _TCP, _VERSION_MAX, _VERSION_MIN = 77, 0, 6, 5
_UNKNOWN = 1
_CREATION = 1


class PortMapper:
    """Listens on `port` of loopback, in a thread; for one node."""

    def __init__(self, ports: Mapping[str, int], registered: dict[str, int]) -> None:
        """`ports`: where this node reaches each of the others, by the name before the @; `registered`: where
        all of them listen, and the commands that talk to them. All mappers share it.
        """
        self.port = free_port()
        self._ports = ports
        self._registered = registered
        self._thread = LoopThread("port-mapper")
        self._server = self._thread.run(asyncio.start_server(self._serve, "127.0.0.1", self.port))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = ""
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                [size] = struct.unpack(">H", await reader.readexactly(2))
                request = await reader.readexactly(size)
                if request[0] == _ALIVE2_REQUEST:
                    [port] = struct.unpack_from(">H", request, 1)
                    [length] = struct.unpack_from(">H", request, 9)
                    name = request[11 : 11 + length].decode()
                    self._registered[name] = port
                    writer.write(struct.pack(">BBI", _ALIVE2_ANSWER, 0, _CREATION))
                    await reader.read()  # it stays until the node ends
                elif request[0] == _PORT_REQUEST:
                    writer.write(self._where(request[1:]))
                elif request[0] == _NAMES_REQUEST:
                    lines = [f"name {each} at port {port}\n" for each, port in self._registered.items()]
                    writer.write(struct.pack(">I", self.port) + "".join(lines).encode())
                await writer.drain()
        finally:
            self._registered.pop(name, None)
            writer.close()

    def _where(self, name: bytes) -> bytes:
        text = name.decode()
        port = self._ports.get(text) or self._registered.get(text)
        if port is None:
            return bytes((_PORT_ANSWER, _UNKNOWN))
        numbers = (_PORT_ANSWER, 0, port, _NORMAL_NODE, _TCP, _VERSION_MAX, _VERSION_MIN, len(name))
        return struct.pack(">BBHBBHHH", *numbers) + name + b"\0\0"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.end(self._server.close)
