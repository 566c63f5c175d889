"""The TLS layer of one connection: towards the socket a protocol, towards the `Connection` a transport.

`_tls_layer` has what is done for each read and each write. Here is the rest: the handshake, the end, pauses.

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
from typing import Any, Protocol, cast

from penstock.protocols.detection import TLS_RECORD, hint
from penstock.protocols.net._socket import SocketTransport
from penstock.protocols.net.layers._layer import Layer
from penstock.protocols.net.layers._tls_layer import TlsLayer

__all__ = ["Secured", "TlsTransport"]


class Secured(Protocol):
    """The part of the connection at the top that the layer needs, besides a BufferedProtocol."""

    def abort(self, reason: str) -> None: ...
    def close(self, reason: str) -> None: ...
    def secured(self, user: str | None) -> None: ...


class Above(Protocol):
    """The part of what is above the layer that is told in Python."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class TlsTransport(TlsLayer):
    """See the module text."""

    def __init__(
        self,
        above: asyncio.BufferedProtocol | Layer,
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
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(incoming, outgoing, server_side=True)
        super().__init__(above, self._tls, incoming, outgoing)
        self._above = cast(Above, above)
        self._connection = connection
        self._loop = loop
        self._bytes_left = handshake_bytes
        self._user_of = user_of

    # Towards the socket

    def connection_made(self, transport: SocketTransport) -> None:
        self.below = transport
        self._above.connection_made(cast(asyncio.Transport, self))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_ended = True
        self._above.connection_lost(exc)

    def eof_received(self) -> bool:
        # Reading is not paused here, so all that came before has been handed up.
        if not self.is_open:
            self._connection.abort("the client ended the TLS handshake")
        return bool(self._above.eof_received())

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    # Called by the layer

    def handshake(self, nbytes: int, first: bytes) -> bool:
        self._bytes_left -= nbytes
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.send_cipher()
            if self._bytes_left < 0:
                self._connection.abort("too many bytes in the TLS handshake")
            return False
        except ssl.SSLError as error:
            self.send_cipher()  # the alert
            # A peer that began with a handshake speaks TLS, whatever became of it.
            plain = "" if first.startswith(TLS_RECORD) else hint(first)
            self._connection.close(f"the TLS handshake failed: {_why(error)}{plain}")
            return False
        self.is_open = True
        self.send_cipher()
        self._connection.secured(self._user_of(self._tls.getpeercert()))
        return True

    def failed(self, error: ssl.SSLError) -> None:
        self._connection.abort(f"broken TLS: {_why(error)}")

    def peer_ended(self) -> None:
        """The peer says no more. The last output of the connection goes out before the socket is closed."""
        self._above.eof_received()
        self._say_goodbye()
        self.below.close()

    def _say_goodbye(self) -> None:
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # it wants the peer's goodbye, which nobody waits for
        self.send_cipher()

    # Towards the connection

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self.below.is_closing():
            self.is_ended = True
            if self.is_open:
                self._say_goodbye()
            self.below.close()

    def abort(self) -> None:
        self.is_ended = True
        self.below.abort()

    def is_closing(self) -> bool:
        return bool(self.below.is_closing())

    def pause_reading(self) -> None:
        self.is_paused = True
        self.below.pause_reading()

    def resume_reading(self) -> None:
        self.is_paused = False
        # Decrypted bytes go up first, then the socket is read: the end comes last.
        self._loop.call_soon(self._resumed)

    def _resumed(self) -> None:
        if self.is_open and not self.below.is_closing():
            self.hand_on()
        if not (self.is_paused or self.below.is_closing()):
            self.below.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return int(self.below.get_write_buffer_size())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As of the socket; `ssl_object` is the TLS connection."""
        if name == "ssl_object":
            return self._tls
        return self.below.get_extra_info(name, default)


def _why(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
