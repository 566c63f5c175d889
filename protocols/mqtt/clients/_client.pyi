"""The fields of a client session. The module text is in _client.pyx."""

from penstock.protocols.mqtt.clients.packet_ids import Retained
from penstock.protocols.mqtt.codec._packet_ids import Inflight, Received
from penstock.protocols.mqtt.codec.packets import Will
from penstock.protocols.mqtt.session.session import Session
from penstock.protocols.mqtt.subscriptions.filterset import FilterSet
from penstock.protocols.mqtt.subscriptions.shared import Share
from penstock.router.authorization.grants import Grants
from penstock.router.authorization.identity import Identity
from penstock.router.vhost.vhost import Vhost
from penstock.subscriptions.queue.queue import Queue

def number_of(vhost: str, client_id: str) -> int:
    """A number of [1, 2^32) that a client id has in every run: records outlive processes.

    Two client ids have the same one by chance once in 4 billion pairs. Sessions that there are at the same
    time are told apart even then (`Clients`).
    """

class PacketIds:
    """Of one session."""

    tokens: dict[int, Retained]
    """Retained messages under way, by the token that the packet id stands for."""
    next_token: int

    def __init__(self, inflight: Inflight, received: Received) -> None: ...
    @property
    def inflight(self) -> Inflight:
        """From us to the client."""

    @property
    def received(self) -> Received:
        """From the client to us, at QoS 2."""

    @property
    def settled(self) -> bool:
        """Nothing is under way, and the rows say all there is to know."""

class ClientFields:
    """A part of `Client`, which derives from it."""

    vhost: Vhost
    client_id: str
    own_queue: Queue | None
    """Its queue; None: it never subscribed to anything, and most clients that only publish never will."""
    number: int
    """Of the session, in the records of its messages (`number_of`): for no-local and groups by publisher."""
    persistent: bool
    """It outlives its connection: what it promises is durable."""
    expiry_s: int
    username: str
    """Whose it is."""
    tags: frozenset[str]
    """The tags of that user."""
    grants: Grants | None
    """The rights in the token of its last login; None: it logged in otherwise."""
    loaded_ids: PacketIds | None
    """Its packet ids; None: nothing is under way, and nobody has asked for them since its connection went."""
    loaded: FilterSet | None
    """Its subscriptions; None: nobody has asked for them since its connection went."""
    next_tag: int
    no_local: int
    """Subscriptions with no-local."""
    connection: Session | None
    will: Will | None
    will_at: float | None
    """When the will of a connection that is gone is published."""
    ends_at: float | None
    """When the session ends, while it has no connection."""
    shares: dict[str, Share] | None
    """The groups of its shared subscriptions, by filter; None: it never had one."""
    asked: bool
    """Its subscriptions are such as its user may have; False: the rules may have become others since."""
    promised: bool
    """It was told to a client, so that its rows are durable."""
    ended: bool
    row_expiry_s: int
    """`expiry_s` in its row, if that says all but when it ends; -1: it has a will in it, or there is none."""
    row_lsn: int
    """Position of the last row put for it."""
    dirty: bool
    has_id_rows: bool
    """There may be rows of its packet ids."""
    ends_late: bool
    """Its row does not say yet when it ends; see `rows`."""
    most_qos: int
    """Of its subscriptions that are not shared, as of the last time that they were read; -1: never."""
    slot: int
    """The last slot of time in which timers have it, which has not begun; 0: none."""

    def __init__(
        self,
        vhost: Vhost,
        client_id: str,
        own_queue: Queue | None,
        number: int,
        persistent: bool,
        expiry_s: int = 0,
    ) -> None: ...
    @property
    def ids(self) -> PacketIds:
        """Its packet ids, read if need be."""

    def load_ids(self) -> PacketIds:
        """Read them. `Client`'s."""

    @property
    def identity(self) -> Identity:
        """The actor for what the session does."""

    def belongs_to(self, identity: Identity) -> bool:
        """Whether it is this user's. A token's user is never the gateway's own user of that name."""

    def belong(self, identity: Identity) -> None:
        """The session is this user's, with the tags it has now."""

    def rest(self) -> None:
        """Nobody works with it for now: forget what can be read again."""
