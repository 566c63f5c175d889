"""Lag of subscriptions to streams: messages that wait, messages that consumers hold, and the age of the
oldest.

The head of a subscription is the oldest message that it has not settled. Its age counts from when it was
published. A head that is no longer in memory is read from the disk once. Its time is kept with the
subscription as long as it is the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.log_core.batch._batch import LOST

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.subscriptions.streams.subscription import Subscription

__all__ = ["age_ms", "figures", "when_known"]


def when_known(log: Log, subscriptions: Iterable[Subscription], then: Callable[[], None]) -> None:
    """Call `then` on the loop, perhaps at once, when `age_ms` can tell of each, as far as it can be read."""
    # Each asks for the entry of its head, then for the head: what cannot be got after that has no age.
    _gather(log, [one for one in subscriptions for _ in range(2)], then)


def age_ms(log: Log, subscription: Subscription) -> int | None:
    """The age of its head; None: all is settled, or it cannot be told (see `when_known`)."""
    head = _head(subscription)
    if not head or not _is_timed(log, subscription, head):
        return None
    return max(log.now_ms() - subscription.head_time[1], 0)


def figures(log: Log, subscription: Subscription) -> dict[str, Any]:
    """The reason for operators and clients, in the words of all protocols."""
    cursor = subscription.cursor
    return {
        "kind": subscription.arguments["x-subscription-kind"],
        "durable": subscription.durable,
        "paused": subscription.paused,
        "backlog": cursor.ready_count(),
        "unacked": cursor.outstanding,
        "lag": subscription.lag,
        "head_age_ms": age_ms(log, subscription),
        "consumers": subscription.consumer_count,
        "delivered": subscription.delivered,
        "acknowledged": cursor.settled,
        "requeued": cursor.requeued,
    }


def _gather(log: Log, asked: list[Subscription], then: Callable[[], None]) -> None:
    while asked:
        subscription = asked.pop()
        if subscription.deleted:
            continue
        feed, position = subscription.stream.feed, subscription.cursor.mark + 1
        if feed.missing(position) is not None:
            asked.append(subscription)
            log.when_indexed([(feed, position)], lambda: _gather(log, asked, then))
            return
        index = feed.index_of(position)
        if index < feed.end and not feed.is_resident(index):
            log.load_feed(feed, index, lambda: _gather(log, asked, then))
            return
        head = _head(subscription)
        if head and head <= log.written_lsn and not _is_timed(log, subscription, head):
            log.load(head, lambda: _gather(log, asked, then))
            return
    then()


def _head(subscription: Subscription) -> int:
    """The position of the oldest message that is not settled; 0: all are."""
    feed = subscription.stream.feed
    found = feed.positions(feed.index_of(subscription.cursor.mark + 1), 1)
    return found[0] if found else 0


def _is_timed(log: Log, subscription: Subscription, head: int) -> bool:
    """Whether `head_time` is that of the head (now)."""
    if subscription.head_time[0] != head:
        batch = log.cache.get(head)
        if batch is None or batch.kind == LOST:
            return False
        subscription.head_time = head, batch.record(head - batch.base_lsn).ts
    return True
