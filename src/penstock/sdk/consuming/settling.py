"""Settling received messages: acknowledge, give back, reject, extend.

Acknowledgements of one turn of the event loop go out together, as ranges of delivery tags.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.native.codec import kinds
from penstock.sdk.checking import number
from penstock.sdk.consuming.columns import Batch
from penstock.sdk.consuming.ranges import RANGE, joined, packed
from penstock.sdk.consuming.receiving import Receiving
from penstock.sdk.consuming.worker_pool import Processing
from penstock.sdk.errors import ClientError, StaleDelivery
from penstock.sdk.message import Message

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from penstock.sdk.addresses import Opening
    from penstock.sdk.client import Client
    from penstock.sdk.connection.link import Link
    from penstock.sdk.consuming.consumer import Source

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["DELAY_MAX_S", "Settling"]

_ACK: Final = struct.Struct(">IBBH")
_NACK: Final = struct.Struct(">iBBH")
DELAY_MAX_S: Final = (2**31 - 1) // 1000


class Settling(Receiving[T]):
    """The half of a consumer that settles; the other one sets what is here."""

    client: Client
    handle: int
    source: Source[T]
    """The owner of messages that are ours."""
    _opening: Opening
    _link: Link | None
    _loop: asyncio.AbstractEventLoop
    _acks: list[tuple[int, int]]
    """Tags that are acknowledged, and not sent yet."""

    @property
    def place(self) -> str:
        """A description of its source, for error texts."""
        return self._opening.name

    def is_stale(self, message: Message[T]) -> bool:
        """Whether the message is not ours any more."""
        return message.source is not self.source

    async def ack(self, messages: Message[T] | Iterable[Message[T]], *, durable: bool = False) -> None:
        """They are done.

        Args:
            durable: Wait until the gateway has that on the disk; otherwise it is there within 0.1 s.

        Raises:
            StaleDelivery: one of them is not ours any more; none is acknowledged.

        """
        if durable:
            link = await self.client.link()
            self._note_acks(self.ranges(messages))
            answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
            ranges, self._acks = self._acks, []
            link.send(
                kinds.ACK, self.handle, _ACK.pack(link.number(answer), 0, 0, 0) + packed(joined(ranges))
            )
            await answer
        else:
            self._note_acks(self.ranges(messages))

    def _note_acks(self, ranges: list[tuple[int, int]]) -> None:
        """They are sent with others of this turn of the loop."""
        acks = self._acks
        if not acks:
            self.client.check_here()
            self._acks = ranges
            self._loop.call_soon(self._send_acks, self.handle)
        elif len(ranges) == 1 and ranges[0][0] == acks[-1][1] + 1:
            # One after the other, as they came.
            acks[-1] = acks[-1][0], ranges[0][1]
        else:
            acks += ranges

    async def ack_cumulative(self, message: Message[T]) -> None:
        """This one and all before it are done; for subscriptions where one consumer gets everything."""
        self.ranges(message)
        kind = self._opening.fields.get("kind", "shared")
        if kind not in ("exclusive", "failover"):
            raise ClientError(
                f"the {kind} {self.place} has no cumulative acknowledgements",
                remedy="acknowledge messages one by one, or a batch; or subscribe as exclusive or failover",
            )
        self.client.check_here()
        if self._link is not None:
            self._send_acks(self.handle)
            self._link.send(kinds.ACK, self.handle, _ACK.pack(0, 1, 0, 0) + RANGE.pack(0, message.tag))

    async def nack(
        self, messages: Message[T] | Iterable[Message[T]], *, delay_s: float | None = None
    ) -> None:
        """They come again: after `delay_s`, at most 24 days, or after the subscription's backoff."""
        if delay_s is not None:
            delay_s = min(number("delay_s", delay_s, 0, float("inf")), DELAY_MAX_S)
        ranges = joined(self.ranges(messages))
        self.client.check_here()
        if self._link is not None:
            delay_ms = -1 if delay_s is None else int(delay_s * 1000)
            self._link.send(kinds.NACK, self.handle, _NACK.pack(delay_ms, 0, 0, 0) + packed(ranges))

    async def reject(self, messages: Message[T] | Iterable[Message[T]]) -> None:
        """They leave the subscription undone: to its dead-letter topic, when it has one."""
        ranges = joined(self.ranges(messages))
        self.client.check_here()
        if self._link is not None:
            self._link.send(kinds.NACK, self.handle, _NACK.pack(0, 1, 0, 0) + packed(ranges))

    def ranges(self, messages: Message[T] | Iterable[Message[T]]) -> list[tuple[int, int]]:
        """(first, last) of runs of the messages' delivery tags, in their order. Raises StaleDelivery,
        TypeError, ValueError: they are no messages, or of another consumer."""
        source = self.source
        if isinstance(messages, Message):
            if messages.source is not source:
                raise self._stale(messages)
            return [(messages.tag, messages.tag)]
        if isinstance(messages, Batch):
            if messages.source is not source:
                raise self._stale(messages[0])
            return messages.tag_ranges
        some = list(messages) if isinstance(messages, Iterable) else [messages]
        for message in some:
            if not isinstance(message, Message):
                raise TypeError(f"messages are settled as they were received, not {type(message).__name__}")
            if message.source is not source:
                raise self._stale(message)
        return [(message.tag, message.tag) for message in some]

    def _stale(self, message: Message[T]) -> Exception:
        given_by = message.source.consumer
        if given_by is not self:
            return ValueError(
                f"the message at {message.id} came from {given_by.place}: it is settled there, not by "
                f"{self.place}"
            )
        return StaleDelivery(
            f"the message at {message.id} of {self.place} is not this consumer's any more",
            remedy="drop it: it comes again, flagged as redelivered",
        )

    def _send_acks(self, handle: int) -> None:
        ranges, self._acks = self._acks, []
        if ranges and self._link is not None:
            payload = _ACK.pack(0, 0, 0, 0) + packed(joined(ranges))
            self._link.send(kinds.ACK, handle, payload)

    async def extend(self, messages: Message[T] | Iterable[Message[T]]) -> None:
        """More time for them: the subscription's `ack_timeout_s` begins anew.

        Raises:
            StaleDelivery: one of them is not ours any more, for it took too long; it comes again.
            ClientError: the connection is lost.

        """
        ranges = joined(self.ranges(messages))
        for at in range(0, len(ranges), 1000):
            some = ranges[at : at + 1000]
            count = sum(last - first + 1 for first, last in some)
            link = await self.client.link()
            told = await link.request("extend", handle=self.handle, ranges=some)
            if told["extended"] < count:
                raise StaleDelivery(
                    f"{count - told['extended']} of {count} messages of {self.place} are not out any more",
                    remedy="nothing is left to do for those that were settled; those that took too long come "
                    "again: extend sooner than ack_timeout_s",
                )

    def processing(self, message: Message[T]) -> AbstractAsyncContextManager[Message[T]]:
        """See `Message.process`."""
        return Processing(message)
