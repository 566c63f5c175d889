"""The fast path from a queue to its only consumer. The module text is in _consumer_path.pyx."""

from collections.abc import Callable
from typing import Any

from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.tick._fast_path import FastPath

class DirectConsumer:
    """A `QueueConsumer` whose methods a fast path can call in C; front ends derive theirs."""

    queue: Any
    way: Callable[[Any, Queue], FastPath] | None
    """Makes its fast path, when it is the queue's only consumer; None: it has none."""
    attached: bool
    """Set by the session while the queue may give it messages."""

    def credit(self) -> int:
        """Messages it would take now."""

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        """Encode items first, first + step ... of `cursor`; how many, a prefix of these."""

class ConsumerFastPath(FastPath):
    """Of one consumer."""

    def __init__(self, consumer: DirectConsumer, queue: Queue) -> None: ...
