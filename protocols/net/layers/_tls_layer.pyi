"""The work of TLS for each read and write. The module text is in _tls_layer.pyx."""

import asyncio
import ssl

from typing_extensions import Buffer

from penstock.protocols.net.layers._layer import Layer

class TlsLayer(Layer):
    """Decrypts what comes and encrypts what goes; a class that derives from it does the rest.

    It calls `handshake(nbytes, first)` for each read before it `is_open`, which says whether it is then;
    `failed(error)` when OpenSSL finds a fault; and `peer_ended()` when the peer said goodbye.
    """

    is_open: bool
    """The handshake is done."""
    is_paused: bool
    """Nothing is handed up."""
    is_ended: bool
    """No more plaintext comes: the peer said so, or the connection is closed."""

    def __init__(
        self,
        above: asyncio.BufferedProtocol | Layer,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
    ) -> None: ...
    def hand_on(self) -> None:
        """Hand up all plaintext that is there, until the connection pauses."""

    def send_cipher(self) -> None:
        """Send what OpenSSL has for the peer."""

    def write(self, data: Buffer) -> int:
        """Encrypt and send; nothing before the handshake is done and when the socket is over. Returns 0."""
