"""One client session: what of an MQTT client outlives its connection.

Its queue (a cursor over the feeds of its filters), its subscriptions with their options, the packet ids in
both directions, its will, and when it ends. `Clients` makes, keeps and ends it. There may be very many that
are away: what its rows or the router say, too, is read when somebody asks, and forgotten in `rest`.
"""

from __future__ import annotations

import hashlib
from sys import intern
from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass
from penstock.protocols.mqtt.clients.packet_ids import PacketIds
from penstock.protocols.mqtt.clients.rows import session_key
from penstock.protocols.mqtt.codec._packet_ids import Inflight, Received
from penstock.protocols.mqtt.subscriptions.filterset import FilterSet
from penstock.protocols.mqtt.subscriptions.shared import cursor_of
from penstock.router.authorization.identity import Identity

if TYPE_CHECKING:
    from penstock.protocols.mqtt.codec.packets import Will
    from penstock.protocols.mqtt.session.session import Session
    from penstock.protocols.mqtt.subscriptions.filterset import Subscription, Terms
    from penstock.protocols.mqtt.subscriptions.shared import Share
    from penstock.router.authorization.grants import Grants
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Client", "number_of"]


def number_of(vhost: str, client_id: str) -> int:
    """A number of [1, 2^32) that a client id has in every run: records outlive processes.

    Two client ids have the same one by chance once in 4 billion pairs. Sessions that there are at the same
    time are told apart even then (`Clients`).
    """
    digest = hashlib.blake2b(session_key(vhost, client_id), digest_size=4).digest()
    return int.from_bytes(digest, "big") or 1


_NO_TAGS: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class Client:
    """The session of one client id."""

    vhost: Vhost
    client_id: str
    own_queue: Queue | None
    """Its queue; None: it never subscribed to anything, and most clients that only publish never will."""
    number: int
    """Of the session, in the records of its messages (`number_of`): for no-local and groups by publisher."""
    persistent: bool
    """It outlives its connection: what it promises is durable."""
    expiry_s: int = 0
    username: str = ""
    """Whose it is."""
    tags: frozenset[str] = _NO_TAGS
    """The tags of that user."""
    grants: Grants | None = None
    """The rights in the token of its last login; None: it logged in otherwise."""
    loaded_ids: PacketIds | None = None
    """Its packet ids; None: nothing is under way, and nobody has asked for them since its connection went."""
    loaded: FilterSet | None = None
    """Its subscriptions; None: nobody has asked for them since its connection went."""
    next_tag: int = 1
    no_local: int = 0
    """Subscriptions with no-local."""
    connection: Session | None = None
    will: Will | None = None
    will_at: float | None = None
    """When the will of a connection that is gone is published."""
    ends_at: float | None = None
    """When the session ends, while it has no connection."""
    shares: dict[str, Share] | None = None
    """The groups of its shared subscriptions, by filter; None: it never had one."""
    asked: bool = True
    """Its subscriptions are such as its user may have; False: the rules may have become others since."""
    promised: bool = False
    """It was told to a client, so that its rows are durable."""
    ended: bool = False
    row_expiry_s: int = -1
    """`expiry_s` in its row, if that says all but when it ends; -1: it has a will in it, or there is none."""
    row_lsn: int = 0
    """Position of the last row put for it."""
    dirty: bool = False

    def __lt__(self, other: Client) -> bool:
        """The order of timers that are due at the same moment."""
        return self.number < other.number

    @property
    def key(self) -> bytes:
        """Of its rows."""
        return session_key(self.vhost.name, self.client_id)

    @property
    def identity(self) -> Identity:
        """The actor for what the session does."""
        return Identity(self.username, self.tags, self.client_id, self.grants)

    def belongs_to(self, identity: Identity) -> bool:
        """Whether it is this user's. A token's user is never the gateway's own user of that name."""
        return self.username == identity.username and (self.grants is None) is (identity.grants is None)

    def belong(self, identity: Identity) -> None:
        """The session is this user's, with the tags it has now."""
        self.username, self.tags, self.grants = intern(identity.username), identity.tags, identity.grants

    @property
    def queue(self) -> Queue:
        """Its queue, of a session that has one."""
        assert self.own_queue is not None
        return self.own_queue

    # Packet ids

    @property
    def ids(self) -> PacketIds:
        """Its packet ids, read if need be."""
        if self.loaded_ids is None:
            if self.own_queue is None:
                self.loaded_ids = PacketIds(Inflight(), Received(), {})
                return self.loaded_ids
            vhost, cursor = self.vhost, self.own_queue.cursor
            tables = vhost.broker.log.tables
            self.loaded_ids = PacketIds.load(tables, self.key, cursor, lambda qid: cursor_of(vhost, qid))
            for share in (self.shares or {}).values():
                self.joined(share)
        return self.loaded_ids

    def take_queue(self, queue: Queue) -> None:
        """It subscribes for the first time."""
        self.own_queue = queue
        if self.loaded_ids is not None:
            self.loaded_ids.inflight.cursors.append(queue.cursor)

    def joined(self, share: Share) -> None:
        """Messages of a group may come to be under way."""
        joined = [other.queue.cursor for other in (self.shares or {}).values()]
        self.ids.inflight.join(share.queue.cursor, joined)

    # Subscriptions

    @property
    def filters(self) -> FilterSet:
        """Its subscriptions, read if need be."""
        if self.loaded is None:
            memberships = () if self.own_queue is None else self.own_queue.cursor.memberships()
            used = max((tag for _, tag, _, _ in memberships), default=0)
            kept = self.vhost.sessions.filters(self.client_id)
            self.loaded = FilterSet(kept, max(self.next_tag, used + 1))
        return self.loaded

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """By filter."""
        return self.filters.all

    @property
    def by_tag(self) -> dict[int, Terms]:
        """The options of those subscriptions that are not shared."""
        return self.filters.by_tag

    def rest(self) -> None:
        """Nobody works with it for now: forget what can be read again."""
        if not self.persistent:
            return
        self.row_lsn = 0  # its next connection puts a row, and whoever waits for that has waited for this one
        if self.loaded is not None:
            self.next_tag = self.loaded.next_tag
            self.loaded = None
            self.vhost.sessions.rest(self.client_id)
        if self.loaded_ids is not None and self.loaded_ids.settled:
            self.loaded_ids = None
