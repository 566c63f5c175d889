"""The consuming side of the native protocol. The layouts of frames and the rules stand in `_consumer.pyx`."""

from collections.abc import Callable
from typing import Any, Protocol

from typing_extensions import Buffer

from penstock.protocols.net.outbuffer import OutBuffer
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.tick._stored_batches import BatchConsumer

class Host(Protocol):
    """A consumer's calls to the session."""

    def give_back_later(
        self, consumer: Consumer, cursor: Cursor, seq: int, count: int, delay_ms: int
    ) -> None:
        """A delivery comes back after a delay; it is the consumer's no more."""
    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """The queue let go of a consumer."""
    def event(self, handle: int, value: dict[str, Any]) -> None:
        """Tell the peer something of a handle."""
    def voided(self, consumer: Consumer) -> None:
        """A consumer's subscription goes on elsewhere."""
    def dirty(self) -> None:
        """There is output."""
    def now(self) -> float:
        """Seconds, for acknowledgement timeouts."""

class Queue(Protocol):
    """A consumer's calls to its queue."""

    def credit_gained(self, consumer: Consumer) -> None:
        """It has credit again, having had none."""

class Outgoing:
    """The shared state of the consumers of one connection: its output, and the counts of it."""

    out: OutBuffer
    packs: str
    """How deliveries are compressed where that makes them smaller; "": they are not."""
    stores: bool
    """Batches may go out as they are stored."""
    delivered: int
    acknowledged: int
    pulls: int
    """That wait."""

    def peer(self) -> str:
        """The connection's name."""
    def __init__(self, out: OutBuffer) -> None: ...

class Pull:
    """A peer that waits for messages: credit that ends."""

    request: int
    got: int
    """Messages it was given."""
    over: bool
    due: float
    """When its time is up, in seconds of the tick's clock; a lesser pull is due earlier, or came earlier."""
    def __init__(self, request: int, messages: int, size: int, messages_min: int, size_min: int) -> None: ...
    @property
    def complete(self) -> bool:
        """It has what it waited for, or all it may have."""
    def __lt__(self, other: Pull) -> bool: ...

class Consumer(BatchConsumer):
    """A handle of the peer to be delivered to: the consumer of a queue."""

    id: int
    queue: Any
    priority: int
    auto: bool
    """Deliveries are settled as they are sent."""
    attached: bool
    paused: bool
    """It is given nothing, whatever its credit."""
    messages: int
    """Credit in messages that it has left; below 0 when a batch overdrew it."""
    size: int
    """Credit in bytes; the last message may overdraw it."""
    pulls: int
    """That wait."""
    first: int
    """The oldest tag that is out and not set aside; `next` when there is none."""
    next: int
    """The tag of the next delivery."""
    unacked: int
    unacked_max: int
    starving: bool
    watch: Callable[[], None] | None
    """Called once when something is out, and forgotten; None: nobody waits for that."""
    name: str
    ranges: list[tuple[int, int]]
    host: Any
    """The session it belongs to."""
    delivered: int
    acknowledged: int
    def __init__(
        self,
        outgoing: Outgoing,
        id: int,
        queue: Queue | None,
        host: Host,
        output_capacity: Callable[[], int],
        *,
        priority: int = 0,
        auto: bool = False,
        unacked_max: int = 50_000,
        name: str = "",
        ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        """`output_capacity` answers the bytes of output that may still be encoded now."""
    def grant(self, messages: int, size: int) -> None:
        """More credit."""
    def pull(self, pull: Pull) -> None:
        """The peer waits; pulls are served in their order, behind what was granted."""
    def end_pull(self, pull: Pull) -> None:
        """It is over, with what it got: the peer is told. Nothing when it was over before."""
    def end_pulls(self) -> None:
        """The same of all that wait."""
    def feed(self) -> None:
        """Tell the queue when it had no credit and may have some now."""
    def credit(self) -> int:
        """Messages that it takes now; see `consumer`."""
    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        """Encode items of the last take; how many it took; see `consumer`."""
    def ack(self, first: int, last: int) -> int:
        """Settle the deliveries with tags in [first, last] that are out; how many."""
    def nack(self, first: int, last: int, delay_ms: int, reject: bool) -> int:
        """Give them back: now (0), after a delay, or after the subscription's (-1); or let them leave."""
    def count_out(self, first: int, last: int) -> int:
        """How many with tags in [first, last] are out."""
    def extend(self, first: int, last: int) -> int:
        """Let the time of what is out in [first, last] begin anew; how many."""
    def expire(self, before: float) -> int:
        """Give back what was delivered, or extended, before that moment (`Host.now`); how many."""
    def oldest(self) -> float | None:
        """When the oldest delivery that is out was made, or extended; None: there is none."""
    def release(self) -> int:
        """Give back everything that is out; how many."""
    def forget(self) -> None:
        """Its deliveries are void."""
    def void(self) -> None:
        """Its subscription goes on elsewhere: its deliveries are void, and the peer is told."""
    def told(self, active: bool) -> None:
        """Whether it is the active one of its subscription; the peer is told."""
    def slots(self, cursor: Cursor) -> Buffer:
        """The slots of the keys of the items of the last take, u16 each."""
    def cancelled(self, reason: str) -> None:
        """The queue let go of it: the host is told."""
