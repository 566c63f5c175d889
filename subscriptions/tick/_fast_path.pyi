"""The fast path of a message from its feeds to its consumer. The module text is in _fast_path.pyx."""

from penstock.subscriptions.queue.limits import Limits
from penstock.subscriptions.queue.queue import Getter, Queue

class FastPath:
    """The fast path from a queue to its only consumer (`Queue.fast_path`); front ends derive theirs in C.

    Its C method `serve` takes what the queue has, encodes it and has it sent. It says that this was all, or
    that the consumer has no credit: then the queue goes on waiting at its feeds. Or there is more: then the
    queue has its turn. It attaches and detaches nothing.
    """

    def __init__(self, queue: Queue) -> None:
        """Of `queue`, whose consumer wakes it when it has credit again."""

class Served:
    """A queue, as far as the fast path sees it; `queue.Queue` derives from it."""

    fast_path: FastPath | None
    """The fast path to its consumer, when it is the only one and has one."""
    delivered: int
    """Messages handed to consumers and getters, redeliveries included."""
    unasked: int
    """Those of them that were settled as they were handed out: nobody is asked to acknowledge them. The code
    that hands out sees it by the count that the cursor has settled meanwhile, in all protocols."""
    waits: bool
    """It waits at all of its feeds."""
    _limits: Limits | None
    _getters: list[Getter] | None
    _loading: int
    """Reasons to hand out nothing."""
