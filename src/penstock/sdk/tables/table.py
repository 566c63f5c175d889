"""The last value of each key of a topic, kept up to date: a table that a topic's messages write.

async with client.table("prices", schema=Price) as prices:
    prices["apple"]                                # a Price; KeyError when there is none
    async for key, price in prices.changes(): ...  # None: it was deleted

A message's key is its ordering key (`key=`), or what it was routed by when it came through an exchange; what
has neither is passed over. A message without a body deletes its key. Everything is in memory. Opening a table
reads the topic from its beginning, values that were replaced since as well, unless it goes on from what
another one had `saved`; after a lost connection it goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from penstock.sdk.addresses import of_reader
from penstock.sdk.consuming.consumer import Consumer
from penstock.sdk.errors import ClientError, Closed
from penstock.sdk.tables.saved_table import packed, unpacked

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import TypeVar

    from penstock.sdk.client import Client
    from penstock.sdk.message import Message
    from penstock.sdk.schema import Codec

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Table"]

_LOOK_S: Final = 1.0
"""Whether there is anything to wait for is asked that often, while nothing comes."""


class Table(Mapping[str, T]):
    """Made by `Client.table`; `async with` opens it, when everything is read that is there."""

    def __init__(
        self, client: Client, topic: str, codec: Codec[T] | None, prefetch: int, saved: bytes | None
    ) -> None:
        """Raises ValueError: `saved` is nothing that `saved` gave, or of another topic."""
        self.client = client
        self.topic = topic
        self._saved = None if saved is None else unpacked(saved, topic)
        start = "earliest" if self._saved is None else f"pos:{self._saved.position + 1}"
        self._reader: Consumer[T] = Consumer(
            client, of_reader(topic, None, None, "", None, start), prefetch, 16 << 20, codec
        )
        self._messages: dict[str, Message[T]] = {}
        self._position = 0
        self._task: asyncio.Task[None] | None = None
        self._error: ClientError | None = None
        self._moved = asyncio.Event()
        self._changes: list[tuple[dict[str, None], asyncio.Event]] = []

    # Opening and closing

    async def open(self) -> Self:
        """Read what is there.

        Raises:
            ClientError: NotFound when there is no such topic; what was saved is ahead of it.

        """
        self._messages.clear()
        self._position = 0
        self._error = None
        if self._saved is not None:
            described = await self.client.call("describe", topic=self.topic)
            if described["messages"] and described["last_position"] < self._saved.position:
                raise ClientError(
                    f"what was saved goes to {self._saved.position}, and topic {self.topic!r} to "
                    f"{described['last_position']}",
                    remedy="it is of another gateway, or another topic of that name: open the table without",
                )
            for message in self._saved.messages(self._reader.source):
                self._put(message)
            self._position = self._saved.position
        await self._reader.open()
        self._task = asyncio.get_running_loop().create_task(self._follow())
        try:
            await self.refresh()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """End it: what it holds cannot be asked for any more. Idempotent."""
        await self._reader.close()
        if self._task is not None:
            await self._task
            self._task = None

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Following

    async def _follow(self) -> None:
        try:
            async for messages in self._reader.batches():
                for message in messages:
                    self._put(message)
                self._told()
            self._error = Closed(f"the table of topic {self.topic!r} is closed")
        except ClientError as error:
            self._error = error
        self._told()

    def _put(self, message: Message[T]) -> None:
        self._position = message.position
        found = message.key
        if found is None:
            if not message.exchange:
                return
            found = message.routing_key
        key = found if isinstance(found, str) else found.decode("utf-8", "surrogateescape")
        if message.body:
            self._messages[key] = message
        else:
            self._messages.pop(key, None)
        for changed, _ in self._changes:
            changed.pop(key, None)
            changed[key] = None

    def _told(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        for _, told in self._changes:
            told.set()

    async def refresh(self) -> None:
        """Wait until everything is in it that was published before this call. Raises ClientError."""
        described = await self.client.call("describe", topic=self.topic)
        last, messages = described["last_position"], described["messages"]
        while messages and self._position < last:
            self._check()
            moved = self._moved
            try:
                async with asyncio.timeout(_LOOK_S):
                    await moved.wait()
            except TimeoutError:
                # The awaited message may have been dropped by retention.
                messages = (await self.client.call("describe", topic=self.topic))["messages"]
        self._check()

    async def changes(self) -> AsyncIterator[tuple[str, T | None]]:
        """The changes from now on: key and value, None when it was deleted, until the table is closed.

        A slow reader gets the last value of each key that changed meanwhile.

        Raises:
            ClientError: it cannot go on.

        """
        changed: dict[str, None] = {}
        told = asyncio.Event()
        entry = changed, told
        self._check()
        self._changes.append(entry)
        try:
            while True:
                while changed:
                    key = next(iter(changed))
                    del changed[key]
                    message = self._messages.get(key)
                    yield key, None if message is None else message.value
                if isinstance(self._error, Closed):
                    return
                self._check()
                told.clear()
                await told.wait()
        finally:
            self._changes.remove(entry)

    # Asking

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._task is None:
            raise Closed(
                f"the table of topic {self.topic!r} is not open",
                remedy="open it first: use it in a with block, or call its open()",
            )

    def saved(self) -> bytes:
        """Its content now, and the offset up to which it has read: for `Client.table(topic, saved=...)`.

        Raises ClientError.
        """
        self._check()
        return packed(self.topic, self._position, self._messages.values())

    def message(self, key: str) -> Message[T]:
        """The message that has the value of a key. Raises KeyError, ClientError."""
        self._check()
        return self._messages[key]

    def __getitem__(self, key: str) -> T:
        """Raises KeyError; BadBody: it is none of the schema; ClientError: the table cannot go on."""
        return self.message(key).value

    def __contains__(self, key: object) -> bool:
        self._check()
        return key in self._messages

    def __iter__(self) -> Iterator[str]:
        self._check()
        return iter(list(self._messages))

    def __len__(self) -> int:
        self._check()
        return len(self._messages)
