"""One subscription's name on many topics, consumed as one: a list of them, or all whose names match.

async with client.subscribe_topics(["orders", "returns"], "billing") as consumer: ...
async with client.subscribe_topics(re.compile(r"orders\\..+"), "billing") as consumer: ...

Each topic has a subscription of its own, so what is settled, sought or lags is a matter of each. Order is
that of each topic; among topics there is none, and each in turn is asked first. With a pattern, the names of
the topics are asked for every `look_s`; one that appears is read from its beginning, one that is deleted is
left out.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.sdk.checking import FOREVER_S, number
from penstock.sdk.consuming.combined import CombinedConsumer
from penstock.sdk.errors import ClientError

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import TypeVar

    from penstock.sdk.addresses import Start
    from penstock.sdk.client import Client
    from penstock.sdk.consuming.consumer import Consumer
    from penstock.sdk.message import Message

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["TopicsConsumer"]

logger: Final = logging.getLogger("penstock.sdk")


class TopicsConsumer(CombinedConsumer[T]):
    """Made by `Client.subscribe_topics`; `async with` opens it."""

    def __init__(
        self,
        client: Client,
        topics: Sequence[str] | re.Pattern[str],
        subscription: str,
        start: Start,
        look_s: float,
        options: dict[str, Any],
    ) -> None:
        """Raises TypeError, ValueError: what was said of topics or subscription cannot be."""
        self._pattern = topics if isinstance(topics, re.Pattern) else None
        if isinstance(topics, str):
            raise TypeError(f"topics is a list or a compiled pattern: [{topics!r}], or subscribe({topics!r})")
        if isinstance(topics, re.Pattern):
            if isinstance(topics.pattern, bytes):
                raise TypeError("topics is a pattern of text, not of bytes")
            what = f"the topics {topics.pattern!r}"
            names: list[str] = []
        else:
            if not isinstance(topics, Iterable):
                raise TypeError(f"topics is a list or a compiled pattern, not {type(topics).__name__}")
            names = list(topics)
            what = f"{len(names)} topics"
            if not names:
                raise ValueError("topics is empty: name one at least, or a pattern")
            if len(set(names)) < len(names):
                raise ValueError("topics has a name twice")
        if number("look_s", look_s, 0, FOREVER_S) <= 0:
            raise ValueError("look_s is above 0")
        super().__init__(f"subscription {subscription!r} of {what}")
        self.client = client
        self._subscription = subscription
        self._start = start
        self._look_s = look_s
        self._options = options
        self._consumers = [self._consumer(name, start) for name in names]
        self._first = 0
        self._discovery: asyncio.Task[None] | None = None
        self._error: ClientError | None = None

    def _consumer(self, topic: str, start: Start) -> Consumer[T]:
        return self.client.subscribe(topic, self._subscription, start=start, **self._options)

    @property
    def topics(self) -> list[str]:
        """Those that are consumed now."""
        return [consumer.topic for consumer in self._there()]

    def _there(self) -> list[Consumer[T]]:
        """Without those whose topics were deleted, where it is the pattern that says which ones there are.

        Raises ClientError: topics cannot be looked for any more.
        """
        if self._error is not None:
            raise self._error
        if self._pattern is not None and not self.stopped:
            self._consumers = [consumer for consumer in self._consumers if not consumer.is_gone]
        return self._consumers

    def _in_turn(self) -> list[Consumer[T]]:
        there = self._there()
        self._first = (self._first + 1) % max(len(there), 1)
        return there[self._first :] + there[: self._first]

    # Opening and closing

    async def open(self) -> Self:
        """Register with the gateway. Raises Busy, ClientError."""
        self.stopped = False
        self._error = None
        opened: list[Consumer[T]] = []
        try:
            if self._pattern is None:
                for consumer in self._consumers:
                    opened.append(await consumer.open())
            else:
                for topic in await self._matching():
                    opened.append(await self._consumer(topic, self._start).open())
        except BaseException:
            for consumer in reversed(opened):
                await consumer.close()
            raise
        self._consumers = opened
        if self._pattern is not None:
            self._discovery = asyncio.get_running_loop().create_task(self._look())
        return self

    async def close(self) -> None:
        """Give back what was not acknowledged. Idempotent."""
        self.stopped = True
        discovery, self._discovery = self._discovery, None
        if discovery is not None:
            discovery.cancel()
            await asyncio.wait([discovery])
        for consumer in self._consumers:
            await consumer.close()
        self._changed()

    async def _matching(self) -> list[str]:
        pattern, own = self._pattern, self._options.get("dead_letter")
        assert pattern is not None
        return [name for name in await self.client.admin.topics() if pattern.fullmatch(name) and name != own]

    async def _look(self) -> None:
        """Consume topics that appear."""
        while not self.stopped:
            await asyncio.sleep(self._look_s)
            try:
                known = set(self.topics)
                for topic in await self._matching():
                    if topic not in known:
                        consumer = await self._consumer(topic, "earliest").open()
                        self._consumers.append(consumer)  # `_there` has made another list meanwhile
                        self._changed()
            except ClientError as error:
                if not error.retryable:
                    self._error = error
                    self._changed()
                    return
                logger.warning("%s: topics are looked for again in %g s: %s", self._name, self._look_s, error)

    # Settling and moving

    async def reject(self, messages: Message[T] | Iterable[Message[T]]) -> None:
        """They leave their subscriptions undone; see `Consumer.reject`."""
        for consumer, some in self._by_consumer(messages):
            await consumer.reject(some)

    async def extend(self, messages: Message[T] | Iterable[Message[T]]) -> None:
        """More time for them; see `Consumer.extend`."""
        for consumer, some in self._by_consumer(messages):
            await consumer.extend(some)

    async def seek(self, to: Start) -> None:
        """The subscriptions of all topics that there are now go on from there; see `Consumer.seek`."""
        for consumer in list(self._there()):
            await consumer.seek(to)
