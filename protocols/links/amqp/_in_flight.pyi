"""Messages that are published and not confirmed, by the tags of their source. See `_in_flight.pyx`."""

from typing_extensions import Buffer

class InFlight:
    """Messages in the order in which they were published; the channel of the target confirms."""

    others: list[tuple[int, bytes]]
    """The frames of the last `take` that confirm nothing: kind and whole frame. Without heartbeats."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def published(self, first_tag: int, count: int) -> None:
        """The next messages were published: those of so many tags from the first one on."""
    def take(self, data: Buffer) -> int:
        """Take the whole frames of a read from the target; how many bytes were used.

        The others belong in front of the next bytes.

        Raises:
            ValueError: they are no frames of AMQP.

        """
    def accepted(self, first: int, last: int) -> None:
        """Messages `first` to `last`, counted from 1, are confirmed, in words of another protocol."""
    def settled(self) -> tuple[int, int]:
        """The last tag up to which all are confirmed since the last call, and how many these are; or 0, 0."""
