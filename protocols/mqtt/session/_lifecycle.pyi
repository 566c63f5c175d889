"""The life of a session's connection. The module text is in _lifecycle.pyx."""

from collections.abc import Callable

from penstock.log_core.log import Log
from penstock.protocols.mqtt.clients.client import Client
from penstock.protocols.mqtt.clients.clients import Clients
from penstock.protocols.mqtt.codec._connect import Connect
from penstock.protocols.mqtt.codec._scan import Scanner
from penstock.protocols.mqtt.codec.packets import Will
from penstock.protocols.mqtt.codec.properties import Properties
from penstock.protocols.mqtt.codec.reason_strings import ReasonStrings
from penstock.protocols.mqtt.delivery.delivery import Delivery
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.mqtt.publishing.sys_topics import Counts
from penstock.protocols.mqtt.session._replies import Replies
from penstock.protocols.mqtt.session.authenticating import Authentication
from penstock.protocols.mqtt.session.host import Host
from penstock.protocols.mqtt.session.state import State
from penstock.router.authorization.identity import Identity
from penstock.router.limits.token_buckets import Bucket
from penstock.router.vhost.vhost import Vhost

class SessionLifecycle:
    """A part of `Session`, which derives from it."""

    state: State
    version: int
    want: int
    """Size of the incomplete packet in front of what `receive` left; 0 = not known."""
    bridge: bool
    will: Will | None
    """The will, published when the connection ends otherwise than by DISCONNECT."""
    client: Client | None
    keep_alive_s: float
    _host: Host
    _clients: Clients
    _options: MqttOptions
    _log: Log
    _connect: Connect | None
    _authentication: Authentication | None
    _authenticated: Properties
    """The properties of CONNACK for an authentication by AUTH; empty: there was none."""
    _connect_properties: Properties
    _replies: Replies
    _scanner: Scanner | None
    _delivery: Delivery | None
    _known_words: ReasonStrings | None
    _undecided: Callable[[], None] | None
    """The call to make once the host has decided; nothing is scanned meanwhile."""
    _rates: tuple[tuple[Bucket, bool], ...]
    """The rates that the client is held to; True: a bucket of messages, else of bytes."""
    _units: bool
    _stops_publishes: bool
    _guarded: bool
    _last_input: float
    _max_packet: int
    """The client takes none that is larger."""
    _answers_max: int
    """Answers that wait for the disk; above it the connection is not read."""
    _refused: int
    """Publishes."""
    _packets: int
    """Those that came here one by one, CONNECT first."""
    _published: int

    def __init__(self, host: Host, clients: Clients, options: MqttOptions) -> None: ...
    def receive(self, data: bytearray, size: int, now: float) -> int:
        """Handle data[0:size] at `now` (seconds, any clock that only rises).

        Returns how many bytes are done with; give the rest again with what comes next. Never raises for
        what a peer can send. Then write `out` and look at `want`.
        """

    @property
    def quick(self) -> Scanner | None:
        """The scanner that may take the next read, as far as nobody else has to see it."""

    def answer(self) -> None:
        """Take up the answers to what the quick reader read."""

    def logged_in(self, identity: Identity) -> None:
        """The login was right: open the session. Called by the host after `login`."""

    def force_close(self, reason: str, code: int = ...) -> None:
        """Say goodbye, and why, and close."""

    def taken_over(self) -> None:
        """Another connection of the same client id takes the session (mqtt5:3.1.4-3)."""

    def lost(self) -> None:
        """The connection is gone. Idempotent."""

    def let_go(self) -> None:
        """Break the cycles, when all is counted; the host has let go of the session."""

    @property
    def identity(self) -> Identity:
        """The client that is connected."""

    @property
    def vhost(self) -> Vhost:
        """The vhost it is in."""

    def add_to(self, counts: Counts) -> None:
        """Count what this connection has counted."""

    def counts(self) -> tuple[int, int]:
        """Messages received and delivered on this connection."""

    @property
    def completed(self) -> int:
        """Deliveries of QoS 1 and 2 that the client has acknowledged to the end."""

    def _deliver_to(self, client: Client, properties: Properties, skip_qos0_before: int) -> Delivery:
        """Begin to deliver: to a session that has a queue. `properties` are those of CONNECT."""

    def _connected_by(self, connect: Connect, data: bytearray, size: int, stop: int) -> int:
        """Have the login of a CONNECT judged, which is data[0:stop]."""

    def _save(self) -> None:
        """Put what the scan changed of the packet ids, and say what its answers wait for."""

    def _after_scan(self) -> None:
        """Send the answers that wait for nothing, register for what the others wait for, use freed credit."""

    def _await(self) -> None:
        """Have `durable` called for what answers wait for."""

    def _release(self) -> None:
        """Send the answers whose turn has come; none before CONNACK."""

    def _end(self, reason: str) -> None:
        """Send what is in `out`, then close."""
