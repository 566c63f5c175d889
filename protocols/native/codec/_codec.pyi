"""The native protocol's kernel. The layouts of frames and the rules stand in `_codec.pyx`."""

from typing import Protocol

from typing_extensions import Buffer

from penstock.errors import PenstockError
from penstock.log_core.batch._appender import Appender
from penstock.protocols.native.codec._consumer import Consumer, Outgoing
from penstock.protocols.native.codec._consumer import Host as ConsumerHost
from penstock.protocols.native.codec._producer import Producer
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.router.routes._routes import Route, RouteTable

class Host(ConsumerHost, Protocol):
    """The kernel's calls to the session, in the order of the frames."""

    def frame(self, kind: int, id: int, payload: bytes) -> None:
        """A frame that is not the kernel's; before the login, any frame."""
    def fault(self, code: str, message: str) -> None:
        """The peer broke the protocol: no further frame is looked at."""
    def unknown_handle(self, id: int, request: int) -> None:
        """CREDIT, ACK or NACK of a consumer that is not there (any more)."""
    def must_wait(self, kind: int, id: int, payload: bytes) -> bool:
        """Whether a frame is for a handle that is being opened. Asked while there are, but of PRODUCE."""
    def refused(self, id: int, sequence: int, count: int, why: str | PenstockError) -> None:
        """A batch that is not appended, none of it."""
    def admit(self, producer: Producer, sequence: int, count: int) -> int | None:
        """0: a named producer's batch is new; a position: it was appended there; below 0: it was appended
        somewhere up to that LSN, negated; None: it was refused."""
    def unpacked(self, packed: bytes) -> bytes | None:
        """The records of a compressed batch; None: they are none, and the peer was told."""
    def begin_unit(self) -> None:
        """All that is appended from now on is one atomic unit, at least until the end of the read."""
    def note(self, producer: Producer, sequence: int, count: int, position: int) -> None:
        """A named producer's batch was appended, its first record at `position`."""
    def publish_each(
        self, producer: Producer, sequence: int, acks: int, records: list[tuple[bytes, bytes]]
    ) -> None:
        """Append (properties, body) one by one: the route wants to see each."""
    def may_cumulate(self, consumer: Consumer, request: int) -> bool:
        """Whether cumulative acknowledgements are allowed; if not, the peer was told."""
    def acknowledged(self, consumer: Consumer, request: int) -> None:
        """The peer wants to be told when this acknowledgement is kept."""

class Codec:
    """The frames of one connection."""

    out: OutBuffer
    outgoing: Outgoing
    """The shared state of its consumers."""
    table: RouteTable | None
    """Of the user who is logged in; None: nobody is, and every frame goes to the host."""
    user: bytes
    tells_routed: bool
    """The peer wants to know of each confirmed batch whether a queue or subscription gets it."""
    frame_max: int
    """The largest frame taken, in bytes, the size field not counted."""
    want: int
    """Whole size of the incomplete frame in front; 0: not known, or it fits the buffer."""
    stop_publishes: bool
    """Everything in front of the next PRODUCE is handled, and no more."""
    stopped: bool
    """That one has come; it waits in the input."""
    halted: bool
    """While it is set no frame is looked at."""
    stalled: bool
    """With `halted`: a frame for a handle in `opening` is in front. The code that opens it resets both."""
    def let_go(self) -> None:
        """The connection is lost: nothing is scanned any more. Refer to nobody, so that no cycle is left."""

    @property
    def opening(self) -> set[int]:
        """Handles of consumers that are being opened: their frames wait. See `opening.Opening`."""
    more: bool
    """Whole frames are left, for the next turn: those before them were enough for one."""
    published: int
    """Records appended."""
    confirmed: int
    def __init__(self, out: OutBuffer, appender: Appender, host: Host, frame_max: int) -> None: ...
    def add_producer(self, producer: Producer) -> None:
        """Its handle must not be in use: see `has`."""
    def add_consumer(self, consumer: Consumer) -> None:
        """Its handle must not be in use: see `has`."""
    def producer(self, id: int) -> Producer | None:
        """None: the handle is not in use, or a consumer's."""
    def consumer(self, id: int) -> Consumer | None:
        """None: the handle is not in use, or a producer's."""
    def remove(self, id: int) -> tuple[Producer | None, Consumer | None]:
        """Forget a handle; what it was."""
    def has(self, id: int) -> bool:
        """Whether the handle is in use."""
    def handles(self) -> int:
        """How many are in use."""
    def all_consumers(self) -> list[Consumer]:
        """Those that are open."""
    def receive(self, buffer: Buffer, at: int, size: int) -> int:
        """Handle the whole frames in buffer[at:size], or a turn's share of them; where what is left begins.

        See `want` and `more`.
        """
    def spend(self, size: int) -> None:
        """The frame that is handled takes as long as appending so many bytes."""
    def check_records(self, records: bytes, count: int) -> str:
        """Whether these are `count` records this user may send: "ok", "malformed", "reserved_header" or
        "foreign_user"."""
    def append_records(self, route: Route, key: bytes, records: bytes, count: int) -> int:
        """Append checked records, at least one; the position of the first."""
    def route(self, key: bytes) -> Route:
        """Where records with this key block go."""
    def expect(
        self, id: int, sequence: int, count: int, position: int, lsn: int, synced: bool, routed: bool
    ) -> None:
        """Confirm a batch, or a part of it, when `lsn` is written, or synced.

        `routed`: a queue or subscription gets it, or nobody knows yet.
        """
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
