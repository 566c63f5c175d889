"""Several consumers as one: what a retrying consumer and one of many topics have in common."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, overload

from penstock.sdk.consuming.receiving import Receiving
from penstock.sdk.errors import Closed
from penstock.sdk.message import Message

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from penstock.sdk.consuming.consumer import Consumer

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["CombinedConsumer"]


class CombinedConsumer(Receiving[T]):
    """See the module. Subclasses open and close what is in `_consumers`, and say who is asked first."""

    def __init__(self, name: str) -> None:
        """`name`: what it consumes, in words."""
        self._name = name
        self._consumers: list[Consumer[T]] = []
        self._news: asyncio.Future[None] | None = None
        """Of who waits: done when `_consumers` are others."""

    def _there(self) -> list[Consumer[T]]:
        """The consumers that there are now. Raises ClientError: it cannot go on."""
        return self._consumers

    def _in_turn(self) -> list[Consumer[T]]:
        """The same, whose messages go first in front; asked once per receiving."""
        raise NotImplementedError

    def _changed(self) -> None:
        """`_consumers` are others, or it was stopped: who waits looks again."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def stop(self) -> None:
        """See `Receiving.stop`."""
        self.stopped = True
        for consumer in self._consumers:
            consumer.stop()
        self._changed()

    # Receiving

    @overload
    async def receive(self) -> Message[T]: ...
    @overload
    async def receive(self, timeout_s: float | None) -> Message[T] | None: ...
    async def receive(self, timeout_s: float | None = None) -> Message[T] | None:
        """The next message; None: none came in time. Raises Closed, ClientError."""
        found = await self.receive_many(1, timeout_s)
        return found[0] if found else None

    async def receive_many(self, most: int = 1000, timeout_s: float | None = None) -> list[Message[T]]:
        """At least one message and what else is here, `most` at most; [] when none came in time."""
        found: list[Message[T]] = []
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrival()
        except TimeoutError:
            return found
        for consumer in self._in_turn():
            if consumer.waiting and len(found) < most:
                found += await consumer.receive_many(most - len(found))
        return found

    async def _arrival(self) -> None:
        """Wait until one of the consumers has something. Raises Closed, ClientError."""
        while not any(consumer.waiting for consumer in self._there()):
            if self.stopped:
                raise Closed(f"the consumer of {self._name} was stopped or closed")
            if self._news is None or self._news.done():
                self._news = asyncio.get_running_loop().create_future()
            arrivals: list[tuple[Consumer[T], asyncio.Future[None]]] = []
            try:
                for consumer in self._consumers:
                    arrivals.append((consumer, consumer.arrival()))
                futures = [self._news, *(one for _, one in arrivals)]
                await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for consumer, arrival in arrivals:
                    consumer.leave(arrival)

    async def __aiter__(self) -> AsyncIterator[Message[T]]:
        async for found in self.batches(1):
            for message in found:
                yield message

    # Settling

    async def ack(self, messages: Message[T] | Iterable[Message[T]], *, durable: bool = False) -> None:
        """They are done; see `Consumer.ack`."""
        for consumer, some in self._by_consumer(messages):
            await consumer.ack(some, durable=durable)

    async def nack(
        self, messages: Message[T] | Iterable[Message[T]], *, delay_s: float | None = None
    ) -> None:
        """They come again as they are; see `Consumer.nack`."""
        for consumer, some in self._by_consumer(messages):
            await consumer.nack(some, delay_s=delay_s)

    def _by_consumer(
        self, messages: Message[T] | Iterable[Message[T]]
    ) -> list[tuple[Consumer[T], list[Message[T]]]]:
        """The messages of each consumer. Raises StaleDelivery; ValueError: one was received elsewhere."""
        found: dict[Consumer[T], list[Message[T]]] = {}
        for message in [messages] if isinstance(messages, Message) else messages:
            found.setdefault(message.source.consumer, []).append(message)
        for consumer, some in found.items():
            consumer.ranges(some)  # stale ones, those of a topic that is gone among them, are told here
            if consumer not in self._consumers:
                raise ValueError(
                    f"the message at {some[0].id} came from {consumer.place}: it is settled there, not by "
                    f"the consumer of {self._name}"
                )
        return list(found.items())
