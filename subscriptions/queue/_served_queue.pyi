"""When a queue is served. The module text is in _served_queue.pyx."""

from collections.abc import Mapping
from typing import Any

from penstock.log_core.feeds._feed import Feed
from penstock.log_core.log import Log
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.dispatch._consumers import Consumers
from penstock.subscriptions.dispatch.consumer import QueueConsumer
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.queue.empty_check import EmptyChecks
from penstock.subscriptions.queues import Queues
from penstock.subscriptions.tick._fast_path import Served
from penstock.subscriptions.tick.tick import Tick

class ServedQueue(Served):
    """A part of `Queue`, which derives from it."""

    qid: int
    """Durable number of the queue; 0 for one that is not durable."""
    name: str
    vhost: str
    kind: Kind
    cursor: Cursor
    """The messages that are ready, out and done."""
    auto_delete: bool
    """Deleted (by the router) when its last consumer leaves."""
    deleted: bool
    owner: object
    """The connection that alone may use it, or None."""
    arguments: Mapping[str, Any]
    data: Any
    """Of whoever made the queue (the router, a session); None once it is deleted."""
    looks: EmptyChecks | None
    """The receivers that look whether it has anything; of `looking`."""
    got: int
    """Of `delivered`, to getters."""
    unasked_got: int
    """Of `unasked`, those that getters got."""
    purged: int
    """Messages dropped by `purge`."""
    dropped: int
    """Messages that left because there were too many; `cursor.settled` counts them too."""
    _awaiting: bool
    _promises: bool
    _queues: Queues
    _consumers: Consumers | None
    _sole: bool
    _watching: set[Feed] | None

    def __init__(
        self,
        queues: Queues,
        qid: int,
        name: str,
        vhost: str,
        *,
        kind: Kind,
        owner: object = None,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        priority_max: int = 0,
    ) -> None: ...
    @property
    def durable(self) -> bool:
        """Whether it is there after a restart."""

    @property
    def log(self) -> Log:
        """The feed of its messages."""

    @property
    def tick(self) -> Tick:
        """By whose turns it is served."""

    @property
    def active(self) -> QueueConsumer | None:
        """The consumer that gets everything: a single active one, or the only one; None: there is none."""

    @property
    def consumer_count(self) -> int:
        """Attached consumers."""

    def attach(self, consumer: QueueConsumer, *, exclusive: bool = False) -> None:
        """Serve `consumer` from the next turn on.

        Raises:
            ConsumerRefused: another one consumes exclusively, or this one wants to while others consume.
            QueueGone: the queue was deleted.

        """

    def detach(self, consumer: QueueConsumer, *, requeue: bool = False) -> None:
        """Serve `consumer` no more. A consumer that is not attached is ignored.

        Its messages stay out: its owner requeues it, or settles it later. `requeue` gives back everything
        that is out, for a queue with one consumer.
        """

    def wake(self) -> None:
        """There may be something to hand out: stand on the ready list. Cheap and idempotent."""

    def credit_gained(self, consumer: QueueConsumer | None = None) -> None:
        """A consumer has credit again; called once per read or flush. None: it is not known which one."""

    def fed(self, feed: Feed) -> None:
        """The tick says that `feed`, where this queue waited, got entries that are written."""

    def pump(self) -> None:
        """Hand out, up to this turn's share. Called by the tick."""

    def caught_up(self) -> bool:
        """The last take found less than was wanted: go on when there is more. True: there is nothing yet."""

    def watch(self) -> None:
        """Wait at the feeds: caught up, and somebody is hungry."""

    def used(self) -> None:
        """Somebody needs it: a queue that expires begins to wait anew."""

    def _unwatch(self) -> None: ...
