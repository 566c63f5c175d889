"""Messages of AMQP 1.0 on their way through a shovel. See `_messages.pyx`."""

from collections.abc import Callable

from typing_extensions import Buffer

class Messages:
    """Whole messages, in order. Its length is how many have not gone."""

    def append(self, payload: bytes) -> None:
        """Put a message behind the others."""
    def clear(self) -> None:
        """Forget the whole messages; the part of one that is under way stays."""
    def payloads(self) -> list[bytes]:
        """Take a look at the messages that have not gone."""
    def pop(self) -> bytes:
        """The first one that has not gone; it is gone now. Raises IndexError: there is none."""
    def keep(self, count: int) -> None:
        """Forget all but the first `count` of those that have not gone."""
    def change(self, function: Callable[[bytes], bytes], *, every: bool) -> None:
        """Change the messages that have not gone.

        Args:
            function: From a message to another. Its errors pass; do not use the messages then.
            every: Whether it changes ordinary messages, too. It is called in any case if one of the messages
                has delivery annotations, or sections that are not well-formed.

        """
    def __len__(self) -> int: ...

class Arriving:
    """Takes the transfers out of the reads of a connection that has one link."""

    messages: Messages
    """The whole messages since `begin`."""
    runs: list[tuple[int, int]]
    """Of these messages, in order: delivery-id of the first, and how many follow on it, with it."""
    frames: int
    """Transfers that the last `take` took."""

    def __init__(self, *, frame_max: int) -> None:
        """`frame_max`: bytes of a frame."""
    def begin(self) -> None:
        """Forget the messages so far; parts of the next one stay."""
    def take(self, data: Buffer, at: int) -> int:
        """Take ordinary transfers from `at` on; where the first frame begins that is none, or is not whole.

        Raises:
            ValueError: `at` is not inside the data.

        """
    def part(self, number: int, *, more: bool, aborted: bool, payload: bytes) -> None:
        """Take another transfer. `number`: its delivery-id, which counts for the first one of a message."""

class Departing:
    """Writes messages as transfers of one link."""

    count: int
    """Messages that the last `put` wrote."""
    frames: int
    """And transfers."""

    def __init__(self, *, channel: int, handle: int, frame_max: int, settled: bool) -> None:
        """`frame_max`: bytes of a frame, 512 at least (ValueError); `settled`: nobody waits for outcomes."""
    def put(self, messages: Messages, number: int, credit: int, window: int) -> bytes:
        """The transfers of the first messages, which are gone then.

        Args:
            messages: Those that have not gone.
            number: The delivery-id of the first one, below 2^32. The others follow on it, modulo 2^32.
            credit: Messages at most.
            window: Transfers at most. A message that needs more of them stays.

        """
