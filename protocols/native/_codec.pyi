"""The native protocol's kernel. The layouts of frames and the rules stand in `_codec.pyx`."""

from collections.abc import Callable
from typing import Any, Protocol

from typing_extensions import Buffer

from penstock.errors import PenstockError
from penstock.log_core._appender import Appender
from penstock.protocols.outbuffer import OutBuffer
from penstock.router._routes import Route, RouteTable
from penstock.subscriptions._cursor import Cursor
from penstock.subscriptions._keys import KeyShares

class Host(Protocol):
    """What the kernel asks of the session, in the order of the frames."""

    def frame(self, kind: int, id: int, payload: bytes) -> None:
        """A frame that is not the kernel's; before the login, any frame."""
    def fault(self, code: str, message: str) -> None:
        """The peer broke the protocol: no further frame is looked at."""
    def unknown_handle(self, kind: int, id: int) -> None:
        """CREDIT, ACK or NACK of a consumer that is not there (any more)."""
    def refused(self, id: int, sequence: int, count: int, why: str | PenstockError) -> None:
        """A batch that is not appended, none of it."""
    def admit(self, producer: Producer, sequence: int, count: int) -> int | None:
        """0: a named producer's batch is new; a position: it was appended there; below 0: it was appended
        somewhere up to that LSN, negated; None: it was refused."""
    def unpacked(self, packed: bytes) -> bytes | None:
        """The records of a compressed batch; None: they are none, and the peer was told."""
    def begin_unit(self) -> None:
        """What is appended from now on is one atomic unit, at least until the end of the read."""
    def note(self, producer: Producer, sequence: int, count: int, position: int) -> None:
        """A named producer's batch was appended, its first record at `position`."""
    def publish_each(
        self, producer: Producer, sequence: int, acks: int, records: list[tuple[bytes, bytes]]
    ) -> None:
        """Append (properties, body) one by one: the route wants to see each."""
    def may_cumulate(self, consumer: Consumer) -> bool:
        """Whether cumulative acknowledgements are allowed; if not, the peer was told."""
    def acknowledged(self, consumer: Consumer, request: int) -> None:
        """The peer wants to be told when this acknowledgement is kept."""
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
    """What a consumer asks of its queue."""

    def credit_gained(self) -> None: ...

class Producer:
    """A handle of the peer to publish by."""

    id: int
    key: bytes
    """The key block of its records."""
    name: bytes
    """Its name in the log, whole; empty: it has none."""
    epoch: int
    def __init__(self, id: int, key: bytes, name: bytes, epoch: int) -> None: ...

class Pull:
    """A peer that waits for messages: credit that ends."""

    request: int
    got: int
    """Messages it was given."""
    timer: Any
    """With cancel(); None: it was not set."""
    def __init__(self, request: int, messages: int, size: int, messages_min: int, size_min: int) -> None: ...
    @property
    def complete(self) -> bool:
        """It has what it waited for, or all it may have."""

class Codec:
    """The frames of one connection."""

    out: OutBuffer
    table: RouteTable | None
    """Of the user who is logged in; None: nobody is, and every frame goes to the host."""
    user: bytes
    frame_max: int
    """The largest frame taken, in bytes, the size field not counted."""
    want: int
    """Whole size of the incomplete frame in front; 0: not known, or it fits the buffer."""
    halted: bool
    """While it is set no frame is looked at."""
    packs: bool
    """Deliveries are compressed where that makes them smaller."""
    published: int
    """Records appended."""
    confirmed: int
    delivered: int
    acknowledged: int
    def __init__(self, out: OutBuffer, appender: Appender, host: Host, frame_max: int) -> None: ...
    def add_producer(self, producer: Producer) -> None: ...
    def add_consumer(self, consumer: Consumer) -> None: ...
    def producer(self, id: int) -> Producer | None: ...
    def consumer(self, id: int) -> Consumer | None: ...
    def remove(self, id: int) -> tuple[Producer | None, Consumer | None]:
        """Forget a handle; what it was."""
    def has(self, id: int) -> bool:
        """Whether the handle is in use."""
    def handles(self) -> int:
        """How many are in use."""
    def all_consumers(self) -> list[Consumer]: ...
    def receive(self, buffer: Buffer, at: int, size: int) -> int:
        """Handle the whole frames in buffer[at:size]; where the incomplete one begins. See `want`."""
    def check_records(self, records: bytes, count: int) -> str:
        """Whether these are `count` records this user may send: "ok", "malformed", "reserved_header" or
        "foreign_user"."""
    def append_records(self, route: Route, key: bytes, records: bytes, count: int) -> int:
        """Append checked records, at least one; the position of the first."""
    def route(self, key: bytes) -> Route:
        """Where records with this key block go."""
    def expect(self, id: int, sequence: int, count: int, position: int, lsn: int, synced: bool) -> None:
        """Confirm a batch when `lsn` is written, or synced."""
    def take_waits(self) -> tuple[int, int]:
        """(LSN that must be written, LSN that must be synced) for what was pushed since; 0 = none."""
    def confirm(self, written: int, synced: int) -> bool:
        """Encode the confirms that are due, in the order of their batches; True when there was one."""
    def drop_pending(self) -> list[tuple[int, int, int]]:
        """Forget what waits for a confirm: (handle, sequence, count) of each."""
    @property
    def unconfirmed(self) -> int:
        """Batches that wait for their confirm."""
    def send(self, kind: int, id: int, payload: bytes) -> None:
        """Encode a frame."""

def split_records(records: bytes, count: int) -> list[tuple[bytes, bytes]]:
    """(properties, body) of each of `count` checked records."""

class Consumer:
    """A handle of the peer to be delivered to: the outlet of a queue."""

    id: int
    queue: Any
    priority: int
    auto: bool
    """Deliveries are settled as they are sent."""
    attached: bool
    messages: int
    """Credit in messages that it has left."""
    size: int
    """Credit in bytes; the last message may overdraw it."""
    pulls: list[Pull]
    first: int
    """The oldest tag that is not acknowledged; `next` when there is none."""
    next: int
    """The tag of the next delivery."""
    unacked: int
    unacked_max: int
    starving: bool
    name: str
    ranges: list[tuple[int, int]]
    keys: KeyShares | None
    host: Any
    """The session it belongs to."""
    delivered: int
    acknowledged: int
    def __init__(
        self,
        codec: Codec,
        id: int,
        queue: Queue | None,
        host: Host,
        room: Callable[[], int],
        *,
        priority: int = 0,
        auto: bool = False,
        unacked_max: int = 50_000,
        name: str = "",
        ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        """`room` answers the bytes of output that may still be encoded now."""
    def grant(self, messages: int, size: int) -> None:
        """More credit."""
    def pull(self, pull: Pull) -> None:
        """The peer waits; pulls are served in their order, behind what was granted."""
    def end_pull(self, pull: Pull) -> None:
        """It is over, with what it got: the peer is told. Nothing when it was over before."""
    def feed(self) -> None:
        """Tell the queue when it had no credit and may have some now."""
    def credit(self) -> int: ...
    def deliver(self, cursor: Cursor, first: int, step: int) -> int: ...
    def ack(self, first: int, last: int) -> int:
        """Settle the deliveries with tags in [first, last] that are out; how many."""
    def nack(self, first: int, last: int, delay_ms: int, reject: bool) -> int:
        """Give them back: now (0), after a delay, or after the subscription's (-1); or let them leave."""
    def planned(self, first: int, last: int) -> list[int]:
        """The tags in [first, last] that are out."""
    def expire(self, before: float) -> int:
        """Give back what was delivered before that moment (`Host.now`); how many."""
    def oldest(self) -> float | None:
        """When the oldest delivery that is out was made; None: there is none."""
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
    def cancelled(self, reason: str) -> None: ...
