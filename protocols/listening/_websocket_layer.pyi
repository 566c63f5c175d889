"""The work of WebSocket for each read and write. The module text is in _websocket_layer.pyx."""

from typing_extensions import Buffer

from penstock.protocols.listening._unframe import Unframer
from penstock.protocols.net._stream import Stream
from penstock.protocols.net.layers._layer import Layer

class WebSocketLayer(Layer):
    """Takes the frames off input and puts them around output; a class that derives from it does the rest.

    It calls `handshake(data)` for each read before it `is_open`, and `control()` behind a read in which there
    was a ping, a close frame or a fault.
    """

    is_open: bool
    """The handshake is done."""
    is_leaving: bool
    """Nothing is sent or handed up any more."""

    def __init__(self, stream: Stream, *, mqtt_packets: bool) -> None:
        """`mqtt_packets`: each MQTT packet has a frame of its own; else a frame has what one flush sends."""

    @property
    def frames(self) -> Unframer:
        """Knows of control frames and faults."""

    def unframe_rest(self, rest: bytes) -> None:
        """Handle frames that came in one read with the handshake."""

    def write(self, data: Buffer) -> int:
        """Send in frames; nothing before the handshake and when the connection is over. Returns 0."""
