"""The broker: vhosts, users, permissions, queues and feeds over one log; the one object that front ends get.

`open` puts back everything that is durable from the log's tables, in this order, and only then may anybody
connect:

1. users and permissions; on new data the default user and the default vhost
2. vhosts, their policies, their exchanges, their queues and sessions with their cursors
3. bindings: each takes over the feed of its slot; a queue whose record does not have the membership gets it
from the
   binding's position on
4. memberships that no binding asks for are left, feeds that nobody reads are dropped

Knows no protocol.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from penstock.collector import uncollected
from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass
from penstock.router.administration import Administration
from penstock.router.arguments import decode_table, encode_table
from penstock.router.audit import Audit, AuditOptions
from penstock.router.authentication.tokens import Tokens
from penstock.router.authentication.users import AuthOptions, Users
from penstock.router.authentication.web_sessions import WebSessions
from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Authorizer
from penstock.router.errors import AccessRefused, AuthenticationRefused, NotFound
from penstock.router.exchanges.deduplication import restore as restore_seen
from penstock.router.exchanges.entries import QueueEntry
from penstock.router.exchanges.exchanges import Exchange
from penstock.router.exchanges.feeds import Feeds
from penstock.router.limits.backlog_quotas import Gate, Quotas
from penstock.router.limits.rate_quotas import Rates
from penstock.router.messages.delayed import Delayed
from penstock.router.messages.half import Halves
from penstock.router.messages.retained import Retained
from penstock.router.parameters import Parameters
from penstock.router.policies.policies import Policy
from penstock.router.row_formats import check_format
from penstock.router.rows import row_key
from penstock.router.sessions.filters import TABLE as FILTERS
from penstock.router.sessions.filters import split_page_key
from penstock.router.sessions.sessions import TABLE as SESSIONS
from penstock.router.sessions.sessions import split_row
from penstock.router.shared_state import SHARED
from penstock.router.vhost.connections import Connections
from penstock.router.vhost.partitions import DEFAULT_VHOST, Partitions
from penstock.router.vhost.queue_methods import dispatch_kind
from penstock.router.vhost.state import VhostMetadata
from penstock.router.vhost.vhost import Vhost
from penstock.subscriptions.options import QueueOptions
from penstock.subscriptions.queues import Queues

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log_core.batch._batch import Record
    from penstock.log_core.log import Log
    from penstock.router.arguments import Arguments
    from penstock.router.authentication.oauth import OAuth
    from penstock.router.authentication.users import UserOptions
    from penstock.router.messages.delayed import DelayWords
    from penstock.router.queues.dead_letters import Rewrite
    from penstock.router.rows import Tables
    from penstock.subscriptions.queue.queue import Queue
    from penstock.subscriptions.tick.tick import Tick

__all__ = ["DEFAULT_VHOST", "Broker", "BrokerOptions"]

logger = logging.getLogger("penstock.router")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Options of the broker itself."""

    auth: AuthOptions = field(default_factory=AuthOptions)
    queues: QueueOptions = field(default_factory=QueueOptions)
    backlog_quotas: Mapping[str, int] = field(default_factory=dict)
    """Limits of vhosts that have none of that name (`limits.BACKLOG_BYTES` and the like)."""
    audit: AuditOptions = field(default_factory=AuditOptions)
    node: str = "localhost"
    """The name of this machine among the nodes of a cluster."""
    worker: int = 0
    """The number of this worker; 0 has the users, the permissions and the list of vhosts."""
    workers: int = 1
    """How many there are."""


class Broker:
    """See the module. Made by `open`."""

    def __init__(
        self,
        log: Log,
        tick: Tick,
        options: BrokerOptions,
        rewrite: Rewrite | None = None,
        delay_words: DelayWords | None = None,
        shared: Tables | None = None,
        oauth: OAuth | None = None,
    ) -> None:
        self.log = log
        self.options = options
        process = f"penstock-{options.worker}" if options.worker else "penstock"
        self.node = f"{process}@{options.node}"
        """The name of this node in the API, and for clients that ask where a queue is."""
        self.shared: Tables = log.tables if shared is None else shared
        """The tables that all workers have in common (`shared_state`)."""
        self.tick = tick
        self.queues = Queues(log, tick, options.queues)
        self.queues.on_unneeded = self._unneeded
        self.feeds = Feeds(log, self.queues)
        self.partitions = Partitions(log.tables)
        self.users = Users(self.shared, options.auth, oauth)
        self.audit = Audit(log, options.audit, options.worker, tick.after)
        """The audit log. Each worker has one of its own actions."""
        self.users.on_refused.append(self._login_refused)
        self.tokens = Tokens(self.shared, self.users)
        self.web_sessions = WebSessions(self.shared, self.users)
        self.authorizer = Authorizer(self.shared)
        self.parameters = Parameters(log.tables)
        """Run-time parameters, which others act on."""
        self.connections = Connections(self.users.limits, tick.after)
        """The connections of all front ends."""
        self.on_permissions_changed: list[Callable[[str, str], None]] = []
        """Called with the user and the vhost: for what lives on without a connection, as MQTT sessions do.
        Connections are told by `connections`."""
        self.end_session: Callable[[Vhost, str], int] = lambda vhost, client_id: 0
        """Ends the MQTT session of a client id; the LSN to wait for. Its front end sets this."""
        self.on_topology_changed: list[Callable[[str], None]] = []
        """Called with the name of a vhost, often: it has other exchanges, queues, bindings, filters or
        policies than before."""
        self.on_policies_changed: list[Callable[[Vhost, Sequence[Policy]], None]] = []
        """Called with the vhost, and the policies that came, went or changed: for the queues of MQTT
        sessions, whose rules are their front end's."""
        self.administration = Administration(self)
        self.vhosts: dict[str, Vhost] = {}
        """Those of this worker."""
        self._elsewhere: dict[str, int] = {}
        self.elsewhere: Callable[[str], int | None] = self._elsewhere.get
        """The worker that has the vhost of a name; None: this one, or there is none."""
        self.gate = Gate(self.queues)
        """Refuses in the routes of vhosts that are over a quota."""
        self.quotas = Quotas(log, tick, self.vhosts, options.backlog_quotas)
        """Which vhosts are full."""
        self.rates = Rates(self.users, self.vhosts)
        """How much may be published per second."""
        self.rewrite = rewrite
        """Makes dead letters; None: queues with a dead-letter exchange cannot be used."""
        self.annotated: Callable[[Record, bytes], Record] | None = None
        """The record with the note that consumers left on it (`Cursor.note`); None: they leave none."""
        self.headers_of: Callable[[Record], Arguments] | None = None
        """Tells the headers of a record; None: no backfill through headers exchanges."""
        self.dead_letters: Counter[tuple[str, str, bool]] = Counter()
        """Published again, by the type of their queue, the reason, and whether at least once."""
        self.delayed = Delayed(self, delay_words)
        """Messages that wait for their time."""
        self.halves = Halves(self)
        """Messages that wait for their producer's word."""
        self._origin_readers = 0

    @property
    def origin_readers(self) -> int:
        """MQTT subscriptions with no-local, and groups by publisher: while there are any, records name their
        session.
        """
        return self._origin_readers

    @origin_readers.setter
    def origin_readers(self, count: int) -> None:
        self._origin_readers = count
        self.log.appender.keeps_origins = count > 0

    @classmethod
    def open(
        cls,
        log: Log,
        tick: Tick,
        options: BrokerOptions | None = None,
        *,
        rewrite: Rewrite | None = None,
        delay_words: DelayWords | None = None,
        shared: Tables | None = None,
        oauth: OAuth | None = None,
    ) -> Broker:
        """The broker as the log's tables have it; made new when they have none.

        `shared`: the tables that workers have in common, when there are several. `oauth` is closed with the
        broker.

        Raises:
            StartError: a vhost belongs to a worker that there is not.

        """
        broker = cls(log, tick, options or BrokerOptions(), rewrite, delay_words, shared, oauth)
        with uncollected():
            broker._restore()
            broker._leave_strays()
        log.low_water = broker.queues.low_water
        log.mark_needs = broker.queues.needs
        broker.delayed.start()
        broker.halves.start()
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
        found = self.vhosts.get(name) or self.vhost(name)
        if not self.authorizer.enter(identity, name):
            raise AccessRefused("vhost", name, name, identity.username, "read")
        return found

    # Workers

    def knows(self, name: str) -> bool:
        """Whether some worker has a vhost of this name."""
        return name in self.vhosts or name in self._elsewhere

    def names(self) -> list[str]:
        """The vhosts of all workers."""
        return [*self.vhosts, *self._elsewhere]

    def place(self) -> int:
        """The worker for a new vhost: one that has the fewest."""
        counts = [0] * self.options.workers
        counts[self.options.worker] = len(self.vhosts)
        for worker in self._elsewhere.values():
            counts[worker] += 1
        return counts.index(min(counts))

    # For `administration` and `shared_state`

    def vhost_row(self, name: str) -> dict[str, Any]:
        """The row of a vhost of another worker."""
        value = self.shared.get("vhost", row_key(name))
        assert value is not None
        return decode_table(value)

    def put_elsewhere(self, row: dict[str, Any]) -> int:
        """Put the row of a vhost of another worker, which is told; the LSN to wait for."""
        self._elsewhere[row["name"]] = row["worker"]
        return self.shared.put("vhost", row_key(row["name"]), encode_table(row))

    def remove_elsewhere(self, name: str) -> int:
        """Forget a vhost that another worker had; the LSN to wait for."""
        del self._elsewhere[name]
        return self.shared.delete("vhost", row_key(name))

    def apply_vhost(self, row: dict[str, Any]) -> None:
        """A vhost is so from now on, says worker 0."""
        if row.get("worker", 0) == self.options.worker:
            self._restore_vhost(row)
            self.tick.schedule()
        else:
            self._elsewhere[row["name"]] = row.get("worker", 0)

    def forget_vhost(self, name: str) -> None:
        """There is no vhost of this name any more, says worker 0."""
        self._elsewhere.pop(name, None)

    def add_vhost(self, name: str) -> Vhost:
        """A new vhost with the predeclared exchanges; `save_vhost` makes it durable."""
        vhost = Vhost(name, self, Retained(name, self.log.tables), self.partitions.of(name))
        self.vhosts[name] = vhost
        self.quotas.limits_changed()
        return vhost

    def save_vhost(self, vhost: Vhost) -> int:
        """Put the vhost's row; the LSN to wait for."""
        row: dict[str, Any] = {"name": vhost.name, **asdict(vhost.metadata), "limits": vhost.limits}
        if self.options.worker:
            row["worker"] = self.options.worker
        return self.shared.put("vhost", row_key(vhost.name), encode_table(row))

    def remove_vhost(self, vhost: Vhost) -> int:
        """Forget a vhost that is empty; the LSN to wait for."""
        del self.vhosts[vhost.name]
        vhost.set_limits({})
        lsn = self.parameters.clear_vhost(vhost.name)
        return max(lsn, self.shared.delete("vhost", row_key(vhost.name)))

    # At start

    def _restore(self) -> None:
        tables = self.log.tables
        is_new = not any(True for _ in self.shared.items("vhost"))
        with self.log.unit():
            check_format(tables)
            if self.options.worker == 0:
                if is_new:
                    self.save_vhost(self.add_vhost(DEFAULT_VHOST))
                self.users.apply_options(self.authorizer, DEFAULT_VHOST, is_new=is_new)
            known = [decode_table(value) for _, value in self.shared.items("vhost")]
            self._check_workers(known)
            for one in known:
                self.apply_vhost(one)
            for name in self._strays():
                self.add_vhost(name)
            for _, value in tables.items("policy"):
                self._restore_policy(decode_table(value))
            for name, thing, kept, feed in self.feeds.stored_retention_feeds():
                self.vhosts[name].retentions.restore(thing, kept, feed)
            for vhost in self.vhosts.values():
                vhost.retentions.refresh()
            for _, value in tables.items("exchange"):
                self._restore_exchange(decode_table(value))
            restore_seen(self.log, self.vhosts)
            subscriptions = []
            for key, value in tables.items("queue"):
                queue = decode_table(value)
                if queue.get("kind") == "subscription":  # which needs its stream
                    subscriptions.append((key, queue))
                else:
                    self._restore_queue(key, queue)
            for key, queue in subscriptions:
                self._restore_queue(key, queue)
            self._restore_sessions()
            # Putting back a binding may put rows of other tables, not of this one.
            for row, value in tables.items("binding"):
                self._restore_binding(row, decode_table(value))
            self._restore_default_slots()
            self._leave_unbound()
            self.feeds.restored()
            self.queues.restored()
            Retained.restore(tables, {name: vhost.retained for name, vhost in self.vhosts.items()})
        self.authorizer.changed = self._permissions_changed

    def _check_workers(self, rows: list[dict[str, Any]]) -> None:
        """Whether there is a worker for each vhost."""
        count = self.options.workers
        homeless = {row["name"]: row["worker"] for row in rows if row.get("worker", 0) >= count}
        if homeless:
            named = ", ".join(f"'{name}'" for name in sorted(homeless)[:10])
            raise StartError(
                f"server.workers is {count}, but vhosts belong to further workers: {named}",
                remedy=f"set server.workers to {max(homeless.values()) + 1}; with "
                "fewer only when these vhosts are deleted",
            )

    def _strays(self) -> list[str]:
        """Vhosts that were this worker's, or whose rows came along with the copy that its log began as, and
        which belong to another one since (`penstock log move`)."""
        tables, mine = self.log.tables, self.options.worker
        # Every log has a number for that one, whether anything of it was ever there.
        copied = mine == 0 or tables.get("vhost", row_key(DEFAULT_VHOST)) is not None
        known = (name for name, _ in self.partitions.items())
        return [name for name in known if name in self._elsewhere and (copied or name != DEFAULT_VHOST)]

    def _leave_strays(self) -> None:
        """Remove what is in them, from this log only."""
        tables = self.log.tables
        with self.log.unit():
            for name in self._strays():
                self.vhosts[name].clear()
                del self.vhosts[name]
            if self.options.worker:
                for table in SHARED:  # worker 0's, which such a copy has, too
                    for key in list(tables.keys(table)):
                        tables.delete(table, key)

    def _restore_vhost(self, row: dict[str, Any]) -> None:
        name = row.pop("name")
        row.pop("worker", None)
        vhost = self.vhosts.get(name) or self.add_vhost(name)
        vhost.set_limits(row.pop("limits", {}))
        vhost.metadata = VhostMetadata(**{**row, "tags": tuple(row.get("tags", ()))})

    def _restore_policy(self, row: dict[str, Any]) -> None:
        vhost = self.vhosts[row.pop("vhost")]
        vhost.policies.restore(row.pop("kind"), Policy(**row))

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

    def _restore_queue(self, key: bytes, row: dict[str, Any]) -> None:
        vhost = self.vhosts[row["vhost"]]
        if row.get("kind") == "share":
            vhost.shares.restore(row["name"], row["qid"])
            return
        arguments = row.get("arguments", {})
        if row.get("kind") == "subscription":
            vhost.subscriptions.restore(row["qid"], row["name"], arguments)
            return
        vhost.restore_queue(
            self.queues.restore(
                row["qid"],
                row["name"],
                vhost.name,
                kind=dispatch_kind(arguments),
                priority_max=arguments.get("x-max-priority", 0),
                auto_delete=row.get("auto_delete", False),
                arguments=arguments,
            ),
            key,
        )

    def _restore_sessions(self) -> None:
        tables, sessions = self.log.tables, {}
        for key, value in tables.items(SESSIONS):
            qid = int.from_bytes(key, "big")
            name, client_id, own = split_row(value)
            registry = self.vhosts[name].sessions
            sessions[qid] = registry, registry.restore(qid, client_id, own)
        # A filter that several have may put rows of other tables, not of this one.
        for key, value in tables.items(FILTERS):
            qid, page = split_page_key(key)
            registry, entry = sessions[qid]
            registry.restore_page(entry, page, value)

    def _restore_binding(self, key: bytes, row: dict[str, Any]) -> None:
        vhost = self.vhosts[row["vhost"]]
        ends: dict[str, Mapping[str, QueueEntry | Exchange]] = {
            "exchange": vhost.exchanges,
            "queue": vhost.queues,
            "share": vhost.shares.entries,
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
            # Sessions have no transient exchange to lose.
            for entry in (*vhost.queues.values(), *vhost.shares.entries.values()):
                if not entry.queue.cursor.member_count:
                    continue
                if entry.own_feed is not None:
                    bound = {entry.own_feed.id}
                else:
                    bound = {slot.feed.id for slot in entry.slots() if slot.feed is not None}
                for feed_id, _, _, until in entry.queue.cursor.memberships():
                    if until is None and feed_id not in bound:
                        entry.queue.leave(self.log.feed(feed_id))

    def _unneeded(self, queue: Queue) -> None:
        """An auto-delete queue lost its last consumer."""
        self.vhosts[queue.vhost].unneeded(queue.data)

    def _permissions_changed(self, user: str, vhost: str) -> None:
        found = self.vhosts.get(vhost)
        if found is None:
            return
        found.permissions_changed()
        self.connections.permissions_changed(user, vhost)
        for told in self.on_permissions_changed:
            told(user, vhost)

    def rights_changed(self) -> None:
        """Ask again what users may do: it has changed for reasons other than their permissions."""
        for user in self.users.names():
            for vhost in self.vhosts:
                self._permissions_changed(user, vhost)

    async def follow_users(self, users: Sequence[UserOptions]) -> None:
        """Bring users of the configuration into the tables, as a start does."""
        await self.users.follow(users, self.authorizer, DEFAULT_VHOST)

    # At the end

    def close(self) -> None:
        """Put what cursors know, end the login threads; after the last connection, before the log closes."""
        self.audit.close()
        self.delayed.close()
        self.halves.close()
        self.queues.close()
        self.users.close()
        for vhost in self.vhosts.values():
            vhost.publishing.close()

    def _login_refused(self, protocol: str, error: AuthenticationRefused, peer: str) -> None:
        self.audit.login_refused(protocol, error.username, peer, error.reason)

    def statistics(self) -> dict[str, Any]:
        """Figures of the broker and of each vhost."""
        return {
            **self.queues.statistics(),
            **self.delayed.statistics(),
            **self.halves.statistics(),
            "users": len(self.users.names()),
            "vhosts": {name: vhost.statistics() for name, vhost in self.vhosts.items()},
        }
