"""WebSocket frames of clients, unmasked in place. The module text is in _unframe.pyx."""

from typing_extensions import Buffer

class Unframer:
    """Takes the payload out of a client's WebSocket frames, in place (RFC 6455 section 5).

    Frames may be cut anywhere between two calls. Data frames are binary; what arrives in them is one stream,
    wherever frames and messages begin. Of control frames the last ping and the first close are kept for the
    caller. It holds no more than the header or the control frame (at most 125 bytes) that is incomplete.
    """

    ping: bytes | None
    """Payload of the last ping, 0 to 125 bytes; the caller answers it and sets None."""

    @property
    def close(self) -> bytes | None:
        """Payload of the peer's close frame, 0 to 125 bytes; nothing behind it is read."""
    @property
    def fault(self) -> tuple[int, str] | None:
        """Close code and text, once the peer has broken the protocol; nothing behind it is read."""
    def feed(self, buffer: Buffer, size: int) -> int:
        """Handle buffer[0:size], 0 <= size <= len(buffer); the payload is moved to its beginning.

        Returns how many bytes of payload there are now at buffer[0:]. The bytes behind them have no meaning.
        """

class PacketFramer:
    """Gives each MQTT packet of a stream a binary frame of its own: some clients read one packet per frame.

    A packet is one byte, a variable byte integer with the length of what follows, and that. A packet that is
    cut between two calls has a frame for each part.
    """

    def frame(self, data: Buffer) -> bytes:
        """The frames of what comes next in the stream."""

def frame_header(opcode: int, size: int) -> bytes:
    """The header of one whole frame of a server, 2, 4 or 10 bytes; `size` is that of the payload, >= 0."""
