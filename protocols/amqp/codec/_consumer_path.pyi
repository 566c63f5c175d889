"""The fast path from a queue to its only consumer. The module text is in _consumer_path.pyx."""

from penstock.protocols.amqp.codec._channel import Consumer
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.tick._fast_path import FastPath

class ConsumerFastPath(FastPath):
    """Of one consumer."""

    def __init__(self, consumer: Consumer, queue: Queue) -> None: ...
