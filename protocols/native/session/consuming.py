"""The consumers of one connection: consumers of subscriptions, queues and readers; delayed returns.

A consumer of a subscription or a queue gives back what it holds when it is closed or its connection is lost.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.protocols.native.codec._consumer import Consumer
from penstock.protocols.native.codec.errors import RequestError
from penstock.protocols.native.session.redelivery import DelayedRedelivery
from penstock.router.errors import RoutingError
from penstock.subscriptions.dispatch.strategies import Kind
from penstock.subscriptions.fault_isolation import guarded
from penstock.subscriptions.streams.subscription import Subscription

if TYPE_CHECKING:
    from penstock.protocols.native.session.session import Session
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Consuming"]

logger: Final = logging.getLogger("penstock.native")

_NACK_MIN_MS: Final = 1000
_NACK_MAX_MS: Final = 60_000


class Consuming:
    """See the module."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timers: dict[Consumer, Any] = {}
        """Of acknowledgement timeouts, of those that have something out."""
        self._delayed_redelivery = DelayedRedelivery(session.broker.tick)

    # Handles

    def attach(
        self,
        handle: int,
        queue: Queue,
        *,
        priority: int = 0,
        auto: bool = False,
        exclusive: bool = False,
        unacked_max: int = 0,
        name: str = "",
        ranges: list[tuple[int, int]] | None = None,
    ) -> Consumer:
        """A new consumer of `queue`; `unacked_max`: what it may have out, 0: as options say.

        Raises ConsumerRefused, QueueGone.
        """
        session = self._session
        most = session.options.max_unacked
        consumer = Consumer(
            session.codec.outgoing,
            handle,
            queue,
            session,
            session.output_capacity,
            priority=priority,
            auto=auto,
            unacked_max=min(unacked_max or most, most),
            name=name,
            ranges=ranges,
        )
        consumer.attached = True
        queue.attach(consumer, exclusive=exclusive)
        session.codec.add_consumer(consumer)
        timeout_ms = queue.arguments.get("x-ack-timeout-ms")
        if isinstance(timeout_ms, int) and timeout_ms:
            self._watch(consumer, timeout_ms / 1000)
        return consumer

    @staticmethod
    def holder(queue: Queue) -> Session | None:
        """Whose consumer lets no other one in; None: there is none like that in this protocol."""
        if queue.kind is not Kind.EXCLUSIVE:
            return None
        consumer = queue.active
        return cast("Session", consumer.host) if isinstance(consumer, Consumer) else None

    def detach(self, consumer: Consumer) -> None:
        """It is closed: what it holds goes back."""
        if consumer.attached:
            consumer.attached = False
            consumer.release()
            consumer.queue.detach(consumer)
        self._forget(consumer)

    def _forget(self, consumer: Consumer) -> None:
        consumer.watch = None
        timer = self._timers.pop(consumer, None)
        if timer is not None:
            timer.cancel()
        consumer.end_pulls()

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """The queue let go of it."""
        self._forget(consumer)
        if not consumer.queue.deleted:
            consumer.release()
        self._session.codec.remove(consumer.id)
        self._session.event(consumer.id, {"event": "closed", "reason": reason})

    def voided(self, consumer: Consumer) -> None:
        """Its subscription goes on elsewhere."""
        self._session.event(consumer.id, {"event": "void", "next_tag": consumer.next})

    def lost(self) -> None:
        """The connection is gone."""
        for consumer in self._session.codec.all_consumers():
            self._session.codec.remove(consumer.id)
            self.detach(consumer)

    def wake(self) -> None:
        """There is room for output again."""
        for consumer in self._session.codec.all_consumers():
            if consumer.attached:
                consumer.queue.credit_gained(consumer)

    def permissions_changed(self) -> None:
        """Those of what the user may not read any more are closed."""
        session = self._session
        for consumer in session.codec.all_consumers():
            queue = consumer.queue
            name = queue.stream.name if isinstance(queue, Subscription) else queue.name
            try:
                session.vhost.queue(name, session.actor, "read")
            except RoutingError as error:
                session.codec.remove(consumer.id)
                self.detach(consumer)
                session.event(consumer.id, {"event": "closed", "reason": error.message})

    # Settling

    def may_cumulate(self, consumer: Consumer, request: int) -> bool:
        """Cumulative acknowledgements are for those that get everything."""
        if consumer.queue.kind not in (Kind.SHARED, Kind.KEY_SHARED):
            return True
        error = RequestError(
            "not_cumulative",
            f"a {consumer.queue.kind.value} subscription has no cumulative acknowledgements",
            remedy="acknowledge one by one, or ranges",
        )
        if request:
            self._session.answer_error(request, error)
        else:
            self._session.fail(error)
        return False

    def acknowledged(self, consumer: Consumer, request: int) -> None:
        """Answer when what is settled is kept."""
        queue = consumer.queue
        self._session.answer(request, {}, 0 if queue.deleted else queue.promise())

    def give_back_later(
        self, consumer: Consumer, cursor: Cursor, seq: int, count: int, delay_ms: int
    ) -> None:
        """It comes back after a delay, whatever becomes of its consumer; a restart brings it back at once."""
        if delay_ms < 0:
            arguments = consumer.queue.arguments
            least = int(arguments.get("x-nack-min-ms", _NACK_MIN_MS))
            most = int(arguments.get("x-nack-max-ms", _NACK_MAX_MS))
            delay_ms = min(least << min(count, 30), most)
        if delay_ms == 0:
            cursor.requeue(seq)
        else:
            self._delayed_redelivery.later(cursor, seq, delay_ms)

    def _watch(self, consumer: Consumer, timeout_s: float) -> None:
        """Give back what is out for too long. No time runs while nothing is out: there may be thousands."""
        tick = self._session.broker.tick

        def begin() -> None:
            self._timers[consumer] = tick.after(timeout_s, again)

        def expire(now: float) -> None:
            if consumer.expire(now - timeout_s):
                consumer.feed()

        def again() -> None:
            now = tick.time()
            what = "what was not settled in time could not be given back; it is tried again later"
            failed = not guarded(logger, what, expire, now)
            oldest = consumer.oldest()
            if oldest is None:
                del self._timers[consumer]
                consumer.watch = begin
            else:
                wait_s = timeout_s if failed else max(oldest + timeout_s - now, 0.001)
                self._timers[consumer] = tick.after(wait_s, again)

        consumer.watch = begin
