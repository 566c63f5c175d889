"""The scanner of one AMQP connection: whole reads in, records out, the rest as events. See `_codec.pyx`."""

from typing import Any, Final

from penstock.log_core.batch._appender import Appender
from penstock.protocols.amqp.codec._channel import Channel
from penstock.protocols.net._stream import QuickReader
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.router.routes._routes import RouteTable

METHOD: Final = 1
PUBLISH: Final = 2
REFUSED: Final = 3
UNKNOWN_TAG: Final = 4
TOO_LARGE: Final = 5
FAULT: Final = 6
"""The first element of an event; the rest is listed in `_codec.pyx`."""

Event = tuple[Any, ...]

class Codec(QuickReader):
    """Scans reads, owns the table of open channels."""

    out: OutBuffer
    frame_max: int
    """Largest frame taken, in bytes with header and end (8 more are forgiven, as RabbitMQ does)."""
    message_max: int
    published: int
    """Messages that came whole and were not refused for their exchange."""
    size_sum: int
    """Bytes of the bodies of all of them."""
    stop_publishes: bool
    """Input in front of the next basic.publish is handled, and no more."""
    stopped: bool
    """That one has come; it waits in the input."""

    def __init__(self, out: OutBuffer, frame_max: int, message_max: int) -> None: ...
    @property
    def size_counts(self) -> tuple[int, ...]:
        """Publishes by the size of their body: see `info.SIZES`; what is above the last one last."""
    def open(self, table: RouteTable, appender: Appender, user: bytes) -> None:
        """After login: where publishes go. `user` is what a message's user-id must be."""

    def add_channel(self, channel: Channel) -> None:
        """Frames of the channel's number are its own from now on."""
    def drop_channel(self, channel: Channel) -> None:
        """Forget the channel, with the message under way on it."""

    def channel(self, number: int) -> Channel | None:
        """None: it is not open."""
    @property
    def channel_count(self) -> int:
        """How many are open."""
    def all_channels(self) -> list[Channel]:
        """Those that are open."""
    def release(self, channel: Channel) -> None:
        """Forget the message under way on `channel`."""

    held_max: int
    """Most bytes of messages under way on all channels of the connection."""
    def hold(self, n: int) -> bool:
        """Count `n` more bytes of messages under way; False, and nothing is counted, when it is too much."""

    def let_go(self, n: int) -> None:
        """Bytes counted with `hold` are under way no more."""

    def feed(self, buffer: bytearray, start: int, size: int) -> None:
        """Scan buffer[start:size] with `next`. The buffer must not change until `next` gave None."""

    def next(self) -> Event | None:
        """The next event in the order of the stream, or None when no complete frame is left.

        Raises:
            LogError: the log failed; nothing of the message was kept.

        """

    @property
    def consumed(self) -> int:
        """Where in the buffer the first incomplete frame begins."""

    def take_waits(self) -> tuple[int, int]:
        """(LSN that must be written, LSN that must be synced) for the confirms of this read; 0 = none."""

    def confirm(self, written: int, synced: int) -> bool:
        """Encode the acks of all publishes that are there now, per channel; True when there were some."""

    def expect_refusal(self, channel: Channel) -> None:
        """The next publish of a confirming channel was refused by a queue: it is nacked in its turn."""

    def expect_confirm(self, channel: Channel, lsn: int, sync: bool) -> None:
        """Number a publish of a confirming channel that went through Python."""

    def feed_starved(self) -> None:
        """After a read: wake the queues of consumers whose credit came back."""
