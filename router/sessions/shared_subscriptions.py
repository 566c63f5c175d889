"""The queues of a vhost's shared subscriptions: outside of AMQP's names, found by name, with one filter each.

The filter is a binding on the MQTT exchange, with slashes. The front end knows the members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.router.arguments import encode_table
from penstock.router.authorization.identity import Identity
from penstock.router.errors import NotFound
from penstock.router.exchanges.entries import QueueEntry
from penstock.router.names import text
from penstock.router.rows import row_key
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.queue.group import Group

if TYPE_CHECKING:
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Shares"]


class Shares:
    """The shared subscriptions of a vhost."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self.entries: dict[str, QueueEntry] = {}
        """By name."""

    def get(self, name: str) -> QueueEntry | None:
        """The one of this name, if there is one."""
        return self.entries.get(name)

    def names(self) -> list[str]:
        """Those that there are."""
        return list(self.entries)

    def queue(self, name: str, *, durable: bool, kind: Kind = Kind.SHARED) -> Group:
        """The queue; made, durable or not, when there is none.

        `kind`: who gets what, SHARED, RANDOM, SINGLE or KEY_SHARED; another one than in the last run is taken
        up.
        """
        entry = self.entries.get(name)
        if entry is None:
            vhost = self._vhost
            with vhost.changing():
                queue = vhost.broker.queues.create(name, vhost.name, durable=durable, kind=kind, cls=Group)
                entry = self._add(name, queue)
                if durable:
                    self._put(entry)
        group = entry.queue
        assert isinstance(group, Group)
        if group.kind is not kind and not group.consumer_count:
            group.become(kind)
        return group

    def keep(self, name: str) -> int:
        """Make a queue that is not durable so, with its filter; the LSN to wait for.

        Earlier messages are promised no more than they were.
        """
        entry = self.entries[name]
        if not entry.durable:
            vhost = self._vhost
            with vhost.changing():
                entry.row = row_key(vhost.name, "share", name)
                entry.lsn = vhost.broker.queues.keep(entry.queue)
                for binding in entry.bindings:
                    entry.lsn = max(entry.lsn, vhost.bindings.keep(binding, text(binding.slot.pattern)))
                self._put(entry)
        return entry.lsn

    def _put(self, entry: QueueEntry) -> None:
        vhost = self._vhost
        row = {"vhost": vhost.name, "kind": "share", "name": entry.name, "qid": entry.queue.qid}
        entry.lsn = vhost.broker.log.tables.put("queue", entry.row, encode_table(row))

    def _add(self, name: str, queue: Queue) -> QueueEntry:
        entry = QueueEntry(
            kind="share",
            queue=queue,
            row=row_key(self._vhost.name, "share", name) if queue.durable else b"",
            effective=queue.arguments,
        )
        queue.data = entry
        self.entries[name] = entry
        return entry

    def restore(self, name: str, qid: int) -> None:
        """Put back the durable queue of the last run; `queue` says of what kind it is."""
        queue = self._vhost.broker.queues.restore(qid, name, self._vhost.name, kind=Kind.SHARED, cls=Group)
        self._add(name, queue)

    def delete(self, name: str) -> int:
        """End one with its messages; the LSN to wait for."""
        entry = self.entries.pop(name, None)
        if entry is None:
            return 0
        with self._vhost.changing():
            return self._vhost.remove_queue(entry)[1]

    def subscribe(self, name: str, topic_filter: str, identity: Identity) -> int:
        """Bind its filter, if it is not; the LSN to wait for.

        Raises:
            AccessRefused: see `Sessions.permit`.
            InvalidPattern: the filter has too many levels.
            NotFound: there is no such queue.

        """
        vhost = self._vhost
        vhost.sessions.permit(identity, topic_filter)
        entry = self.entries.get(name)
        if entry is None:
            raise NotFound("queue", name, vhost.name)
        with vhost.changing():
            binding, _ = vhost.bindings.add(vhost.mqtt_exchange, entry, topic_filter, {})
        return max(binding.lsn, entry.lsn)
