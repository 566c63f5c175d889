"""The state of a connection's sessions and links in C. Its work is in `_core.pyx`."""

from collections.abc import Callable
from typing import Any

from penstock.log_core.batch._batch import Batch, Record
from penstock.log_core.feeds._feed import Feed
from penstock.protocols.amqp10.filters._program import Program
from penstock.protocols.net._stream import QuickReader
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.tick._consumer_path import DirectConsumer
from penstock.subscriptions.tick._tick import Sink

ACCEPTED: bytes
"""The outcome accepted, encoded."""
HOW_ACCEPTED: int
HOW_REJECTED: int
HOW_RELEASED: int
HOW_FAILED: int
HOW_DEFAULT: int

def end_delivery(cursor: Cursor, seq: int, how: int) -> None:
    """End a delivery that is out; `how`: one of the above but HOW_DEFAULT."""

class ConnectionCore(QuickReader):
    """The state that all sessions of a connection share."""

    out: OutBuffer
    sink: Sink | None
    """The connection, for kernels: `dirty` and `output_capacity` are not called then."""
    dirty: Callable[[], object]
    output_capacity: Callable[[], int]
    frame_max: int
    """Bytes of a frame that the peer takes."""
    message_max: int
    gathered: int
    """Bytes of messages of all links that are not whole yet, and of transactions."""
    published: int
    delivered: int
    confirmed: int
    acknowledged: int

    def __init__(self, out: OutBuffer) -> None: ...
    def wait(self, lsn: int, synced: bool) -> None:
        """Something is due when the log has `lsn`."""

    def take_waits(self) -> tuple[int, int]:
        """The LSNs waited for since the last call: to be written, to be synced; 0 = none."""

    def say_due(self, written: int, synced: int) -> None:
        """Write the outcomes that wait for nothing more, in ranges."""

class ChannelCore:
    """Windows, links by handle, deliveries to the peer that are not settled, outcomes that are due."""

    connection: ConnectionCore
    number: int
    ending: bool
    """We ended it: everything but the answer is ignored."""
    holding: bool
    """Frames wait for the peer's window."""
    next_incoming: int
    next_outgoing: int
    tap: Callable[[Queue, Batch, int, bool], None] | None
    """Called with each delivery: queue, batch, index of the message there, whether it is redelivered."""
    window: int
    """Transfers that the peer may still send; `window_most` is given again when half of it is used."""
    window_most: int
    remote_window: int

    def __init__(self, connection: ConnectionCore, number: int) -> None: ...
    def attach_core(self, link: IncomingCore | OutgoingCore) -> None:
        """Kernels may find the link by its handle."""

    def detach_core(self, handle: int) -> None:
        """They may not any more."""

    def put_session_flow(self) -> None:
        """Write the windows."""

    def took(self) -> None:
        """A transfer came: count it, and give the window again when half of it is used."""

    def number_settled(self) -> int:
        """The number of a settled delivery."""

    def chosen(self, first: int, last: int) -> list[tuple[int, Cursor, int]]:
        """Number, cursor and seq of the deliveries to the peer in that range that are not settled."""

    def forget(self, numbers: list[int]) -> None:
        """These are somebody else's to settle."""

    def settle(self, first: int, last: int, how: int) -> int:
        """End the deliveries to the peer in that range that are not settled; how many these were."""

    def give_back(self, link: OutgoingCore, failed: bool) -> None:
        """End what the link holds as its default outcome says.

        Without one it goes back to its queue; `failed`: each delivery counts as a failure.
        """

    def take_out(self, link: OutgoingCore) -> list[tuple[int, Cursor, int]]:
        """Number, cursor and seq of what the link holds; they are somebody else's to settle."""

    @property
    def unsettled(self) -> int:
        """Deliveries to the peer that are not settled."""

    def settle_later(self, number: int, state: bytes, lsn: int, synced: bool, second: bool) -> None:
        """The peer's delivery has this outcome once the log has `lsn`; `second`: the peer settles it then."""

    def drop_due(self) -> None:
        """Say none of the outcomes that wait."""

    suspended: list[Any] | None
    """A holder of deliveries of links that are detached, and not closed (`resuming.Held`)."""
    seconds: int
    """Links of receivers whose deliveries we settle when their outcome is on disk."""

    def forget_starved(self) -> None:
        """No link of it gets anything any more."""

class IncomingCore:
    """The credit of a link by which the peer sends."""

    channel: Any
    handle: int
    credit: int
    most: int
    """Messages that may be under way; more credit is given when half of it is used."""
    pending: int
    """Messages that came and still need room here."""
    delivery_count: int
    gathering: bool
    """A message is not whole yet."""
    gathered: bytearray
    """The parts of it that came; they count in `ConnectionCore.gathered`, too."""
    second: bool
    """The peer settles its messages, after we said their outcome."""
    first_id: int
    """Its number."""
    part_settled: bool
    """One of its transfers said that it is settled."""
    first_state: Any
    """The state of its first transfer."""
    key: bytes | None
    """The key block of all messages, which a kernel may publish; None: each has its own, or is looked at."""
    places: dict[bytes, bytes] | None
    """Key blocks by the addresses that messages named before, for a link whose messages have their own."""
    to_topic: bool
    """Nobody has to listen: what goes nowhere is accepted, too."""

    def __init__(self, channel: ChannelCore, handle: int, most: int) -> None: ...
    def give_credit(self) -> None:
        """Let the peer send as much as there is room for."""

    def drop_parts(self) -> None:
        """Forget the parts: they are a whole message, or never become one."""

    def credit_used(self) -> None:
        """Credit or room changed."""

class OutgoingCore(DirectConsumer):
    """The credit of a link by which the peer receives, and its deliveries."""

    channel: Any
    handle: int
    settled: bool
    """Its deliveries are."""
    draining: bool
    resuming: bool
    """Deliveries of an earlier link are told of first."""
    default_how: int
    """How a delivery ends that is settled without an outcome."""
    has_default: bool
    """The peer chose that."""
    series: int
    """In front of the numbers in its tags; 0: none."""
    filtered: bool
    """`payload` says of each message whether the peer gets it."""
    program: Program | None
    """It looks at messages before `passes` does."""
    delivery_count: int
    link_credit: int
    queue: Queue

    def __init__(self, channel: ChannelCore, handle: int) -> None: ...
    def of_stream(self, offsets: Feed, base: int) -> None:
        """It reads a stream: entry i of `offsets` has offset base + i."""

    def payload(
        self,
        record: Record,
        offset: int | None,
        delivery_count: int,
        acquired: int,
        counts: bool,
        note: bytes,
    ) -> bytes | None:
        """The message that a kernel does not encode; None: the peer does not get it."""

    def passes(self, payload: bytes) -> bool:
        """Whether the peer gets a message, where it is filtered."""
