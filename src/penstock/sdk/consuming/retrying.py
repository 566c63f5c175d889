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
which a lost connection makes the message come twice: flagged as redelivered when the acknowledgement was
lost, not flagged when the answer to the publishing was, which is then repeated.

Its headers say what happened to it: `x-retries` how often it was given back, `x-first-topic` and
`x-first-position` where it was published at first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.sdk.checking import FOREVER_S, number, whole
from penstock.sdk.consuming.combined import CombinedConsumer
from penstock.sdk.message import REPLY_TO, Message, is_reserved

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import TypeVar

    from penstock.sdk.addresses import Start
    from penstock.sdk.client import Client
    from penstock.sdk.consuming.consumer import Consumer
    from penstock.sdk.producing.producer import Producer

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

    def __post_init__(self) -> None:
        """Raises TypeError, ValueError: one of them cannot be."""
        if not (isinstance(self.delay_s, tuple | list) and len(self.delay_s) == 2):
            raise TypeError(
                f"delay_s is a pair, the first and the longest wait: (1, 60), not {self.delay_s!r}"
            )
        for seconds in self.delay_s:
            number("delay_s", seconds, 0, FOREVER_S)
        whole("max", self.max, 0, FOREVER_S)

    def delay_of(self, retries: int) -> float:
        """How long one waits that was given back so often before."""
        least, most = self.delay_s
        return min(least * 2.0 ** min(retries, 40), most)


class RetryingConsumer(CombinedConsumer[T]):
    """Consumers of a topic and of its retry topic as one. Made by `Client.retrying`.

    `nack` gives messages back as they are, uncounted.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        subscription: str,
        retry: Retry,
        start: Start,
        options: dict[str, Any],
    ) -> None:
        super().__init__(f"subscription {subscription!r} of topic {topic!r}, with retries")
        self.client = client
        self.retry = retry
        self._topic = topic
        later = retry.topic or f"{topic}-{subscription}-RETRY"
        self._later = client.producer(later)
        self._dead = client.producer(retry.dead_letter or f"{topic}-{subscription}-DLQ")
        self._consumers = [
            client.subscribe(topic, subscription, start=start, **options),
            client.subscribe(later, subscription, start="earliest", **options),
        ]

    def _in_turn(self) -> list[Consumer[T]]:
        """A message that comes again is first."""
        return self._consumers[::-1]

    # Opening and closing

    async def open(self) -> Self:
        """Register with the gateway. Raises Busy, ClientError."""
        self.stopped = False
        opened: list[Consumer[T] | Producer] = []
        try:
            # The producers make their topics.
            for producer in (self._later, self._dead):
                opened.append(await producer.open())
            for consumer in self._consumers:
                opened.append(await consumer.open())
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
        for consumer in self._consumers:
            await consumer.close()
        for producer in (self._later, self._dead):
            await producer.close()

    # Settling

    async def retry_later(self, message: Message[T], *, delay_s: float | None = None) -> None:
        """Have it come again after `delay_s`, or after the wait that its tries so far make.

        Raises:
            StaleDelivery: it is not ours any more; it comes again anyway.
            ClientError: it could not be put off; it is ours still.

        """
        consumer = message.source.consumer
        consumer.ranges(message)
        retries = retries_of(message)
        if retries >= self.retry.max:
            await self._bury(message)
            return
        headers, properties = self._carried(message, retries + 1)
        delay = self.retry.delay_of(retries) if delay_s is None else delay_s
        await self._later.send(message.body, deliver_after_s=delay, headers=headers, **properties)
        await consumer.ack(message)

    async def reject(self, messages: Message[T] | Iterable[Message[T]]) -> None:
        """They go to the dead-letter topic at once: more tries would not help, as of a body that is none.

        Raises StaleDelivery, ClientError.
        """
        for _, some in self._by_consumer(messages):
            for message in some:
                await self._bury(message)

    async def _bury(self, message: Message[T]) -> None:
        headers, properties = self._carried(message, retries_of(message))
        async with self.client.transaction() as tx:
            tx.send(message.body, to=self._dead, headers=headers, properties=properties)
            tx.ack(message)

    def _carried(self, message: Message[T], retries: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Headers and properties that it goes on with."""
        headers: dict[str, Any] = {
            FIRST_TOPIC: self._topic,
            FIRST_POSITION: message.position,
            **{name: value for name, value in message.headers.items() if not is_reserved(name)},
            RETRIES: retries,
        }
        properties = {name: value for name, value in message.properties.items() if name not in _OURS}
        if str(properties.get("reply_to", "")).startswith(REPLY_TO):
            del properties["reply_to"]  # who waits for that answer waits on an AMQP channel
        return headers, properties


def retries_of(message: Message[Any]) -> int:
    """How often it was given back to its retry topic."""
    found = message.headers.get(RETRIES)
    return found if isinstance(found, int) else 0
