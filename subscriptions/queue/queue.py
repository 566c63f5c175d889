"""One queue: an AMQP queue or an MQTT session, with a cursor, its consumers, and when it is served.

Owns the attached consumers and the queue's place on the tick's ready list. A queue without consumers costs
this object and its cursor, and nothing at a publish. A queue is in one of three states:

    ready     on the tick's ready list (`cursor.scheduled`), pumped in the next turn
    waiting   at its feeds (`Feed.waiters`): it is caught up, and a consumer has credit
    idle      no consumer, no credit, or a load is running; `attach`, `credit_gained` and the load's end
              wake it

Does not know what its name means, who bound it, nor any protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.cursor._events import delivered
from penstock.subscriptions.dispatch.strategies import Kind, Pause
from penstock.subscriptions.queue._served_queue import ServedQueue
from penstock.subscriptions.queue.limits import NO_RULES, Limits, Rules

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.log_core.maintenance._seal import Needs
    from penstock.subscriptions.dispatch._consumers import Consumers
    from penstock.subscriptions.dispatch.consumer import QueueConsumer
    from penstock.subscriptions.tick.tick import Pumped

__all__ = ["RUNS_PROMISED", "Getter", "Queue"]

logger = logging.getLogger("penstock.subscriptions")

Getter = Callable[[Cursor | None], None]
"""Called with the cursor whose items[0] is the message, or None: the queue is empty (or gone)."""

RUNS_MAX: Final = 1000
"""Of a state record while the queue is in use: what is left out is delivered again after a crash."""
RUNS_PROMISED: Final = 1 << 20
"""The same where that was promised not to be, and at a clean stop."""

NO_LIMIT: Final = 65_536
"""Of deliveries, as a cursor has it."""


class Queue(ServedQueue):
    """One queue. Made by `Queues.create` or `Queues.restore`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Queue {self.vhost!r} {self.name!r}{' deleted' if self.deleted else ''}>"

    def apply(self, rules: Rules) -> None:
        """Live by these rules from now on, instead of those before; no message is lost by that."""
        if self.cursor.has_rules or rules != NO_RULES:
            self._tell_cursor(rules)
        self.cursor.touch()  # a limit may hide what is over it
        self._queues.idle.lease(self, rules.expires_ms)
        if self._limits is None:
            if rules.passive:
                return
            self._limits = Limits(self)
        if not self._limits.change(rules):
            self._limits.close()
            self._limits = None
        self.wake()

    def _tell_cursor(self, rules: Rules) -> None:
        its = self.cursor.rules
        its.ttl_ms = _number(rules.ttl_ms)
        its.length_max = _number(rules.max_length) if rules.refuses else -1
        if its.bytes_max != _number(rules.max_bytes):
            self.cursor.limit_bytes(_number(rules.max_bytes), gathers=not rules.caps)
        its.refuses_bytes = rules.refuses
        limit = rules.delivery_limit
        its.delivery_limit = NO_LIMIT if limit is None else min(limit, NO_LIMIT)
        its.tells_count = rules.tells_count

    @property
    def outstanding_max(self) -> int:
        """Deliveries that may be out before it hands out no more."""
        return self._queues.options.outstanding_max

    def mark_dirty(self) -> None:
        """Part of its cursor: the state record is out of date."""
        self._queues.mark_dirty(self)

    # Memberships

    def join(self, feed: Feed, from_pos: int | None = None, tag: int = 0) -> int:
        """Get what is pushed to `feed` from now on, or from position `from_pos` on.

        Returns:
            The LSN to wait for (`log.when_synced`) before this is promised; 0 when nothing is durable.

        """
        members = self.cursor.member_count
        self.waits = False
        if self.cursor.join(feed, from_pos, tag):
            # An ended membership that goes on is counted already.
            if self.cursor.member_count > members:
                self._queues.used(feed)
            if self._consumers or self._limits is not None:
                self.wake()
        for follower in self._followers():
            follower.join(feed, from_pos, tag)
        return self.persist()

    def join_part(self, feed: Feed, from_pos: int, to_pos: int | None = None, tag: int = 0) -> int:
        """Get what `feed` has in positions [from_pos, to_pos); the LSN to wait for, as of `join`."""
        self.waits = False
        self.cursor.join_part(feed, from_pos, to_pos, tag)
        self._queues.used(feed)
        self.wake()
        return self.persist()

    def leave(self, feed: Feed, tag: int = 0) -> int:
        """Get nothing more of `feed`; what it has so far stays. Returns the LSN to wait for, or 0."""
        if self.cursor.leave(feed, tag):
            self._reap()
        for follower in self._followers():
            follower.leave(feed, tag)
        return self.persist()

    def leave_out(self, position: int) -> None:
        """A record that was just appended to one of its feeds is not for this queue."""
        for one in (self, *self._followers()):
            one.cursor.refuse(position)

    def _followers(self) -> Iterable[Queue]:
        """Those who get what it gets."""
        followers = self._queues.followers
        return followers.get(self, ()) if followers else ()

    def persist(self) -> int:
        """Put the state record now, if it changed; the LSN of it, or 0."""
        return self._queues.persist_one(self)

    def promise(self) -> int:
        """The same for who promises that what is settled so far stays so, after a crash, too.

        From now on its records say all of that, however many stretches it makes: one that left some out
        would take the promise back.
        """
        self._promises = True
        return self.persist()

    @property
    def runs_max(self) -> int:
        """How many stretches its state records have at most."""
        return RUNS_PROMISED if self._promises else RUNS_MAX

    def _reap(self) -> None:
        for feed in self.cursor.reap():
            self._queues.unused(feed)

    # Consumers

    @property
    def consumers(self) -> list[QueueConsumer]:
        """A list of the attached consumers: the active one first, then the highest priority first."""
        return list(self._consumers) if self._consumers is not None else []

    @property
    def consumer_set(self) -> Consumers:
        """The attached consumers, of which there is one at least."""
        assert self._consumers is not None
        return self._consumers

    @property
    def is_sole(self) -> bool:
        """Whether its consumer lets no other one in."""
        return self._sole

    def consumer_failed(self, consumer: QueueConsumer, first: int, step: int) -> None:
        """It raised while it encoded its slice of the last take: let go of it. Called in an except clause."""
        # Nobody knows what it encoded before it failed: everything unsettled of its share goes back.
        logger.exception("a consumer failed; it is detached", extra={"queue": self.name})
        self.cursor.put_back(first, step)
        self.detach(consumer)
        consumer.cancelled("the consumer failed")

    # Serving

    def pump_behind(self, other: Pumped) -> None:
        """Have `other` pumped once, behind this queue where that is woken already."""
        self._queues.tick.ready(other)

    def pump_now(self) -> None:
        """Hand out before the next turn, if messages are handed out at all now."""
        if self._queues.tick.held:
            self.wake()
        else:
            self.pump()

    def share_out(self, budget: int) -> Pause:
        """Hand out, for kinds that only subscriptions have."""
        raise NotImplementedError

    def load(self, position: int = 0) -> bool:
        """Ask for a position, or what the last take missed in memory; False when it missed nothing.

        The queue is not served before it is there.
        """
        cursor = self.cursor
        if position or cursor.cold:
            self._loading += 1
            self._queues.log.load(position or cursor.cold, self.release)
        elif cursor.cold_feed is not None:
            self._loading += 1
            self._queues.log.load_feed(cursor.cold_feed, cursor.cold_index, self.release)
        else:
            return False
        return True

    @property
    def is_reading(self) -> bool:
        """Messages to hand out are on their way from the disk: it is not known to be empty."""
        return self._loading > 0

    def _await_write(self) -> None:
        """Be woken when all that was appended so far may be seen: this turn, or when a full disk has room."""
        if not self._awaiting:
            self._awaiting = True
            log = self._queues.log
            log.when_visible(log.appender.next_lsn - 1, self._on_written)
            self._queues.tick.schedule()

    def _on_written(self, ok: bool) -> None:
        self._awaiting = False
        if ok:
            self.wake()

    def hold(self) -> None:
        """Hand out nothing until `release`, which is called as often."""
        self._loading += 1

    def release(self) -> None:
        """Go on."""
        self._loading -= 1
        self.wake()

    # Getting

    def get(self, getter: Getter) -> None:
        """Take one message for `getter`: now, or after a load or this turn's write when it lies there.

        `getter` is called with the cursor, whose items[0] is the message and which is out until it is
        settled or requeued, or with None when the queue is empty. Consumers with credit come first, then
        earlier getters.
        """
        if self.deleted:
            getter(None)
            return
        self.used()
        if self._getters is None:
            self._getters = []
        self._getters.append(getter)
        if self._limits is not None:
            self.wake()
            if not self._consumers and not self._loading and not self._limits.shorten():
                return
        if self._consumers or self._queues.tick.held:
            # In this turn, once they have got what they have credit for; or when messages are handed out.
            self.wake()
        elif len(self._getters) == 1 and not self._loading:
            self._serve_getters()

    @property
    def has_getters(self) -> bool:
        """Whether somebody waits for a message that was asked for with `get`."""
        return bool(self._getters)

    def _serve_getters(self) -> None:
        """Answer all, or those up to one that waits for a load or a write."""
        getters = self._getters
        while getters:
            cursor = self.cursor
            n = cursor.take(1)
            if n == 0 and self.load():
                return
            if n == 0 and (cursor.unwritten or cursor.held or cursor.more):
                self._await_write()
                return
            getter = getters.pop(0)
            self.delivered += n
            self.got += n
            delivered(cursor, 0, 1, n, None)
            settled = cursor.settled
            getter(cursor if n else None)
            self.unasked += cursor.settled - settled
            self.unasked_got += cursor.settled - settled
        self._getters = None

    def low(self) -> int:
        """The lowest position of the log it still needs; 2^64 - 1 when none."""
        return self.cursor.low()

    def needs(self, needs: Needs) -> tuple[Feed, int] | None:
        """Mark which records of a segment it still needs; see `Cursor.needs`."""
        return self.cursor.needs(needs)

    # Whole-queue operations

    @property
    def ready_count(self) -> int:
        """Messages that wait to be handed out."""
        n = self.cursor.ready_count()
        return n if self._limits is None else self._limits.ready_count(n)

    def count_ready(self) -> int:
        """`ready_count`, once what has expired at the head is dropped, as far as memory tells."""
        if not self._loading and not self.deleted:
            self.cursor.trim()
        return self.ready_count

    def refuses(self, size: int, *, before: int = 0, before_bytes: int = 0) -> bool:
        """Whether one more message, with a body of `size` bytes, is too many.

        A message that consumers would take at once does not count as waiting: it will be gone when this turn
        ends. Neither is what has expired. `before` messages, with bodies of `before_bytes`, are to be
        appended before it.
        """
        if not self._is_full(size, before, before_bytes):
            return False
        self.cursor.trim()
        return self._is_full(size, before, before_bytes)

    def _is_full(self, size: int, before: int, before_bytes: int) -> bool:
        cursor, rules = self.cursor, self.cursor.rules
        waiting = cursor.ready_count() + before
        for consumer in self._served():
            if waiting <= 0:
                break
            waiting -= consumer.credit()
        waiting = max(waiting, 0)
        if 0 <= rules.length_max < waiting + 1:
            return True
        bytes_waiting = cursor.ready_bytes + before_bytes if waiting else 0
        return rules.refuses_bytes and 0 <= rules.bytes_max < bytes_waiting + size

    def _served(self) -> Iterable[QueueConsumer]:
        """Those that messages go to now."""
        if self._consumers is None:
            return ()
        if self.kind in (Kind.SHARED, Kind.RANDOM):
            return self._consumers.hungry()
        return () if self._consumers.active is None else (self._consumers.active,)

    def purge(self) -> int:
        """Drop the ready messages; how many they were. Those that are out stay. Written with this turn.

        Messages over the limit, which only waited to be dropped, go too; they are not told as ready.
        """
        n = self.count_ready()
        self.purged += self.cursor.purge()
        self._reap()
        self.persist()
        return n

    def evict(self, before: int, evicted: Callable[[int], object]) -> None:
        """Let go of what is ready below position `before`, where a segment of the log begins.

        It counts as dropped, and goes where rules say that what is dropped goes. `evicted` is called with
        numbers of messages, now or in the next turns. Messages that are out stay out.
        """
        if self.low() >= before or (self._limits is not None and self._limits.evict(before, evicted)):
            return
        n = self.cursor.purge(before)
        self.dropped += n
        evicted(n)
        self._reap()

    def delete(self) -> tuple[int, int]:
        """End the queue: consumers are cancelled, getters get None, memberships and the record go.

        Returns:
            How many messages were ready, and the LSN to wait for (0 when it was not durable).

        """
        if self.deleted:
            return 0, 0
        n = self.count_ready()
        self.deleted = True
        self.fast_path = None
        self._unwatch()
        consumers, self._consumers = self.consumers, None
        getters, self._getters = self._getters, None
        self.cursor.is_kept = False
        if self._limits is not None:
            self._limits.close()
        lsn = self._queues.forget(self)
        # No cycles: the memory of short-lived queues does not wait for the collector.
        self.cursor.queue = None
        self.data = None
        for consumer in consumers:
            consumer.cancelled("the queue was deleted")
        for follower in tuple(self._followers()):
            follower.delete()
        for getter in getters or ():
            getter(None)
        return n, lsn

    def statistics(self) -> dict[str, int]:
        """Counters since the queue was made or restored, and what it holds now."""
        cursor = self.cursor
        return {
            "ready": self.ready_count,
            "unacked": cursor.outstanding,
            "consumers": self.consumer_count,
            "delivered": self.delivered,
            "acked": cursor.settled,
            "requeued": cursor.requeued,
            "expired": cursor.expired,
            "lost": cursor.lost,
            "dropped": self.dropped,
        }


def _number(value: int | None) -> int:
    """As a cursor has it: -1 is none."""
    return -1 if value is None else min(value, 2**63 - 1)
