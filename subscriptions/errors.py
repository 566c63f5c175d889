"""Errors of this layer.

SubscriptionError
├── ConsumerRefused     the queue takes no further consumer, or this one may not be the only one
└── QueueGone           the queue was deleted
"""

from __future__ import annotations

from penstock.errors import SubscriptionError

__all__ = ["ConsumerRefused", "QueueGone", "SubscriptionError"]


class ConsumerRefused(SubscriptionError):
    """An exclusive consumer is there, or exclusive use was asked for while others consume."""


class QueueGone(SubscriptionError):
    """The queue was deleted."""
