"""A batch of a producer: sent, and kept until it is confirmed."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

from penstock.protocols.native import kinds
from penstock.protocols.native._records import encode_produce, encode_records, message_ids
from penstock.sdk.message import PLAIN, MessageId

if TYPE_CHECKING:
    from penstock.sdk.errors import ClientError
    from penstock.sdk.link import Link

__all__ = ["Pending", "Sent"]

_BATCH: Final = struct.Struct(">QBBHI")
_DUE: Final = struct.Struct(">q")

Sent = asyncio.Future[MessageId]


class Pending:
    """Sent, and not confirmed yet."""

    __slots__ = ("bodies", "count", "due_ms", "future", "futures", "props", "sequence", "size")

    def __init__(
        self,
        sequence: int,
        bodies: list[bytes],
        props: list[bytes] | None,
        futures: list[Sent] | None,
        future: asyncio.Future[list[MessageId]] | None,
        size: int,
        due_ms: int,
    ) -> None:
        self.sequence = sequence
        self.bodies = bodies
        self.props = props
        self.count = len(bodies)
        self.futures = futures
        self.future = future
        self.size = size
        self.due_ms = due_ms

    def send(self, link: Link, handle: int, acks: int) -> None:
        """Send it."""
        if not self.due_ms and not link.packs:
            link.write(encode_produce(handle, self.sequence, acks, self.bodies, self.props, PLAIN))
            return
        records, packed = encode_records(self.bodies, self.props, PLAIN), 0
        if link.packs:
            from penstock.protocols.native.packing import code_of, pack

            records, packed = pack(records, link.packs), code_of(link.packs)
        head = _BATCH.pack(self.sequence, acks, packed, 0, self.count)
        if self.due_ms:
            link.send(kinds.PRODUCE_AT, handle, head + _DUE.pack(self.due_ms) + records)
        else:
            link.send(kinds.PRODUCE, handle, head + records)

    def done(self, position: int) -> None:
        """It is confirmed: its first message is at `position`."""
        if self.futures is not None:
            for future, id in zip(self.futures, message_ids(position, self.count, self.due_ms), strict=True):
                if not future.done():
                    future.set_result(id)
        if self.future is not None and not self.future.done():
            self.future.set_result(message_ids(position, self.count, self.due_ms))

    def failed(self, error: ClientError, *, quietly: bool = False) -> None:
        """It was refused; `quietly`: whoever does not look at its future hears nothing of it."""
        for future in (*(self.futures or ()), self.future):
            if future is not None and not future.done():
                future.set_exception(error)
                if quietly:
                    future.exception()
