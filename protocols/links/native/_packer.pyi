"""Makes of what a source delivers what a target is sent: a read at a time. See `_packer.pyx`."""

from typing_extensions import Buffer

class OutOfOrder(Exception):
    """A position came that is not above all before it."""

class Packer:
    """From a consumer of a source to a numbered producer of a target."""

    left_out: int
    """Messages that the target had before; they are settled with those behind them."""
    frames: list[bytes]
    """The PRODUCE frames that came of the last `take`."""
    batches: list[tuple[int, int, int]]
    """The batches in them: number, last tag and count."""
    others: list[tuple[int, int, bytes]]
    """The frames of the last `take` that are not deliveries: kind, id and payload."""
    tag: int
    """The last tag that came."""

    def __init__(self, handle: int, frame_max: int, known: int) -> None:
        """A packer of a connection that is open.

        Args:
            handle: Of the producer.
            frame_max: The most bytes of a frame that the target takes, but one message always goes.
            known: The target has the messages up to this position.

        """

    def take(self, data: Buffer) -> int:
        """Take the whole frames; how many bytes were used. The others belong in front of the next bytes.

        Raises:
            ValueError: they are no frames, or a delivery is damaged.
            OutOfOrder: of the source's messages.

        """

    def granted(self) -> tuple[int, int]:
        """Messages and bytes that came since the last call; bytes as CREDIT counts them."""
