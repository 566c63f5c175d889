"""The scanner of one connection of AMQP 1.0. See `_scanner.pyx` for what it takes."""

from penstock.log_core.batch._appender import Appender
from penstock.protocols.amqp10.channel._core import ChannelCore, ConnectionCore
from penstock.router.routes._routes import RouteTable

class Scanner(ConnectionCore):
    """Takes the ordinary frames of a read, once the connection is open."""

    table: RouteTable
    """Where messages go, for the user who is logged in."""
    frame_most: int
    """Bytes of a frame of the peer."""
    stop_transfers: bool
    """Frames in front of the next transfer are handled, and no more."""

    def open_scanner(self, appender: Appender, user: bytes) -> None:
        """After open: `user` is what a message's user-id must be."""

    def add_channel(self, channel: ChannelCore) -> None:
        """Frames of this channel may be taken from now on."""

    def drop_channel(self, number: int) -> None:
        """They may not any more."""

    def begin_read(self) -> int:
        """Bytes of the read that were taken before `receive` was called with it."""

    def scan(self, buffer: bytearray, at: int, size: int) -> int:
        """Take the ordinary frames of buffer[at:size]; where the first one begins that is not taken."""
