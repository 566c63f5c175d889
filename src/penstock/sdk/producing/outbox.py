"""An outbox: messages that were stored with the rows they go with, sent from there, each once.

with database:                                             # one transaction of the program's own database
    database.execute("UPDATE ...")
    database.execute("INSERT INTO outbox (body) VALUES (?)", [body])

async with client.producer("orders", name="shop", numbered=True) as producer:
    rows = database.execute("SELECT id, body FROM outbox ORDER BY id")
    async for number in penstock.sent(producer, rows):      # each once it is kept
        database.execute("DELETE FROM outbox WHERE id <= ?", [number])

The program may die at any moment and begin again with what is left: what the gateway has by its number it
does not take again, for a day from the producer's last message. Rows are sent by one program at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from penstock.sdk.message import MessageId
    from penstock.sdk.producing.producer import Producer

__all__ = ["sent"]

T = TypeVar("T")

Row = tuple[int, T] | tuple[int, T, Mapping[str, Any]]
"""A number above those before, a body, and what else `Producer.send` takes, by name."""


async def sent(
    producer: Producer[T], rows: Iterable[Row[T]], *, ahead: int = 1000
) -> AsyncGenerator[int, None]:
    """Send rows in their order, `ahead` of them before the first is confirmed; the numbers of those kept.

    Raises:
        ClientError: one was refused, and the producer is closed: it and those behind it are not kept. Open it
            again to send them again, or without that row.
        TypeError, ValueError: one cannot be sent as it is; it and those behind it are not.

    """
    failed = False

    async def send(number: int, body: T, options: Mapping[str, Any]) -> MessageId:
        nonlocal failed
        if failed:
            # The gateway takes no number below one that it has: a row that is mended would be lost.
            raise asyncio.CancelledError
        try:
            return await producer.send(body, number=number, **options)
        except BaseException:
            failed = True
            raise

    waiting: deque[tuple[int, asyncio.Task[MessageId]]] = deque()
    try:
        for number, body, *options in rows:
            # Begun at once, so that they are sent in this order.
            task = asyncio.create_task(send(number, body, options[0] if options else {}))
            waiting.append((number, task))
            if len(waiting) >= ahead or waiting[0][1].done():
                first, task = waiting.popleft()
                await task
                yield first
        while waiting:
            first, task = waiting.popleft()
            await task
            yield first
    finally:
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
