"""Connections of the load over TLS or WebSocket: like sockets for the login, then driven by load.c.

A WebSocket frame of a client is masked with zeros, which leaves its payload as it is.
"""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable
from typing import Any, cast

from bench.load import connect, read_exactly

__all__ = ["Layered", "framed", "over_tls", "over_websocket"]

_UPGRADE = (
    "GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n"
    "Sec-WebSocket-Version: 13\r\n\r\n"
)


def framed(payload: bytes) -> bytes:
    """One WebSocket frame of a client; at most 65,535 bytes."""
    size = len(payload)
    head = bytes([0x82, 0x80 | size]) if size < 126 else b"\x82\xfe" + size.to_bytes(2, "big")
    return head + bytes(4) + payload


class Layered:
    """The part of a socket that a login needs, on a layer."""

    def __init__(self, below: socket.socket) -> None:
        self.below = below
        self.tls: int | None = None
        """An SSL of OpenSSL; None: plain."""

    def fileno(self) -> int:
        """Of the socket."""
        return self.below.fileno()

    def setblocking(self, flag: bool) -> None:
        """TLS is read without blocking by the load."""
        self.below.setblocking(flag and self.tls is None)

    def close(self) -> None:
        """The socket, without a word."""
        self.below.close()


class _Tls(Layered):
    def __init__(self, below: socket.socket, library: Any) -> None:
        super().__init__(below)
        self._library = library
        below.setblocking(True)
        self.tls = library.tls_open(below.fileno())
        if not self.tls:
            raise OSError("no TLS handshake")

    def sendall(self, data: bytes) -> None:
        if self._library.tls_send(ctypes.c_void_p(self.tls), data, len(data)) != len(data):
            raise OSError("not sent")

    def recv(self, size: int) -> bytes:
        room = ctypes.create_string_buffer(size)
        got = self._library.tls_receive(ctypes.c_void_p(self.tls), room, size)
        return room.raw[: max(got, 0)]

    def close(self) -> None:
        self._library.tls_close(ctypes.c_void_p(self.tls))
        super().close()


class _WebSocket(Layered):
    def __init__(self, below: socket.socket, port: int) -> None:
        super().__init__(below)
        self._payload = b""
        below.sendall(_UPGRADE.format(port=port).encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += read_exactly(below, 1)
        if b" 101 " not in answer.split(b"\r\n")[0]:
            raise OSError(f"no WebSocket: {answer!r}")

    def sendall(self, data: bytes) -> None:
        self.below.sendall(framed(data))

    def recv(self, size: int) -> bytes:
        if not self._payload:
            self._payload = read_exactly(self.below, read_exactly(self.below, 2)[1])
        data, self._payload = self._payload[:size], self._payload[size:]
        return data


def over_tls(library: Any) -> Callable[[int], socket.socket]:
    """Makes connections over TLS; `library` is load.c."""
    return lambda port: cast(socket.socket, _Tls(connect(port), library))


def over_websocket(port: int) -> socket.socket:
    """A connection over WebSocket."""
    return cast(socket.socket, _WebSocket(connect(port), port))
