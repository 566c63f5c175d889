"""One client session: what of an MQTT client outlives its connection.

Its queue (a cursor over the feeds of its filters), its subscriptions with their options, the packet ids in
both directions, its will, and when it ends. `Clients` makes, keeps and ends it. There may be very many that
are away: what its rows or the router say, too, is read when somebody asks, and forgotten in `rest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocols.mqtt.clients._client import ClientFields, number_of
from penstock.protocols.mqtt.clients.packet_ids import PacketIds, load
from penstock.protocols.mqtt.clients.rows import OUT, QOS2_IN, session_key
from penstock.protocols.mqtt.subscriptions.filterset import FilterSet
from penstock.protocols.mqtt.subscriptions.shared import cursor_of

if TYPE_CHECKING:
    from penstock.protocols.mqtt.subscriptions.filterset import Subscription, Terms
    from penstock.protocols.mqtt.subscriptions.shared import Share
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Client", "number_of"]


class Client(ClientFields):
    """The session of one client id."""

    __slots__ = ()

    def __lt__(self, other: Client) -> bool:
        """The order of timers that are due at the same moment."""
        return self.number < other.number

    @property
    def key(self) -> bytes:
        """Of its rows."""
        return session_key(self.vhost.name, self.client_id)

    @property
    def queue(self) -> Queue:
        """Its queue, of a session that has one."""
        assert self.own_queue is not None
        return self.own_queue

    # Packet ids

    def load_ids(self) -> PacketIds:
        """Read them: those of a session with a queue. Then its shared subscriptions join."""
        vhost, cursor = self.vhost, self.queue.cursor
        tables = vhost.broker.log.tables
        self.loaded_ids = load(tables, self.key, cursor, lambda qid: cursor_of(vhost, qid))
        self.has_id_rows = any(tables.get(table, self.key) is not None for table in (OUT, QOS2_IN))
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
