"""The MQTT sessions of one vhost: queues outside the names of AMQP, with subscriptions instead of bindings.

A session's queue has one consumer at most and belongs to a client id, not to a connection. Its subscriptions
bind topic filters, slashed, on the MQTT exchange. A durable session and its subscriptions survive a restart;
what else a session is (options, packet ids, expiry) is the MQTT front end's, in a table of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.router.arguments import encode_table
from penstock.router.entries import QueueEntry
from penstock.router.errors import AccessRefused, NotFound
from penstock.router.identity import Identity
from penstock.router.metadata import row_key
from penstock.subscriptions.dispatch import Kind

if TYPE_CHECKING:
    from penstock.router.vhost import Vhost
    from penstock.subscriptions.queue import Queue

__all__ = ["Sessions", "Subscribed", "Unsubscribed"]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """What came of a subscription."""

    new: bool
    """False: the session had this filter already."""
    lsn: int
    """Wait for it before the subscription is promised; 0 when nothing is durable."""


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """What came of taking a subscription back."""

    existed: bool
    lsn: int
    """Wait for it before it is promised; 0 when nothing was durable."""


class Sessions:
    """See the module."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self.entries: dict[str, QueueEntry] = {}
        """By client id."""

    def __len__(self) -> int:
        return len(self.entries)

    def client_ids(self) -> list[str]:
        """The client ids that have a session."""
        return list(self.entries)

    def queue(self, client_id: str, *, durable: bool) -> Queue:
        """The session's queue; made, durable or not, when there is none."""
        entry = self.entries.get(client_id)
        if entry is None:
            vhost = self._vhost
            with vhost.changing():
                queue = vhost.broker.queues.create(
                    client_id, vhost.name, durable=durable, kind=Kind.EXCLUSIVE
                )
                entry = self._add(client_id, queue, durable)
                if durable:
                    row = {
                        "vhost": vhost.name,
                        "kind": "session",
                        "name": client_id,
                        "qid": queue.qid,
                        "auto_delete": False,
                        "arguments": {},
                    }
                    entry.lsn = vhost.broker.log.tables.put("queue", entry.row, encode_table(row))
        return entry.queue

    def _add(self, client_id: str, queue: Queue, durable: bool) -> QueueEntry:
        vhost = self._vhost
        entry = QueueEntry(
            kind="session",
            name=client_id,
            queue=queue,
            durable=durable,
            owner=None,
            auto_delete=False,
            arguments={},
            row=row_key(vhost.name, "session", client_id) if durable else b"",
        )
        queue.data = entry
        self.entries[client_id] = entry
        return entry

    def restore(self, client_id: str, qid: int) -> None:
        """Put back the durable session of the last run."""
        queue = self._vhost.broker.queues.restore(qid, client_id, self._vhost.name, kind=Kind.EXCLUSIVE)
        self._add(client_id, queue, True)

    def get(self, client_id: str) -> QueueEntry | None:
        """The session's entry, if there is one."""
        return self.entries.get(client_id)

    def declared_lsn(self, client_id: str) -> int:
        """Wait for it before a session is promised to exist; 0 when it is not durable."""
        entry = self.entries.get(client_id)
        return 0 if entry is None else entry.lsn

    def delete(self, client_id: str) -> int:
        """End a session with its subscriptions and messages; the LSN to wait for."""
        entry = self.entries.pop(client_id, None)
        if entry is None:
            return 0
        with self._vhost.changing():
            return self._vhost.remove_queue(entry)[1]

    def subscribe(self, client_id: str, topic_filter: str, tag: int, identity: Identity) -> Subscribed:
        """Bind a filter; its messages carry `tag`. The same filter again only gets the new tag.

        Raises:
            AccessRefused: the user may not read from the MQTT exchange.
            InvalidPattern: the filter has too many levels.
            NotFound: there is no such session.

        """
        vhost = self._vhost
        source = vhost.mqtt_exchange
        if not vhost.broker.authorizer.allow(identity, vhost.name, "read", source.name):
            raise AccessRefused("exchange", source.name, vhost.name, identity.username, "read")
        entry = self.entries.get(client_id)
        if entry is None:
            raise NotFound("queue", client_id, vhost.name)
        with vhost.changing():
            binding, new = vhost.bindings.add(source, entry, topic_filter, {}, tag)
            if not new:
                vhost.bindings.retag(binding, tag)
        return Subscribed(new, max(binding.lsn, entry.lsn))

    def unsubscribe(self, client_id: str, topic_filter: str) -> Unsubscribed:
        """Take a filter back; what was routed by it until now stays."""
        vhost = self._vhost
        entry = self.entries.get(client_id)
        binding = None if entry is None else vhost.bindings.find(vhost.mqtt_exchange, entry, topic_filter, {})
        if binding is None:
            return Unsubscribed(False, 0)
        with vhost.changing():
            return Unsubscribed(True, vhost.bindings.remove(binding))
