"""A producer's batches from being sent to being confirmed: their numbers, and sending them again.

With a name the gateway knows the numbers and keeps each message once; without one what was sent twice may be
there twice.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.native.codec import kinds
from penstock.sdk.errors import ClientError, Fenced, from_wire

if TYPE_CHECKING:
    from penstock.protocols.native.codec._gathering import Gathering, Pending
    from penstock.sdk.connection.link import Link
    from penstock.sdk.producing.send_window import SendWindow

__all__ = ["Unconfirmed"]

_CONFIRM: Final = struct.Struct(">QQII")
_UNROUTED: Final = 2
"""The flag of a CONFIRM: no queue and no subscription gets these messages."""
_BATCH: Final = struct.Struct(">QBBHI")
_DUE: Final = struct.Struct(">q")
_NUMBERS: Final = 2**31
"""Numbers of a named producer's messages begin again at 0 from here on."""


class Unconfirmed:
    """Batches by their numbers, in the order in which they were sent."""

    def __init__(self, gathering: Gathering, window: SendWindow, acks: int, *, wraps: bool) -> None:
        """`wraps`: their numbers begin again at 2^31."""
        self._gathering = gathering
        self._send_window = window
        self._acks = acks
        self._wraps = wraps
        self.tells_routed = False
        """The gateway says which messages went nowhere."""
        self._batches: dict[int, Pending] = {}
        self._void: deque[int] = deque()
        """Numbers of frames that were sent behind one that was refused: the gateway refuses them, too."""
        self._empty: list[asyncio.Future[None]] = []
        self.number = 0
        """Of the next message."""

    @property
    def messages(self) -> int:
        """How many there are."""
        return sum(batch.count for batch in self._batches.values())

    def send(self, batch: Pending, link: Link | None, handle: int) -> None:
        """Number a batch and send it; None: when there is a connection."""
        batch.seal(handle, self._numbers_of(batch), self._acks)
        self._batches[batch.sequence] = batch
        if link is not None:
            self._transmit(batch, link, handle)

    def _numbers_of(self, batch: Pending) -> int:
        """Take the next numbers for a batch; the first."""
        if self._wraps and self.number + batch.count > _NUMBERS:
            self.number = 0
        first = self.number
        self.number += batch.count
        return first

    def resend(self, link: Link, handle: int) -> None:
        """There is a new connection: send all again, in their order."""
        self._void.clear()
        for batch in list(self._batches.values()):
            batch.sent_again()
            self._transmit(batch, link, handle)

    def _transmit(self, batch: Pending, link: Link, handle: int) -> None:
        frame = batch.frame
        assert frame is not None  # it is sealed, and not confirmed
        if batch.name and "delay_names" not in link.welcome["capabilities"]:
            self._taken(batch.sequence)
            batch.failed(
                ClientError(
                    "this gateway knows no names of delayed messages",
                    remedy="leave delay_id out and cancel by the MessageId, or update the gateway",
                )
            )
            return
        if not batch.due_ms and not link.packs:
            link.write(frame)
        else:
            records, packed = batch.records, 0
            if link.packs:
                from penstock.protocols.native.codec.packing import code_of, pack

                records, packed = pack(records, link.packs), code_of(link.packs)
            name = batch.name or b""
            head = _BATCH.pack(batch.sequence, self._acks, packed, len(name), batch.count)
            if batch.due_ms:
                link.send(kinds.PRODUCE_AT, handle, head + _DUE.pack(batch.due_ms) + name + records)
            else:
                link.send(kinds.PRODUCE, handle, head + records)
        if self._acks == kinds.ACKS_NONE:
            # Nobody confirms these.
            self._taken(batch.sequence)
            batch.done(0, batch.count, None)

    def _taken(self, sequence: int) -> Pending | None:
        """The batch of that number, which is not under way any more."""
        batch = self._batches.pop(sequence, None)
        if batch is not None:
            self._gathering.under_way -= batch.size
            self._send_window.make()
            if not self._batches:
                empty, self._empty = self._empty, []
                for future in empty:
                    if not future.done():
                        future.set_result(None)
        return batch

    def confirmed(self, payload: bytes) -> None:
        """A CONFIRM frame came."""
        sequence, position, count, flags = _CONFIRM.unpack(payload)
        batch = self._batches.get(sequence)
        if batch is None:
            return
        routed = not flags & _UNROUTED if self.tells_routed and not batch.due_ms else None
        if batch.done(position, count, routed):
            self._taken(sequence)

    def refused(self, told: dict[str, Any], link: Link | None, handle: int) -> ClientError:
        """The error that a REFUSED frame told.

        The numbers of what a producer with a name was refused are the next ones that the gateway takes.
        Each message behind it is refused as well, and sent again by the numbers that it has now.
        """
        error, sequence = from_wire(told), told["sequence"]
        if self._void and self._void[0] == sequence:
            self._void.popleft()
            return error
        behind: list[Pending] = []
        if sequence in self._batches:
            numbers = list(self._batches)
            behind = [self._batches[number] for number in numbers[numbers.index(sequence) + 1 :]]
        batch = self._taken(sequence)
        if batch is not None:
            batch.failed(error)
        if self._wraps and not isinstance(error, Fenced) and error.code != "out_of_sequence":
            self.number = sequence
            self._move_up(behind, link, handle)
        return error

    def _move_up(self, behind: list[Pending], link: Link | None, handle: int) -> None:
        for batch in behind:
            self._void.append(batch.sequence)
            del self._batches[batch.sequence]
        for batch in behind:
            batch.renumber(self._numbers_of(batch))
            self._batches[batch.sequence] = batch
            if link is not None:
                self._transmit(batch, link, handle)

    def fail(self, error: ClientError) -> None:
        """None of them will be confirmed; who does not look at its future hears nothing of it."""
        for sequence in list(self._batches):
            batch = self._taken(sequence)
            if batch is not None:
                batch.failed(error, quietly=True)

    async def confirm_all(self) -> bool:
        """Wait until none is left; whether there was one."""
        if not self._batches:
            return False
        empty: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._empty.append(empty)
        await empty
        return True
