"""Strategies: one for each kind of queue; they choose the consumer of the next messages.

A strategy has no state (a queue keeps its turn), so it costs an idle queue nothing. It takes from the
queue's cursor as much as the chosen consumers have credit for, lets each encode its share, and puts back
what they had no room for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from penstock.subscriptions.cursor._events import deliver_to, delivered
from penstock.subscriptions.tick._stored_batches import BatchConsumer

if TYPE_CHECKING:
    from penstock.subscriptions.dispatch.consumer import QueueConsumer
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["PUMPS", "Kind", "Pause"]

TAKE_MAX: Final = 1024
"""Items one take may give (MAX_TAKE in _take_result.pxd)."""


class Kind(Enum):
    """The assignment of messages to consumers."""

    SHARED = "shared"
    """Every consumer its turn: an AMQP queue."""
    RANDOM = "random"
    """As shared, but whose turn it is is drawn anew for each run of messages."""
    EXCLUSIVE = "exclusive"
    """One consumer at most: an MQTT session."""
    SINGLE = "single active"
    """One consumer at a time, the one that came first; the others wait for its end."""
    PREFERRED = "single active by priority"
    """The same, but one of higher priority takes over as soon as nothing is out."""
    FAILOVER = "failover"
    """One consumer at a time, chosen by priority and name; who takes over gets all that is not settled."""
    KEY_SHARED = "key_shared"
    """Each key to one of the consumers; see `key_shared`."""
    STREAM = "stream"
    """Each consumer everything from its offset on; see `stream`. Readers are what is pumped."""


class Pause(Enum):
    """Why a queue stopped handing out."""

    CAUGHT_UP = "nothing (in memory) is left to take"
    NO_CREDIT = "no consumer has credit"
    MORE = "its share of this turn is used up"


def pump_exclusive(queue: Queue, budget: int) -> Pause:
    """Everything to the active consumer."""
    cursor = queue.cursor
    while budget > 0:
        consumer = queue.active
        if consumer is None:
            return Pause.NO_CREDIT
        wanted = min(consumer.credit(), budget, TAKE_MAX)
        if wanted <= 0:
            return Pause.NO_CREDIT
        if isinstance(consumer, BatchConsumer):
            n = _deliver_batch(queue, consumer)
            if n > 0:
                budget -= n
                continue
            if queue.active is None:
                return Pause.NO_CREDIT
            if n < 0:
                wanted = min(wanted, -n)
        n = cursor.take(wanted)
        took = _deliver(queue, consumer, 0, 1) if n else 0
        if took < n:
            # Asked again, so that a consumer whose output filled up on the way knows that it is waited for.
            return Pause.MORE if took and consumer.credit() > 0 else Pause.NO_CREDIT
        if n < wanted:
            return Pause.CAUGHT_UP
        budget -= n
    return Pause.MORE


def pump_shared(queue: Queue, budget: int) -> Pause:
    """One message per turn to each consumer with credit, among those of the highest priority that has any."""
    return _pump_in_turn(queue, budget, drawn=False)


def pump_random(queue: Queue, budget: int) -> Pause:
    """The same, the turns drawn for each take."""
    return _pump_in_turn(queue, budget, drawn=True)


def _pump_in_turn(queue: Queue, budget: int, *, drawn: bool) -> Pause:
    cursor = queue.cursor
    while budget > 0:
        if queue.consumer_count < 2:
            return pump_exclusive(queue, budget)
        most = min(budget, TAKE_MAX)
        # More consumers than there are messages need not be asked. With several feeds these would have to be
        # counted, which may read the disk.
        asked = max(min(most, cursor.ready_count()), 1) if cursor.member_count < 2 else most
        turn = queue.consumer_set.turn(asked, drawn=drawn)
        if turn is None:
            return Pause.NO_CREDIT
        consumers = turn.consumers
        step = len(consumers)
        wanted = min(turn.least * step, most) if turn.whole else step
        n = cursor.take(wanted)
        turn.ended(n)
        took = 0
        for i in range(min(step, n)):
            took += _deliver(queue, consumers[i], i, step)
        if n < wanted and took == n:
            return Pause.CAUGHT_UP
        if took == 0:
            return Pause.NO_CREDIT
        budget -= n
    return Pause.MORE


def pump_preferred(queue: Queue, budget: int) -> Pause:
    """Everything to the active consumer, which gives way to one of higher priority when nothing is out."""
    active = queue.active
    if active is not None and (first := queue.consumer_set.first()).priority > active.priority:
        if queue.cursor.outstanding:
            queue.cursor.wake_below = 1
            return Pause.NO_CREDIT
        queue.consumer_set.active = first
    return pump_exclusive(queue, budget)


def pump_subscription(queue: Queue, budget: int) -> Pause:
    """As the subscription's own kind says."""
    return queue.share_out(budget)


def _deliver_batch(queue: Queue, consumer: BatchConsumer) -> int:
    """Let `consumer` take the next batch whole, if it can: as `BatchConsumer.deliver_batch`."""
    deliver_to(consumer)
    settled = queue.cursor.settled
    try:
        took = consumer.deliver_batch(queue.cursor)
    except Exception:
        assert queue.active is not None
        queue.consumer_failed(queue.active, 0, 1)
        return 0
    queue.delivered += max(took, 0)
    queue.unasked += queue.cursor.settled - settled
    return took


def _deliver(queue: Queue, consumer: QueueConsumer, first: int, step: int) -> int:
    """Let `consumer` encode its slice; what it did not take goes back. Returns how many it took."""
    cursor = queue.cursor
    share, settled = (cursor.taken_count - first + step - 1) // step, cursor.settled
    try:
        took = consumer.deliver(cursor, first, step)
    except Exception:
        queue.consumer_failed(consumer, first, step)
        return 0
    queue.delivered += took
    queue.unasked += cursor.settled - settled
    delivered(cursor, first, step, took, consumer)
    if took < share:
        cursor.put_back(first, step, took)
    return took


PUMPS: Final[Mapping[Kind, Callable[[Queue, int], Pause]]] = {
    Kind.SHARED: pump_shared,
    Kind.RANDOM: pump_random,
    Kind.EXCLUSIVE: pump_exclusive,
    Kind.SINGLE: pump_exclusive,
    Kind.PREFERRED: pump_preferred,
    Kind.FAILOVER: pump_subscription,
    Kind.KEY_SHARED: pump_subscription,
}
"""The strategy of each kind: hands out at most so many messages, and says why it stopped."""
