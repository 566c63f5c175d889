"""The TLS layer of one connection: towards the socket a protocol, towards the `Connection` a transport.

    socket --ciphertext--> _CIPHER, shared --> memory BIO --decrypted straight into--> ARENA --> received()
    socket <--ciphertext-- memory BIO <-------encrypted as it is flushed------------- out

Why not the event loop's own layer: it drops what it holds decrypted when the peer closes while reading is
paused, which loses messages that nobody acknowledges; it takes 256 KiB per connection; and it hides how much
the socket has not taken. It is no faster either (bench/micro_tls.py). Here a pause reaches the socket at
once, the end of the stream comes behind the last byte, and the write buffer is the socket's.

The connection is told of its transport when the socket is there, so its limits before login (bytes, time)
hold for the handshake too; what it writes before the handshake is done is dropped, for nothing may be said.
A failed handshake ends the connection with the reason in its closing line.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, cast

from penstock.protocols.detection import TLS_RECORD, hint

__all__ = ["Secured", "TlsTransport"]

_CIPHER: Final = bytearray(256 * 1024)
"""Where all connections read ciphertext into; valid only between get_buffer and buffer_updated."""
_CIPHER_VIEW: Final = memoryview(_CIPHER)
_RECORD: Final = 16384
"""Most plaintext in one record."""


class Secured(Protocol):
    """The part of the connection at the top that the layer needs, besides a BufferedProtocol."""

    def abort(self, reason: str) -> None: ...
    def close(self, reason: str) -> None: ...
    def secured(self, user: str | None) -> None: ...


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """See the module text."""

    def __init__(
        self,
        above: asyncio.BufferedProtocol,
        connection: Secured,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        handshake_bytes: int,
        user_of: Callable[[Mapping[str, Any] | None], str | None],
    ) -> None:
        """Wait for the peer's hello.

        Args:
            above: The receiver of the plaintext: the connection, or a layer below it.
            connection: The one at the top.
            context: Of a server.
            loop: The running one.
            handshake_bytes: Most ciphertext that a peer may send before the handshake is done.
            user_of: The user whom a verified client certificate names; see `tls.login_name`.

        """
        asyncio.Transport.__init__(self)
        self._above = above
        self._connection = connection
        self._loop = loop
        self._bytes_left = handshake_bytes
        self._user_of = user_of
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._socket: asyncio.Transport
        self._open = False
        """The handshake is done."""
        self._paused = False
        self._ended = False
        """No more plaintext comes: the peer said so, or the connection is closed."""

    # Towards the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._above.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._above.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _CIPHER_VIEW

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended:
            return
        self._incoming.write(_CIPHER_VIEW[:nbytes])
        if self._open or self._handshake(nbytes):
            self._decrypt()

    def eof_received(self) -> bool:
        # Reading is not paused here, so all that came before has been handed up.
        if not self._open:
            self._connection.abort("the client ended the TLS handshake")
        return bool(self._above.eof_received())

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    def _handshake(self, nbytes: int) -> bool:
        self._bytes_left -= nbytes
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            if self._bytes_left < 0:
                self._connection.abort("too many bytes in the TLS handshake")
            return False
        except ssl.SSLError as error:
            self._send()  # the alert
            # A peer that began with a handshake speaks TLS, whatever became of it.
            first = bytes(_CIPHER_VIEW[: min(nbytes, 64)])
            plain = "" if first.startswith(TLS_RECORD) else hint(first)
            self._connection.close(f"the TLS handshake failed: {_why(error)}{plain}")
            return False
        self._open = True
        self._send()
        self._connection.secured(self._user_of(self._tls.getpeercert()))
        return True

    def _decrypt(self) -> None:
        """Hand up all plaintext that is there, until the connection pauses."""
        tls, incoming = self._tls, self._incoming
        while not (self._paused or self._ended) and (incoming.pending or tls.pending()):
            view = cast(memoryview, self._above.get_buffer(-1))
            size = len(view)
            filled = 0
            try:
                while filled < size and (incoming.pending or tls.pending()):
                    count = tls.read(size - filled, view[filled:])
                    if not count:
                        self._ended = True
                        break
                    filled += cast(int, count)
                whole = True
            except ssl.SSLWantReadError:
                whole = False  # the rest is the beginning of a record
            except ssl.SSLError as error:
                self._ended = True
                self._connection.abort(f"broken TLS: {_why(error)}")
                return
            del view  # the connection may enlarge what it refers to
            if filled:
                self._above.buffer_updated(filled)
            if not whole:
                break
        if self._outgoing.pending:
            self._send()  # an answer of TLS itself, such as new keys
        if self._ended and not self._socket.is_closing():
            # close_notify: what the connection has still to say goes out before the socket is closed.
            self._above.eof_received()
            self._say_goodbye()
            self._socket.close()

    def _send(self) -> None:
        data = self._outgoing.read()
        if data and not self._socket.is_closing():
            self._socket.write(data)

    def _say_goodbye(self) -> None:
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # it wants the peer's goodbye, which nobody waits for
        self._send()

    # Towards the connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._open or self._socket.is_closing():
            return
        size = len(data)
        try:
            if size <= _RECORD:
                self._tls.write(data)
            else:
                view = memoryview(data)
                at = 0
                while at < size:
                    at += self._tls.write(view[at : at + _RECORD])
        except ssl.SSLError as error:
            self._connection.abort(f"broken TLS: {_why(error)}")
            return
        self._send()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._socket.is_closing():
            self._ended = True
            if self._open:
                self._say_goodbye()
            self._socket.close()

    def abort(self) -> None:
        self._ended = True
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def pause_reading(self) -> None:
        self._paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        # Decrypted bytes go up first, then the socket is read: the end comes last.
        self._loop.call_soon(self._resumed)

    def _resumed(self) -> None:
        if self._open and not self._socket.is_closing():
            self._decrypt()
        if not (self._paused or self._socket.is_closing()):
            self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As of the socket; `ssl_object` is the TLS connection."""
        if name == "ssl_object":
            return self._tls
        return self._socket.get_extra_info(name, default)


def _why(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
