"""Messages that HTTP handlers take out of queues. They are out until they are settled or given back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Delivery", "each_delivery", "take"]


@dataclass(slots=True)
class Delivery:
    """A message taken from a queue and not settled yet."""

    queue: Queue
    seq: int
    record: Record
    redelivered: bool
    deliveries: int
    """How often it was handed out before."""
    left: int = 0
    """Messages that were ready behind it, where that was asked."""
    cursor: Cursor = field(init=False)
    """It was taken from. A subscription that is moved has another one afterwards."""

    def __post_init__(self) -> None:
        self.cursor = self.queue.cursor

    @property
    def is_void(self) -> bool:
        """Its subscription goes on elsewhere: settling it does nothing."""
        return self.cursor is not self.queue.cursor

    def settle(self) -> None:
        """It is done."""
        self.cursor.settle(self.seq)

    def requeue(self) -> None:
        """Give it back to its place."""
        self.cursor.requeue(self.seq)

    def put_back(self) -> None:
        """Give it back as if nobody had had it, neither counted nor marked; then wake the queue."""
        self.cursor.unsend(self.seq)

    def unhold(self) -> None:
        """It stays out for a while; no message of its key waits for it."""
        self.cursor.unhold(self.seq)

    def reject(self) -> None:
        """It leaves the queue undone: dead-lettered, where the queue says so."""
        self.cursor.reject(self.seq)


def each_delivery(queue: Queue, cursor: Cursor, first: int = 0, step: int = 1) -> Iterator[Delivery]:
    """Items first, first + step ... of the last take of the queue's cursor, made as they are asked for."""
    records = cursor.records()
    for at in range(first, len(records), step):
        seq, _, _, count, redelivered = records[at]
        batch, index = cursor.record(at)
        yield Delivery(queue, seq, batch.record(index), redelivered, count)


async def take(queue: Queue) -> Delivery | None:
    """One message, or None when the queue is empty."""
    found: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()

    def got(cursor: Cursor | None) -> None:
        if cursor is None:
            if not found.done():
                found.set_result(None)
            return
        delivery = next(each_delivery(queue, cursor))
        if found.done():
            delivery.requeue()
            return
        delivery.left = queue.ready_count
        found.set_result(delivery)

    queue.get(got)
    queue.tick.schedule()
    return await found
