"""A link's place in a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.protocols.amqp10.channel.refusals import LinkError
from penstock.router.queues.stream_start import find_offset, stream_start

if TYPE_CHECKING:
    from penstock.subscriptions.streams.stream import Reader, Stream

__all__ = ["StreamSource"]


class StreamSource:
    """See the module."""

    def __init__(self, stream: Stream, offset: object, now_ms: int) -> None:
        """Raises LinkError: the offset names no place."""
        start = stream_start(stream, offset, now_ms)
        if start is None:
            raise LinkError("amqp:invalid-field", f"{offset!r} is no offset of a stream")
        self._stream = stream
        self._start = start

    def find(self, found: Callable[[Reader | None], None]) -> None:
        """Call `found` with a reader at the place, perhaps at once; None: it could not be looked for."""
        stream = self._stream
        find_offset(
            self._start,
            lambda offset: found(None if offset is None or stream.deleted else stream.reader(offset)),
        )
