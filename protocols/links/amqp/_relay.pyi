"""Makes of what a source delivers what a target is sent: a read at a time. See `_relay.pyx`."""

from typing_extensions import Buffer

from penstock.protocols.links.amqp._header_edit import HeaderEdit

class Relay:
    """From one channel of a source to one of a target. A source's deliveries come from one consumer."""

    left: int
    """Messages that may still pass; the rest is skipped, and not settled. -1 = all."""
    out: bytes
    """The frames for the target that came of the last `take`."""
    others: list[tuple[int, bytes]]
    """The frames of the last `take` that are not of deliveries: kind and whole frame. Without heartbeats."""
    runs: list[tuple[int, int]]
    """The messages of the last `take` that pass, in order: first delivery tag, and how many follow on it."""
    dropped: list[int]
    """The delivery tags of the last `take` of those that `change` let not pass."""

    def __init__(
        self,
        *,
        channel: int,
        publish: bytes | None = None,
        exchange: bytes | None = None,
        key: bytes | None = None,
        change: HeaderEdit | None = None,
        left: int = -1,
    ) -> None:
        """A relay of a connection that is open.

        Args:
            channel: At the target.
            publish: The frame of basic.publish for each message; None: it is made of `exchange` and `key`.
            exchange: As a short string, size u8 and bytes; None: each message's own.
            key: The same.
            change: Of each message's header; it may keep messages out.
            left: See the attribute.

        """
    def take(self, data: Buffer) -> int:
        """Take the whole frames, and of a delivery its first two together; how many bytes were used.

        The others belong in front of the next bytes.

        Raises:
            ValueError: they are no frames of AMQP, or the header of a message is damaged.
            LinkError: a changed header is larger than the target takes.

        """
