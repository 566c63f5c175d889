"""Messages that were given out together: their bodies, positions or times as lists, without making a message.

A message that is made costs as much as five bodies: who needs no more than these has a batch for a fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, overload

from penstock.sdk.message import Message

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from penstock.protocols.native.codec._inbox import Columns
    from penstock.sdk.consuming.consumer import Source

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Batch"]


class Batch(Sequence[Message[T]]):
    """A sequence of messages, in the order of the subscription; they are made when one is asked for.

    `Consumer.ack`, `nack` and `reject` take it as a whole. Holds the frames it came in while it lives.
    """

    def __init__(self, columns: Columns[Message[T]]) -> None:
        self._columns = columns
        self.source: Source[T] = columns.source
        """See `Message.source`."""

    @cached_property
    def _messages(self) -> list[Message[T]]:
        return self._columns.records()

    @cached_property
    def bodies(self) -> list[bytes]:
        """Each message's body."""
        return self._columns.bodies()

    @cached_property
    def positions(self) -> list[int]:
        """Where each is in the log."""
        return self._columns.positions()

    @cached_property
    def timestamps_ms(self) -> list[int]:
        """When each was appended, in milliseconds since the epoch."""
        return self._columns.timestamps_ms()

    @property
    def values(self) -> list[T]:
        """Each message's `value`. Raises what the first bad one raises."""
        decode = self.source.consumer.decode
        return [decode(body) for body in self.bodies]

    @property
    def tag_ranges(self) -> list[tuple[int, int]]:
        """(first, last) of the runs of their delivery tags."""
        return self._columns.ranges()

    @property
    def stale(self) -> bool:
        """See `Message.stale`."""
        return self.source is not self.source.consumer.source

    def __len__(self) -> int:
        return self._columns.count

    @overload
    def __getitem__(self, index: int) -> Message[T]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message[T]]: ...
    def __getitem__(self, index: int | slice) -> Message[T] | list[Message[T]]:
        return self._messages[index]

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} messages>"
