"""What a native client is told of topics and their subscriptions.

The age of a subscription's head is that of the oldest message it has not settled; where that is no longer in
memory it is read from the disk first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.log_core._batch import LOST
from penstock.subscriptions.stream import Stream

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.protocols.native.frames import Fields
    from penstock.protocols.native.session import Session
    from penstock.subscriptions.subscription import Subscription

__all__ = ["describe", "topics"]


def topics(session: Session, id: int, fields: Fields) -> None:
    """The topics that the user may read."""
    fields.done()
    vhost, allow = session.vhost, session.broker.authorizer.allow
    names = [
        name
        for name, entry in vhost.queues.items()
        if isinstance(entry.queue, Stream) and allow(session.identity, vhost.name, "read", name)
    ]
    session.answer(id, {"topics": sorted(names)})


def describe(session: Session, id: int, stream: Stream) -> None:
    """What a topic holds, and its subscriptions; answered when the heads are in memory."""
    subscriptions = session.vhost.subscriptions.of(stream.name)

    def told() -> None:
        if session.running:
            log = session.log
            described = {name: _described(one, log, log.now_ms()) for name, one in subscriptions.items()}
            session.answer(id, {**_topic(stream), "subscriptions": described})

    # Each asks for the entry of its head, then for the head: what cannot be got after that has no age.
    _with_heads(session.log, [one for one in subscriptions.values() for _ in range(2)], told)


def _with_heads(log: Log, asked: list[Subscription], then: Callable[[], None]) -> None:
    """Call `then` when what was asked for is in memory, as far as it can be."""
    while asked:
        subscription = asked.pop()
        feed = subscription.stream.feed
        index = feed.index_of(subscription.cursor.mark + 1)
        if index < feed.end and not feed.is_resident(index):
            log.load_feed(feed, index, lambda: _with_heads(log, asked, then))
            return
        head = _head(subscription)
        if head and head <= log.written_lsn and log.cache.get(head) is None:
            log.load(head, lambda: _with_heads(log, asked, then))
            return
    then()


def _topic(stream: Stream) -> dict[str, Any]:
    return {
        "topic": stream.name,
        "messages": stream.ready_count,
        "first_offset": stream.first_offset,
        "next_offset": stream.next_offset,
        "last_position": stream.feed.last_position,
    }


def _head(subscription: Subscription) -> int:
    """The position of the oldest message that is not settled; 0: all are."""
    feed = subscription.stream.feed
    found = feed.positions(feed.index_of(subscription.cursor.mark + 1), 1)
    return found[0] if found else 0


def _described(subscription: Subscription, log: Log, now_ms: int) -> dict[str, Any]:
    cursor = subscription.cursor
    head = _head(subscription)
    batch = log.cache.get(head) if head else None
    if batch is not None and batch.kind == LOST:
        batch = None
    return {
        "kind": subscription.arguments["x-subscription-kind"],
        "durable": subscription.durable,
        "paused": subscription.paused,
        "backlog": cursor.ready_count(),
        "unacked": cursor.outstanding,
        "mark": cursor.mark,
        "head_age_ms": None if batch is None else max(now_ms - batch.record(head - batch.base_lsn).ts, 0),
        "consumers": subscription.consumer_count,
        "delivered": subscription.delivered,
        "acknowledged": cursor.settled,
        "requeued": cursor.requeued,
    }
