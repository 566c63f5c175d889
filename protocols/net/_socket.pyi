"""Sockets of connections, as transports. The module text is in _socket.pyx."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

from typing_extensions import Buffer

from penstock.protocols.net._stream import QuickReader, Wire
from penstock.protocols.net.layers._layer import Layer

def accept(listening: int, most: int) -> list[tuple[int, str, int]]:
    """Accept those who wait at a non-blocking listening socket, `most` of them at most.

    Returns:
        Of each a descriptor that does not block, and the peer's numeric address and port; of a unix socket
        127.0.0.1 and 0. An empty list: nobody waits.

    Raises:
        OSError: as of accept(2), when nobody could be accepted.

    """

class Passage(QuickReader):
    """Takes every read of a stream and sends it on another transport; `Stream.quick`."""

    def __init__(self, to: Wire) -> None: ...

class SocketTransport(Wire):
    """One connected socket, as an asyncio transport of a `BufferedProtocol`.

    Other than asyncio's own it writes at once, not at the end of the loop's iteration, and reads once per
    iteration. Reading begins at once. `protocol.connection_lost` is called from the loop, never from inside a
    call of the protocol's. When a write fails, what the peer sent before it went is read first, if the
    protocol reads.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: socket.socket | int,
        protocol: asyncio.BufferedProtocol | Layer,
        early: Iterable[bytes] = (),
        unsaid: int = 0,
    ) -> None:
        """Take a connected, non-blocking socket, or its descriptor, which is owned from now on.

        It calls `connection_made`.

        `early` is read before what the socket has, one element at a time. The
        first `unsaid` bytes of output are dropped: the peer has
        got them from whoever had the socket before.
        """

    def write(self, data: Buffer) -> None:
        """Send what the socket takes now, keep a copy of the rest. Nothing while closing."""

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """The same for several, as one."""

    def send(self, data: bytes) -> int:
        """The same without a copy. Returns 0."""

    def take_in(self) -> None:
        """Have what waits of files read into memory: none stays open for a peer that takes nothing."""

    def close(self) -> None:
        """Read no more; when all that waits is sent, the connection is lost."""

    def abort(self) -> None:
        """Drop what waits; the connection is lost."""

    def release(self) -> tuple[socket.socket, int]:
        """Let go of the socket, without a word to the protocol or the peer; and the bytes of output that did
        not go out."""

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called, or the peer went away."""
    def pause_reading(self) -> None:
        """Read no more, so that TCP slows the peer down. Nothing while closing."""
    def resume_reading(self) -> None:
        """Read on. Nothing while closing."""
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """In bytes; by default 64 KiB, and a quarter of `high`."""

    def get_write_buffer_size(self) -> int:
        """Bytes that wait here for the socket."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`sockname`, `peername`, `socket`, and `gathering`: the poller."""
