"""The named subscriptions of one vhost: queues outside the names of AMQP, each on one stream.

A subscription belongs to its stream and goes with it. A durable one survives a restart; one that is not goes
with its last consumer. Its options are queue arguments, in the row of the table `queue`:

    x-stream, x-subscription    the stream's name and its own
    x-subscription-kind         who gets what (`subscriptions.dispatch.strategies.Kind`, by value)
    x-sticky                    key-shared: consumers say which slots they want
    x-ack-timeout-ms            deliveries that are not settled for so long are given back; 0 or absent: never
    x-nack-min-ms, x-nack-max-ms    how long what was given back waits; it doubles from the one to the other
    x-delivery-limit, x-dead-letter-exchange, x-dead-letter-routing-key     as of any queue
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.router.arguments import Arguments, encode_table
from penstock.router.errors import Inequivalent, LimitReached, NotFound
from penstock.router.exchanges.entries import QueueEntry
from penstock.router.limits.limits import over
from penstock.router.names import ENC_AMQP091, join_key_block
from penstock.router.queues.arguments import rules_of
from penstock.router.queues.dead_letters import bury_of
from penstock.router.rows import row_key
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.streams.stream import Stream
from penstock.subscriptions.streams.subscription import Subscription

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Subscriptions"]

logger = logging.getLogger("penstock.router")

KIND: Final = "subscription"


class Subscriptions:
    """See the module."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self.entries: dict[tuple[str, str], QueueEntry] = {}
        """By the names of the stream and of the subscription."""

    def __len__(self) -> int:
        return len(self.entries)

    def of(self, stream: str) -> dict[str, Subscription]:
        """Those of a stream, by name."""
        found = {}
        for (topic, name), entry in self.entries.items():
            if topic == stream:
                assert isinstance(entry.queue, Subscription)
                found[name] = entry.queue
        return found

    def get(self, stream: str, name: str) -> Subscription:
        """The subscription of that name.

        Raises:
            NotFound: there is none.

        """
        entry = self.entries.get((stream, name))
        if entry is None:
            raise NotFound("subscription", f"{stream}/{name}", self._vhost.name)
        assert isinstance(entry.queue, Subscription)
        return entry.queue

    def open(
        self,
        stream: Stream,
        name: str,
        kind: Kind,
        options: Arguments,
        *,
        identity: Identity,
        durable: bool,
        position: int,
    ) -> tuple[Subscription, int]:
        """The subscription, and the LSN to wait for before it is promised (0: none).

        Args:
            options: Its arguments, those in the module text.
            identity: The user, who needs the right to read the stream, and for a new one also the right to
                publish to its dead-letter queue.
            position: Where a new one begins; one that is there is where it is.

        Raises:
            Inequivalent: it is there with another kind or other options.
            NotFound: the stream was deleted, perhaps while the position was looked for; or there is no such
                dead-letter queue.
            AccessRefused: dead letters may not be published there.
            LimitReached: the vhost has as many queues and subscriptions as it may have.

        """
        if stream.deleted:
            raise NotFound("queue", stream.name, self._vhost.name)
        entry = self.entries.get((stream.name, name))
        arguments = {
            **options,
            "x-stream": stream.name,
            "x-subscription": name,
            "x-subscription-kind": kind.value,
        }
        if entry is not None:
            self._check(entry, arguments, durable)
            assert isinstance(entry.queue, Subscription)
            return entry.queue, entry.lsn
        vhost = self._vhost
        most = over(vhost.limits, "max-queues", vhost.queue_count)
        if most is not None:
            raise LimitReached("vhost-queues", most, vhost=vhost.name, name=f"{stream.name}/{name}")
        letters = options.get("x-dead-letter-routing-key")
        if isinstance(letters, str):
            vhost.publishing.require(identity, ENC_AMQP091, join_key_block("", letters))
            if letters not in vhost.queues:
                raise NotFound("queue", letters, vhost.name)
        with vhost.changing():
            queue = vhost.broker.queues.create(
                f"{stream.name}/{name}",
                vhost.name,
                durable=durable,
                kind=kind,
                auto_delete=not durable,
                arguments=arguments,
                cls=Subscription,
            )
            assert isinstance(queue, Subscription)
            entry = self._add(stream, queue)
            entry.lsn = queue.begin(stream, position)
            if durable:
                row = {
                    "vhost": vhost.name,
                    "kind": KIND,
                    "name": queue.name,
                    "qid": queue.qid,
                    "auto_delete": False,
                    "arguments": arguments,
                }
                entry.lsn = max(entry.lsn, vhost.broker.log.tables.put("queue", entry.row, encode_table(row)))
        return queue, entry.lsn

    def _check(self, entry: QueueEntry, arguments: Arguments, durable: bool) -> None:
        for name in sorted(set(arguments) | set(entry.arguments)):
            if arguments.get(name) != entry.arguments.get(name):
                values = arguments.get(name), entry.arguments.get(name)
                raise Inequivalent("subscription", entry.name, self._vhost.name, name, *values)
        if durable != entry.durable:
            raise Inequivalent(
                "subscription", entry.name, self._vhost.name, "durable", durable, entry.durable
            )

    def _add(self, stream: Stream, queue: Subscription) -> QueueEntry:
        vhost, name = self._vhost, str(queue.arguments["x-subscription"])
        entry = QueueEntry(
            kind=KIND,
            queue=queue,
            row=row_key(vhost.name, KIND, stream.name, name) if queue.durable else b"",
            effective=queue.arguments,
            own_feed=stream.feed,
        )
        queue.data = entry
        self.entries[stream.name, name] = entry
        queue.apply(rules_of(entry.effective, bury_of(vhost, entry)))
        return entry

    def restore(self, qid: int, name: str, arguments: Arguments) -> None:
        """Put back a durable one of the last run.

        One without its stream is forgotten: versions before this could make it while the stream was deleted.
        """
        topic = str(arguments["x-stream"])
        found = self._vhost.queues.get(topic)
        stream = None if found is None else found.queue
        if not isinstance(stream, Stream):
            logger.warning("the subscription %r has no stream any more, and is forgotten", name)
            row = row_key(self._vhost.name, KIND, topic, str(arguments["x-subscription"]))
            self._vhost.broker.log.tables.delete("queue", row)
            return
        queue = self._vhost.broker.queues.restore(
            qid,
            name,
            self._vhost.name,
            kind=Kind(arguments["x-subscription-kind"]),
            arguments=arguments,
            cls=Subscription,
        )
        assert isinstance(queue, Subscription)
        self._add(stream, queue)
        queue.resume(stream)

    def delete(self, stream: str, name: str) -> int:
        """End one; the LSN to wait for.

        Raises:
            NotFound: there is none.

        """
        entry = self.entries.get((stream, name))
        if entry is None:
            raise NotFound("subscription", f"{stream}/{name}", self._vhost.name)
        return self.remove(entry)

    def remove(self, entry: QueueEntry) -> int:
        """End the one of an entry that is there; the LSN to wait for."""
        self.entries.pop((str(entry.arguments["x-stream"]), str(entry.arguments["x-subscription"])), None)
        with self._vhost.changing():
            _, lsn = entry.queue.delete()
            if entry.row:
                lsn = max(lsn, self._vhost.broker.log.tables.delete("queue", entry.row))
        return lsn

    def stream_deleted(self, stream: str) -> int:
        """Those of a stream go with it; the LSN to wait for."""
        gone = [entry for (topic, _), entry in self.entries.items() if topic == stream]
        return max((self.remove(entry) for entry in gone), default=0)
