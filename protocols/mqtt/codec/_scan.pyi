"""The face of the kernel `_scan`; how it works stands in _scan.pyx."""

from typing import Final

from penstock.log_core.batch._appender import Appender
from penstock.protocols.mqtt.codec._packet_ids import Inflight, Received
from penstock.protocols.net._stream import QuickReader
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.router.routes._routes import Route, RouteTable

MORE: Final[int]
"""`scan`: everything whole is done; `want` is the size of the packet that is not, if known."""
PACKET: Final[int]
"""`scan`: a packet for Python: `kind`, `flags`, body [start, stop)."""
PUBLISH: Final[int]
"""`scan`: a PUBLISH that Python has to publish, then `acknowledge`; payload [start, stop)."""
RETAIN: Final[int]
"""`scan`: a PUBLISH that is appended and is also to be the retained one; payload [start, stop)."""
UNIT: Final[int]
"""`scan`: the first QoS 2 message of a persistent session, not done: scan from `at` inside an atomic unit."""
FAULT: Final[int]
"""`scan`: the packet at `at` breaks a rule: `fault` (reason code) and `complaint` (words)."""

NOW: Final[int]
WRITTEN: Final[int]
SYNCED: Final[int]

class Scanner(QuickReader):
    """The input side of one connection after CONNECT."""

    version: int
    max_packet: int
    receive_maximum: int
    alias_maximum: int
    max_levels: int
    origin: int
    """Put into the records, for no-local; 0 = none."""
    stop_publishes: bool
    """Input in front of the next PUBLISH is handled, and no more."""
    stopped: bool
    """That one has come; it waits in the input."""
    unit: bool
    """The caller scans inside an atomic unit of the log."""
    texts: dict[int, bytes] | None
    """Texts besides the reason codes of PUBACK, PUBREC, PUBREL and PUBCOMP: property blocks with their
    length, up to 120 bytes; None: nothing."""
    persistent: bool
    """The session outlives the connection: QoS 2 state is durable before it is told."""
    table: RouteTable
    inflight: Inflight
    received: Received

    at: int
    """After `scan`: where to go on."""
    start: int
    stop: int
    kind: int
    flags: int
    fault: int
    complaint: str
    qos: int
    retain: bool
    packet_id: int
    ttl_ms: int
    topic: bytes
    block: bytes
    """Properties without length and topic alias."""
    route: Route
    lsn: int
    published: int
    """PUBLISH packets accepted."""
    published_bytes: int
    """Of their payloads."""
    acknowledged: int
    """Acknowledgements read."""
    completed: int
    """Of them, those that end a delivery: PUBACK and PUBCOMP."""
    await_written: int
    """The highest position that an answer ever waited for, class written."""
    await_synced: int
    """The same, class synced."""
    unstamped: bool
    """Answers wait for a row that is to be put: then call `stamp`."""
    used: int
    """Of the receive maximum."""

    def __init__(
        self, appender: Appender, table: RouteTable, inflight: Inflight, received: Received, version: int
    ) -> None: ...
    def scan(self, data: bytes | bytearray | memoryview, at: int, end: int) -> int:
        """Work through data[at:end) until something is for Python; one of the constants above.

        Nothing of `data` is kept. Never raises for what the bytes are.
        """

    def begin(self, data: bytes | bytearray | memoryview, at: int, end: int) -> int:
        """`scan`, or, when a quick read stopped at something in the same data, what that was."""

    @property
    def quiet(self) -> bool:
        """Nothing waits to be answered, put or delivered because of what was scanned."""

    @property
    def answered(self) -> int:
        """Answers that have left."""

    @property
    def waiting(self) -> int:
        """Answers that have not left."""

    def acknowledge(self, lsn: int, wait: int, reason: int) -> None:
        """Answer the PUBLISH of the last event when `lsn` has reached class `wait`; nothing for QoS 0."""

    def push_pubrels(self, packet_ids: list[int]) -> None:
        """Have PUBREL sent for these; of a persistent session after `stamp`."""

    def raise_last(self, lsn: int) -> None:
        """The answer to the PUBLISH of the last event also waits for `lsn`, synced."""

    def stamp(self, lsn: int) -> None:
        """The rows that unstamped answers speak of are at `lsn`."""

    def release(self, written: int, synced: int, out: OutBuffer) -> int:
        """Encode the answers whose turn has come, in order; how many."""
