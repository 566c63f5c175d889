"""A tail: new messages of an exchange, a topic, a queue or a stream, for one listener; it takes none from
anybody.

A tail of an exchange is a transient queue of its own, bound with a pattern, without acknowledgements; that of
a queue reads what is routed to the queue; that of a stream is a reader. It slows nobody: of what a listener
does not take, all above a mebibyte is dropped, and he is told how many. Messages from the past that he asked
for, and those that a stream keeps, wait for him.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.shared.rights import may_read
from penstock.protocols.http.shared.taking import Delivery
from penstock.router.authorization.identity import BROKER, Actor, Identity
from penstock.router.errors import AccessRefused, NotFound, TopicRefused
from penstock.router.names import binding_key, text, wildcards_are_alone, wire
from penstock.router.queues.backfill import ARGUMENT

if TYPE_CHECKING:
    from penstock.log_core.batch._batch import Record
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.queue import Queue
    from penstock.subscriptions.streams.stream import Stream

__all__ = ["PENDING_MAX", "Tail", "Tails"]

PENDING_MAX: Final = 1 << 20
"""Bytes of bodies that wait for one listener."""
_TAILS_MAX: Final = 1000
_DEFAULT: Final = "amq.default"
"""The name of the default exchange in a path."""
_AT_ONCE: Final = 1024
_ALWAYS: Final = 2**64


class Tail:
    """One listener: the consumer of its queue."""

    priority = 0

    def __init__(
        self,
        queue: Queue,
        more: Callable[[], None],
        *,
        patient_until: int = 0,
        may_see: Callable[[Record], bool] | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """`more` is called when there is something to take, or it ended. Below the LSN `patient_until`
        nothing is dropped. `may_see`: whether the listener may see a message; None: all of them."""
        self._queue = queue
        self._more = more
        self._patient_until = patient_until
        self._may_see = may_see
        self._close = close
        self._size = 0
        self._last_lsn = 0
        self.pending: deque[Delivery] = deque()
        self.skipped = 0
        self.ended = ""
        """Why nothing more comes."""

    def credit(self) -> int:
        return 0 if self._size > PENDING_MAX and self._last_lsn < self._patient_until else _AT_ONCE

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        records = cursor.records()
        took = 0
        for at in range(first, len(records), step):
            seq, lsn, _, count, redelivered = records[at]
            full = self._size > PENDING_MAX
            if full and lsn < self._patient_until:
                break
            self._last_lsn = lsn
            if full and self._may_see is None:
                self.skipped += 1
            else:
                batch, index = cursor.record(at)
                record = batch.record(index)
                if self._may_see is not None and not self._may_see(record):
                    pass
                elif full:
                    self.skipped += 1
                else:
                    self.pending.append(Delivery(self._queue, seq, record, redelivered, count))
                    self._size += len(record.body) + 256
            cursor.settle(seq)
            took += 1
        self._more()
        return took

    def cancelled(self, reason: str) -> None:
        self.ended = self.ended or reason
        self._more()

    def take(self) -> Delivery | None:
        """The next one."""
        if not self.pending:
            return None
        delivery = self.pending.popleft()
        waited = self._size > PENDING_MAX
        self._size -= len(delivery.record.body) + 256
        if waited and self._size <= PENDING_MAX:
            self._queue.credit_gained()
        return delivery

    def close(self) -> None:
        """The listener is gone."""
        self.ended = self.ended or "closed"
        close, self._close = self._close, lambda: None
        close()


class Tails:
    """All of a gateway."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._count = 0

    def check(self, identity: Identity, vhost: Vhost, exchange: str, pattern: str) -> None:
        """Whether the user may listen there. Raises AccessRefused, TopicRefused, NotFound."""
        allowed, key = self._broker.authorizer, wire(pattern)
        if not allowed.allow(identity, vhost.name, "read", exchange):
            raise AccessRefused("exchange", exchange, vhost.name, identity.username, "read")
        source = vhost.exchanges.get("" if exchange == _DEFAULT else exchange)
        if source is None or not exchange:
            raise NotFound("exchange", exchange, vhost.name)
        if source.is_topic and not allowed.allow_topic(identity, vhost.name, "read", exchange, key):
            raise TopicRefused(exchange, vhost.name, identity.username, "read", key)

    def exchange(
        self,
        identity: Identity,
        vhost: Vhost,
        exchange: str,
        pattern: str,
        more: Callable[[], None],
        *,
        since: str = "",
    ) -> Tail:
        """Listen at an exchange; with `since` first to what it routed from there on, as far as it is kept.

        Of the default exchange, `amq.default`, a pattern with the wildcards of topics says which messages;
        of these the user sees those to queues that he may read.

        Raises:
            RoutingError: it is not there, or not for this user.
            HttpError: 503, there are too many.

        """
        self.check(identity, vhost, exchange, pattern)
        self._admit()
        # A user who may read the exchange may have this queue, whatever names he may declare.
        actor = Actor(BROKER, object())
        queue = vhost.declare_queue("", actor, exclusive=True).queue
        arguments = {ARGUMENT: since} if since else None
        try:
            if exchange == _DEFAULT:
                bound = vhost.tail_default_exchange(queue.name, pattern, actor, arguments)
            else:
                bound = vhost.bind_queue_since(queue.name, exchange, pattern, actor, arguments)
        except Exception:
            vhost.connection_closed(actor.owner)
            raise

        def close() -> None:
            self._count -= 1
            vhost.connection_closed(actor.owner)

        until = self._broker.log.appender.next_lsn if since else 0
        may_see = partial(self._may_see, identity, vhost) if exchange == _DEFAULT else None
        tail = Tail(queue, more, patient_until=until, may_see=may_see, close=close)
        self._count += 1
        if bound.history is not None:
            bound.history(lambda ok: None if ok else tail.cancelled("what was before could not be read"))
        queue.attach(tail)
        self._broker.tick.schedule()
        return tail

    def _may_see(self, identity: Identity, vhost: Vhost, record: Record) -> bool:
        return may_read(self._broker, identity, vhost, record.enc, record.key)

    def queue(self, queue: Queue, position: int, more: Callable[[], None]) -> Tail:
        """Listen to what is routed to a queue; 0: from now on, else first to what was from a position on,
        which is in memory (`Replay.wants`). Raises HttpError 503."""
        until = self._broker.log.appender.next_lsn
        return self._read(
            lambda: self._broker.queues.follow(queue, position or until), more, until if position else 0
        )

    def stream(self, stream: Stream, offset: int, more: Callable[[], None]) -> Tail:
        """Listen to a stream from an offset on. Raises HttpError 503."""
        return self._read(lambda: stream.reader(offset), more, _ALWAYS)

    def _read(self, open_reader: Callable[[], Queue], more: Callable[[], None], patient_until: int) -> Tail:
        """Listen to a queue that ends with its consumer."""
        self._admit()
        reader = open_reader()

        def close() -> None:
            self._count -= 1
            reader.detach(tail)

        tail = Tail(reader, more, patient_until=patient_until, close=close)
        self._count += 1
        reader.attach(tail)
        self._broker.tick.schedule()
        return tail

    def _admit(self) -> None:
        if self._count >= _TAILS_MAX:
            raise HttpError(503, "too_many_tails", f"there are {_TAILS_MAX} tails already", retry_after_s=60)


def pattern_of(topic_filter: str) -> str:
    """The binding key of an MQTT topic filter. Raises HttpError 400."""
    if not wildcards_are_alone(topic_filter):
        raise HttpError(
            400, "bad_field", "topic: + is alone in its level of a topic filter, # alone in the last one"
        )
    return text(binding_key(wire(topic_filter)))
