"""Retry topics: what cannot be handled now comes again later, counted, out of the way of the rest.

    retry = penstock.Retry((1, 300), max=5)
    async with client.retrying("orders", "billing", retry) as consumer:
        async for message in consumer:
            async with message.process():       # raises: it comes again after 1 s, then 2 s, ... 300 s
                ...

A message that is given back so is published to the subscription's retry topic, for later, and acknowledged.
The consumer reads that topic, too, by a subscription of the same name and kind. After `max` tries it goes to
the dead-letter topic, in one atomic unit with its acknowledgement. Others of the topic are not held up, and
what waits is in the log, not in a consumer. Between publishing for later and acknowledging lies a moment in
which a lost connection makes the message come twice, the second time flagged as redelivered.

Its headers say what happened to it: `x-retries` how often it was given back, `x-first-topic` and
`x-first-position` where it was published at first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast, overload

from penstock.sdk.message import Message
from penstock.sdk.receiving import Receiving

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import TypeVar

    from penstock.sdk.client import Client
    from penstock.sdk.consumer import Consumer
    from penstock.sdk.places import Start
    from penstock.sdk.producer import Producer

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Retry", "RetryingConsumer", "retries_of"]

RETRIES: Final = "x-retries"
FIRST_TOPIC: Final = "x-first-topic"
FIRST_POSITION: Final = "x-first-position"
_OURS: Final = ("headers", "delivery_mode", "expiration", "user_id")
"""Properties that are said otherwise, or that a message which waits must not have."""


@dataclass(frozen=True, slots=True)
class Retry:
    """When what is given back comes again, and where it waits."""

    delay_s: tuple[float, float] = (1.0, 60.0)
    """The first wait, which doubles each time, and the longest one."""
    max: int = 16
    """Tries after the first; then it goes to the dead-letter topic."""
    topic: str = ""
    """"": TOPIC-SUBSCRIPTION-RETRY. It is made when it is not there."""
    dead_letter: str = ""
    """"": TOPIC-SUBSCRIPTION-DLQ. It is made when it is not there."""

    def delay_of(self, retries: int) -> float:
        """How long one waits that was given back so often before."""
        least, most = self.delay_s
        return min(least * 2.0 ** min(retries, 40), most)


class RetryingConsumer(Receiving[T]):
    """Consumers of a topic and of its retry topic as one. Made by `Client.retrying`."""

    def __init__(
        self,
        client: Client,
        topic: str,
        subscription: str,
        retry: Retry,
        start: Start,
        options: dict[str, Any],
    ) -> None:
        self.client = client
        self.retry = retry
        self._topic = topic
        later = retry.topic or f"{topic}-{subscription}-RETRY"
        self._later = client.producer(later)
        self._dead = client.producer(retry.dead_letter or f"{topic}-{subscription}-DLQ")
        consumers = (
            client.subscribe(topic, subscription, start=start, **options),
            client.subscribe(later, subscription, start="earliest", **options),
        )
        self._consumers = cast("tuple[Consumer[T], Consumer[T]]", consumers)

    # Opening and closing

    async def open(self) -> Self:
        """Register with the gateway. Raises Busy, ClientError."""
        self.stopped = False
        opened: list[Consumer[T] | Producer] = []
        try:
            # The producers make their topics.
            for one in (self._later, self._dead, *self._consumers):
                opened.append(await one.open())
        except BaseException:
            for one in reversed(opened):
                await one.close()
            raise
        for consumer in self._consumers:
            consumer.give_back = self.retry_later
        return self

    async def close(self) -> None:
        """Give back what was not acknowledged. Idempotent."""
        self.stopped = True
        for one in (*self._consumers, self._later, self._dead):
            await one.close()

    def stop(self) -> None:
        """Give out nothing more; see `Consumer.stop`."""
        self.stopped = True
        for consumer in self._consumers:
            consumer.stop()

    # Receiving

    @overload
    async def receive(self) -> Message[T]: ...
    @overload
    async def receive(self, timeout_s: float | None) -> Message[T] | None: ...
    async def receive(self, timeout_s: float | None = None) -> Message[T] | None:
        """The next message, of what comes again first; None: none in time. Raises Closed, ClientError."""
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
        for consumer in reversed(self._consumers):
            if consumer.waiting and len(found) < most:
                found += await consumer.receive_many(most - len(found))
        return found

    async def _arrival(self) -> None:
        """Wait until one of the consumers has something. Raises Closed, ClientError."""
        while not any(consumer.waiting for consumer in self._consumers):
            arrivals: list[tuple[Consumer[T], asyncio.Future[None]]] = []
            try:
                for consumer in self._consumers:
                    arrivals.append((consumer, consumer.arrival()))
                await asyncio.wait([one for _, one in arrivals], return_when=asyncio.FIRST_COMPLETED)
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
        """They come again as they are, uncounted; see `Consumer.nack`."""
        for consumer, some in self._by_consumer(messages):
            await consumer.nack(some, delay_s=delay_s)

    def _by_consumer(
        self, messages: Message[T] | Iterable[Message[T]]
    ) -> list[tuple[Consumer[T], list[Message[T]]]]:
        some = [messages] if isinstance(messages, Message) else list(messages)
        found = []
        for consumer in self._consumers:
            own = [message for message in some if message.source.consumer is consumer]
            if own:
                found.append((consumer, own))
        return found

    async def retry_later(self, message: Message[T], *, delay_s: float | None = None) -> None:
        """Have it come again after `delay_s`, or after the wait that its tries so far make.

        Raises:
            StaleDelivery: it is not ours any more; it comes again anyway.
            ClientError: it could not be put off; it is ours still.

        """
        consumer = message.source.consumer
        consumer.ranges(message)
        retries = retries_of(message)
        headers: dict[str, Any] = {
            FIRST_TOPIC: self._topic,
            FIRST_POSITION: message.position,
            **message.headers,
            RETRIES: retries + 1,
        }
        properties = {name: value for name, value in message.properties.items() if name not in _OURS}
        if retries >= self.retry.max:
            headers[RETRIES] = retries
            async with self.client.transaction() as tx:
                tx.send(message.body, to=self._dead, headers=headers, properties=properties)
                tx.ack(message)
            return
        delay = self.retry.delay_of(retries) if delay_s is None else delay_s
        await self._later.send(message.body, deliver_after_s=delay, headers=headers, **properties)
        await consumer.ack(message)


def retries_of(message: Message[Any]) -> int:
    """How often it was given back to its retry topic."""
    found = message.headers.get(RETRIES)
    return found if isinstance(found, int) else 0
