"""Handlers of messages: one at a time in a block, or several at once with the order of each key kept.

async with message.process(): ...                  # one
await billing.workers(8, handle, by="key")         # until the consumer is closed or stopped

`workers` gives each message to `handle`, an async function, or one that runs in a thread. Those of one key
are handled one after the other in their order, those of different keys at the same time, `n` at most;
messages without a key have no order among them. A message is acknowledged when `handle` returns, and given
back when it raises, as after `process`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from penstock.sdk.checking import whole
from penstock.sdk.errors import ClientError, Closed, ConnectionLost, NotFound, StaleDelivery

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.sdk.consuming.receiving import Receiving
    from penstock.sdk.message import Message

__all__ = ["By", "Handler", "Processing", "WorkerPool", "answered", "given_back", "handling", "responder"]

T = TypeVar("T")
By = Literal["key", "message"]
Handler = Callable[["Message[T]"], Awaitable[object] | object]

logger: Final = logging.getLogger("penstock.sdk")


def handling(message: Message[Any]) -> AbstractContextManager[object]:
    """The span in which a message is handled, when the client is traced."""
    consumer = message.source.consumer
    tracing = consumer.client.tracing
    return nullcontext() if tracing is None else tracing.handling(consumer.place, message)


class Processing(Generic[T]):
    """`async with message.process():` acknowledges it, or gives it back when the block raises."""

    __slots__ = ("_message", "_span")

    def __init__(self, message: Message[T]) -> None:
        self._message = message
        self._span = handling(message)

    async def __aenter__(self) -> Message[T]:
        self._span.__enter__()
        return self._message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._span.__exit__(kind, error, trace)
        if error is None:
            await self._message.source.consumer.ack(self._message)
        else:
            await given_back(self._message, error)


async def given_back(message: Message[Any], error: BaseException) -> None:
    """Give it back behind an error of its handler, which is what is to be raised."""
    consumer = message.source.consumer
    try:
        if isinstance(error, Exception):
            await consumer.give_back(message)
        else:
            # Cancelled, or Ctrl-C: nobody failed. It comes again at once, to whoever is there.
            await consumer.nack(message, delay_s=0)
    except (StaleDelivery, Closed, ConnectionLost) as second:
        logger.info("%s was not given back, and comes again: %s", message.id, second)
    except (ClientError, ValueError) as second:
        # Of a retry topic, which is gone, or takes nothing like this.
        logger.warning("%s could not be put off; it is given back as it is: %s", message.id, second)
        await consumer.nack(message)


async def called(handler: Handler[T], message: Message[T]) -> object:
    """Call a handler; its result. A function that is not async runs in a thread."""
    if inspect.iscoroutinefunction(handler):
        return await handler(message)
    found = await asyncio.to_thread(handler, message)
    return await found if inspect.isawaitable(found) else found


def responder(handler: Handler[T]) -> Handler[T]:
    """A handler that sends what `handler` returns to whoever waits for a reply. Raises TypeError."""
    if not callable(handler):
        raise TypeError(f"respond: the handler is a function, not {type(handler).__name__}")

    async def respond(message: Message[T]) -> None:
        await answered(message, await called(handler, message))

    return respond


async def answered(message: Message[Any], body: Any) -> None:
    """Send a reply to the message if it wants one; its requester may be gone. Raises ClientError."""
    if message.reply_to is None:
        return
    try:
        await message.source.consumer.client.reply(message, b"" if body is None else body)
    except NotFound as error:
        logger.info("nobody waits for the reply to %s any more: %s", message.id, error)


class WorkerPool(Generic[T]):
    """The handlers that run for one call of `workers`."""

    def __init__(self, consumer: Receiving[T], n: int, handler: Handler[T], by: By) -> None:
        """Raises TypeError, ValueError."""
        whole("workers: n", n, 1, 2**31)
        if not callable(handler):
            raise TypeError(f"workers: the handler is a function, not {type(handler).__name__}")
        if by not in ("key", "message"):
            raise ValueError(f'workers: by is "key" or "message", not {by!r}')
        self._consumer = consumer
        self._handler = handler
        self._by_key = by == "key"
        self._free = asyncio.Semaphore(n)
        self._tasks: set[asyncio.Task[None]] = set()
        self._lanes: dict[str | bytes, deque[Message[T]]] = {}
        """Of keys that are being handled: what comes next."""
        self._most = 16 * n
        """Messages that may wait behind others of their keys."""
        self._waiting = 0
        self._capacity = asyncio.Event()

    async def run(self) -> None:
        """Until the consumer is closed or stopped; cancelled, it cancels its handlers."""
        try:
            async for message in self._consumer:
                key = message.key if self._by_key else None
                if key is not None and key in self._lanes:
                    self._lanes[key].append(message)
                    self._waiting += 1
                    while self._waiting >= self._most:
                        self._capacity.clear()
                        await self._capacity.wait()
                else:
                    if key is not None:
                        self._lanes[key] = deque()
                    await self._free.acquire()
                    self._start(message, key)
            while self._tasks:
                await asyncio.wait(self._tasks)
        except BaseException:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            raise

    def _start(self, message: Message[T], key: str | bytes | None) -> None:
        task = asyncio.get_running_loop().create_task(self._lane(message, key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lane(self, message: Message[T], key: str | bytes | None) -> None:
        """Handle a message, and what comes behind it with the same key."""
        running = False
        try:
            while True:
                if not message.stale and not (running and self._consumer.stopped):
                    await self._handle(message)
                running = True
                lane = None if key is None else self._lanes[key]
                if not lane:
                    break
                message = lane.popleft()
                self._waiting -= 1
                self._capacity.set()
                # In turn with those who wait for a worker: one busy key keeps out no others.
                self._free.release()
                await self._free.acquire()
        finally:
            if key is not None:
                self._waiting -= len(self._lanes.pop(key))
                self._capacity.set()
            self._free.release()

    async def _handle(self, message: Message[T]) -> None:
        try:
            async with Processing(message):
                await called(self._handler, message)
        except (StaleDelivery, ConnectionLost, Closed) as error:
            logger.info("%s was handled, and comes again: %s", message.id, error)
        except Exception:
            logger.exception("the handler of %s failed; it is given back", message.id)
