"""The output side of a connection, as each has it. The module text is in _lifecycle.pyx."""

from collections import deque
from collections.abc import Callable

from penstock.log_core.log import Log
from penstock.protocols.mqtt.clients.clients import Client, Clients
from penstock.protocols.mqtt.codec._deliver import Deliverer, SessionFastPath
from penstock.protocols.mqtt.codec._packet_ids import Inflight
from penstock.protocols.mqtt.codec.properties import Properties
from penstock.protocols.mqtt.delivery.replays import Replays
from penstock.protocols.mqtt.delivery.retained import RetainedDelivery
from penstock.protocols.mqtt.session.host import Host
from penstock.protocols.mqtt.subscriptions.shared import Member
from penstock.subscriptions.cursor._cursor import Cursor

class DeliveryLifecycle:
    """A part of `Delivery`, which derives from it."""

    priority: int
    released: list[int]
    """Packet ids to send PUBREL for, before anything else."""
    _host: Host
    _clients: Clients
    _client: Client
    _log: Log
    _version: int
    _send_pubrels: Callable[[list[int]], None]
    _deliverer: Deliverer
    _way: SessionFastPath | None
    _inflight: Inflight
    _held: deque[tuple[int, bytes]] | None
    """Packets by the position that they wait for."""
    _shared_again: deque[tuple[int, int, Cursor]] | None
    _retained: RetainedDelivery | None
    _replays: Replays | None
    _members: dict[str, Member] | None
    _qos_above_0: bool
    _open: bool
    _loading: bool
    _is_filtered: bool

    def __init__(
        self,
        host: Host,
        clients: Clients,
        client: Client,
        version: int,
        properties: Properties,
        window: int,
        skip_qos0_before: int,
        send_pubrels: Callable[[list[int]], None],
        cancelled: Callable[[str], None],
    ) -> None:
        """Take up what was under way to the client.

        Args:
            host: The connection.
            clients: Where packet ids are put.
            client: The session.
            version: Of the protocol.
            properties: Of CONNECT.
            window: Messages of QoS 1 and 2 that may be under way, [1, 65535].
            skip_qos0_before: Messages of QoS 0 below this position are not for the client: it was away.
            send_pubrels: Sends PUBREL for these packet ids, whose row has been put.
            cancelled: Called when the queue is gone.

        """

    @property
    def delivered(self) -> int:
        """Messages sent."""

    @property
    def delivered_bytes(self) -> int:
        """Bytes of their payloads."""

    @property
    def skipped(self) -> int:
        """Messages that were too large for the client."""

    def start(self) -> None:
        """CONNACK has left."""

    def stop(self) -> None:
        """The connection is over."""

    def let_go(self) -> None:
        """Break the cycles, when all is counted; it was stopped, and what comes late finds it so."""

    def credit_gained(self) -> None:
        """Packet ids are free again, or there is room for output."""

    def release(self) -> None:
        """Send what waited for its packet ids to be durable. Call it when the log has synced."""

    def peer(self) -> str:
        """The connection's name."""

    def credit(self) -> int:
        """Messages that may be delivered now."""

    def credit_at(self, qos: int) -> int:
        """The same for messages of this QoS, or above 0 for any other."""

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        """Encode items of the cursor; how many were taken."""

    def cancelled(self, reason: str) -> None:
        """The queue is gone: somebody deleted it."""

    def _after_delivery(self) -> None:
        """Have the packet ids put, hold back what waits for that, send PUBRELs."""
