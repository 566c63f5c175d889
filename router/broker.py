"""The broker: vhosts, users, permissions, queues and feeds over one log; the one object that front ends get.

`open` puts back everything that is durable from the log's tables, in this order, and only then may anybody
connect:

1. users and permissions; on new data the default user and the default vhost
2. vhosts, their exchanges, their queues and sessions with their cursors
3. bindings: each takes over the feed of its slot; a queue whose record does not have the membership gets it
from the
   binding's position on
4. memberships that no binding asks for are left, feeds that nobody reads are dropped

Knows no protocol.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.router.arguments import decode_table, encode_table
from penstock.router.auth import AuthOptions, Authorizer, Users
from penstock.router.entries import QueueEntry
from penstock.router.errors import AccessRefused, NotFound
from penstock.router.exchanges import Exchange
from penstock.router.feeds import Feeds
from penstock.router.identity import Identity
from penstock.router.metadata import row_key
from penstock.router.queue_methods import dispatch_kind
from penstock.router.retained import Retained
from penstock.router.vhost import Vhost
from penstock.subscriptions.options import QueueOptions
from penstock.subscriptions.queues import Queues

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.router.dead_letters import Rewrite
    from penstock.subscriptions.queue import Queue
    from penstock.subscriptions.tick import Tick

__all__ = ["DEFAULT_VHOST", "Broker", "BrokerOptions"]

logger = logging.getLogger("penstock.router")

DEFAULT_VHOST: Final = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """What the configuration says of the broker itself."""

    auth: AuthOptions = field(default_factory=AuthOptions)
    queues: QueueOptions = field(default_factory=QueueOptions)


class Broker:
    """See the module. Made by `open`."""

    def __init__(self, log: Log, tick: Tick, options: BrokerOptions, rewrite: Rewrite | None = None) -> None:
        self.log = log
        self.tick = tick
        self.queues = Queues(log, tick, options.queues)
        self.queues.on_unneeded = self._unneeded
        self.feeds = Feeds(log, self.queues)
        self.users = Users(log.tables, options.auth)
        self.authorizer = Authorizer(log.tables)
        self.vhosts: dict[str, Vhost] = {}
        self.rewrite = rewrite
        """Makes dead letters; None: queues with a dead-letter exchange cannot be used."""
        self.no_local_sessions = 0
        """MQTT sessions with a no-local subscription: while there are any, records name their session."""

    @classmethod
    def open(
        cls, log: Log, tick: Tick, options: BrokerOptions | None = None, *, rewrite: Rewrite | None = None
    ) -> Broker:
        """The broker as the log's tables have it; made new when they have none."""
        broker = cls(log, tick, options or BrokerOptions(), rewrite)
        # Millions of small objects are made and none is garbage: looking for it takes a third of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            broker._restore()
        finally:
            if collecting:
                gc.enable()
        log.low_water = broker.queues.low_water
        return broker

    # Vhosts

    def vhost(self, name: str) -> Vhost:
        """The vhost of this name.

        Raises:
            NotFound: there is none.

        """
        found = self.vhosts.get(name)
        if found is None:
            raise NotFound("vhost", name, name)
        return found

    def enter(self, identity: Identity, name: str) -> Vhost:
        """The vhost, for an identity that wants to use it.

        Raises:
            NotFound: there is none.
            AccessRefused: the identity has no permissions there.

        """
        found = self.vhost(name)
        if not self.authorizer.enter(identity, name):
            raise AccessRefused("vhost", name, name, identity.username, "read")
        return found

    def create_vhost(self, name: str) -> int:
        """Make a vhost with the predeclared exchanges; fine when there is one. The LSN to wait for."""
        if name in self.vhosts:
            return 0
        self._add_vhost(name)
        self.tick.schedule()
        return self.log.tables.put("vhost", row_key(name), encode_table({"name": name}))

    def _add_vhost(self, name: str) -> Vhost:
        vhost = Vhost(name, self, Retained(name, self.log.tables))
        self.vhosts[name] = vhost
        return vhost

    # At start

    def _restore(self) -> None:
        tables = self.log.tables
        is_new = not any(True for _ in tables.items("vhost"))
        with self.log.unit():
            if is_new:
                self.create_vhost(DEFAULT_VHOST)
            self.users.apply_options(self.authorizer, DEFAULT_VHOST, is_new=is_new)
            for _, value in tables.items("vhost"):
                name = decode_table(value)["name"]
                if name not in self.vhosts:
                    self._add_vhost(name)
            for _, value in tables.items("exchange"):
                self._restore_exchange(decode_table(value))
            for _, value in tables.items("queue"):
                self._restore_queue(decode_table(value))
            # Putting back a binding may put rows of other tables, not of this one.
            for row, value in tables.items("binding"):
                self._restore_binding(row, decode_table(value))
            self._restore_default_slots()
            self._leave_unbound()
            self.feeds.restored()
            self.queues.restored()
            Retained.restore(tables, {name: vhost.retained for name, vhost in self.vhosts.items()})
        self.authorizer.changed = self._permissions_changed

    def _restore_exchange(self, row: dict[str, Any]) -> None:
        vhost = self.vhosts[row["vhost"]]
        vhost.restore_exchange(
            Exchange(
                row["name"],
                row["type"],
                vhost.topology,
                durable=True,
                auto_delete=row["auto_delete"],
                internal=row["internal"],
                arguments=row["arguments"],
            )
        )

    def _restore_queue(self, row: dict[str, Any]) -> None:
        vhost = self.vhosts[row["vhost"]]
        if row["kind"] == "session":
            vhost.sessions.restore(row["name"], row["qid"])
            return
        vhost.restore_queue(
            self.queues.restore(
                row["qid"],
                row["name"],
                row["vhost"],
                kind=dispatch_kind(row["arguments"]),
                auto_delete=row["auto_delete"],
                arguments=row["arguments"],
            )
        )

    def _restore_binding(self, key: bytes, row: dict[str, Any]) -> None:
        vhost = self.vhosts[row["vhost"]]
        ends: dict[str, Mapping[str, QueueEntry | Exchange]] = {
            "exchange": vhost.exchanges,
            "queue": vhost.queues,
            "session": vhost.sessions.entries,
        }
        source = vhost.exchanges.get(row["source"])
        destination = ends[row["kind"]].get(row["destination"])
        if source is None or destination is None:
            logger.error(
                "a binding from exchange %r to %s %r in vhost %r has lost one of them and is left out",
                row["source"],
                row["kind"],
                row["destination"],
                vhost.name,
            )
            return
        vhost.bindings.restore(key, row, source, destination)

    def _restore_default_slots(self) -> None:
        for name, exchange, syntax, pattern in self.feeds.stored_slots():
            vhost = self.vhosts.get(name)
            if vhost is not None and exchange == "" and syntax == "direct":
                vhost.restore_default_slot(pattern)

    def _leave_unbound(self) -> None:
        """A binding of a transient exchange is gone with the last run; what it routed before stays."""
        for vhost in self.vhosts.values():
            for entry in vhost.entries():
                bound = {(slot.feed.id, tag) for slot, tag in entry.slots() if slot.feed is not None}
                for feed_id, tag, _, until in entry.queue.cursor.memberships():
                    if until is None and (feed_id, tag) not in bound:
                        entry.queue.leave(self.log.feed(feed_id), tag)

    def _unneeded(self, queue: Queue) -> None:
        """An auto-delete queue lost its last consumer."""
        self.vhosts[queue.vhost].unneeded(queue.data)

    def _permissions_changed(self, vhost: str) -> None:
        found = self.vhosts.get(vhost)
        if found is not None:
            found.permissions_changed()

    # At the end

    def close(self) -> None:
        """Put what cursors know, end the login threads; after the last connection, before the log closes."""
        self.queues.close()
        self.users.close()

    def statistics(self) -> dict[str, Any]:
        """Figures of the broker and of each vhost."""
        return {
            **self.queues.statistics(),
            "users": len(self.users.names()),
            "vhosts": {name: vhost.statistics() for name, vhost in self.vhosts.items()},
        }
