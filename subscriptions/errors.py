"""Errors of this layer.

SubscriptionError
├── ConsumerRefused     the queue takes no further consumer, or this one may not be the only one
├── NotForStreams       a queue's operation on a stream, whose messages cannot be taken
└── QueueGone           the queue was deleted
"""

from __future__ import annotations

from penstock.errors import SubscriptionError

__all__ = ["ConsumerRefused", "NotForStreams", "QueueGone", "SubscriptionError"]


class ConsumerRefused(SubscriptionError):
    """An exclusive consumer is there, or exclusive use was asked for while others consume."""


class QueueGone(SubscriptionError):
    """The queue was deleted."""


class NotForStreams(SubscriptionError):
    """The `operation` takes messages out of a queue; those of a stream stay."""

    def __init__(self, operation: str, name: str, vhost: str) -> None:
        super().__init__(
            f"{operation} not supported by stream queue '{name}' in vhost '{vhost}'",
            remedy="consume it from an offset",
        )
        self.operation = operation
        self.name = name
        self.vhost = vhost
