"""The registry of client sessions. The module text is in _registry.pyx."""

from collections.abc import Callable

from penstock.log_core.log import Log
from penstock.protocols.mqtt.clients._timers import Timers
from penstock.protocols.mqtt.clients.client import Client
from penstock.protocols.mqtt.codec.packets import Will
from penstock.router.authorization.identity import Identity
from penstock.router.broker import Broker
from penstock.router.vhost.vhost import Vhost
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.tick.tick import Tick

class Registry:
    """A part of `Clients`, which derives from it."""

    broker: Broker
    log: Log
    tick: Tick
    connections: int
    """Sessions that are connected."""
    connections_maximum: int
    accepted: int
    """Connections ever."""
    sockets: int
    """Sockets ever, of clients that said nothing, too."""
    _clock: Callable[[], float]
    _connect_rate: int
    on_deadline: Callable[[], None]
    """Called when `Clients.deadline` may have come nearer."""

    def __init__(self, broker: Broker, clock: Callable[[], float], factory: type[Client]) -> None: ...
    @property
    def _all(self) -> dict[str, dict[str, Client]]:
        """By vhost and client id."""

    @property
    def _timers(self) -> Timers:
        """Of wills and session ends."""

    def find(self, vhost: str, client_id: str) -> Client | None:
        """The session of a client id, if there is one."""

    def restored(self, vhost: Vhost, client_id: str, queue: Queue, expiry_s: int) -> Client:
        """A session that was before this process."""

    def create(self, vhost: Vhost, client_id: str, identity: Identity, expiry_s: int) -> Client:
        """A new session; the last one of that client id was ended.

        One that ends with its connection has no queue before it subscribes.
        """

    def give_queue(self, client: Client) -> None:
        """Make the session's queue, of one that has none. `Clients`'."""

    def end(self, client: Client) -> int:
        """The session is over: its will goes out, its queue and rows go. The LSN to wait for, or 0."""

    def clean_up(self, client: Client) -> int:
        """As `end`, of one that has more than its name. `Clients`'."""

    def connected(self, client: Client, identity: Identity, expiry_s: int) -> None:
        """The session has a connection (again)."""

    def came_back(self, client: Client, identity: Identity, expiry_s: int) -> None:
        """The same, of one that may have been there before. `Clients`'."""

    def disconnected(self, client: Client, will: Will | None) -> None:
        """The session lost its connection; `will` is to be published if it has one."""

    def left(self, client: Client, will: Will | None) -> None:
        """The same, of one that leaves something behind. `Clients`'."""

    def await_end(self, client: Client) -> None:
        """A session whose rows say the rest has no connection: from now on its time runs out."""

    def arm(self, at: float, client: Client, now: float) -> None:
        """Have `Clients.handle_deadline` called at the client's `will_at` or `ends_at`, which is `at`."""
