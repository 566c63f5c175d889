"""The straight way of a lone message from its feeds to its consumers. The module text is in _straight.pyx."""

from penstock.subscriptions.queue.limits import Limits
from penstock.subscriptions.queue.queue import Getter

class FastPath:
    """The straight way from a queue to its only consumer (`Queue.fast_path`); front ends derive theirs in C.

    Its C method `serve` takes what the queue has, encodes it and has it sent. It answers True when that was
    all: the queue goes on waiting at its feeds; False when it did nothing or there is more: the queue has its
    turn. It attaches and detaches nothing.
    """

class Served:
    """A queue, as far as the straight way sees it; `queue.Queue` derives from it."""

    fast_path: FastPath | None
    """The straight way to its outlet, when it is the only one and has one."""
    delivered: int
    """Messages handed to outlets and getters, redeliveries included."""
    _limits: Limits | None
    _getters: list[Getter] | None
