"""Dead letters: messages that leave a queue undone, and where they go.

A queue declared with `x-dead-letter-exchange` hands over messages that were rejected, expired, exceeded
its length limit, or were redelivered too often. The broker publishes them to that exchange, with their own
routing keys or with `x-dead-letter-routing-key`. If the exchange is missing or routes a message nowhere,
it is dropped. A message that would return to a queue that it has left is not given to it again, if nobody
rejected it on the way: such a cycle would never end.

With `x-dead-letter-strategy` at-least-once (and `x-overflow` reject-publish, as RabbitMQ demands) a letter
that goes nowhere, or that a full queue refuses, stays in its queue until it has gone everywhere.

The front end describes the deaths of a message: `Rewrite` makes the letter, this module delivers it.

Source: RabbitMQ's rabbit_dead_letter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import PERSISTENT, SECTIONS, Record
from penstock.router.arguments import Arguments
from penstock.router.names import ENC_AMQP091, join_key_block, key_blocks_at
from penstock.router.queues.arguments import queue_type

if TYPE_CHECKING:
    from penstock.router.exchanges.entries import QueueEntry
    from penstock.router.vhost.state import VhostState
    from penstock.subscriptions.queue.limits import Bury

__all__ = ["Death", "Letter", "Rewrite", "bury_of"]


@dataclass(frozen=True, slots=True)
class Death:
    """How a message left a queue."""

    queue: str
    reason: str
    """ "rejected", "expired", "maxlen" or "delivery_limit"."""
    time_s: int
    routing_key: str | None
    """The routing key from here on; None: the message's own keys."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A record as it is published again, in AMQP's encoding."""

    keys: tuple[str, ...]
    """Routing keys, the first of which it carries."""
    props: bytes
    headers: Arguments
    circling: frozenset[str]
    """Queues that may not get it again."""


Rewrite = Callable[[Record, Death], Letter]
"""Makes the letter; total: it never raises for a record that was accepted once."""


def bury_of(vhost: VhostState, entry: QueueEntry) -> Bury | None:
    """The handler of messages that leave a queue unacknowledged; None: they are dropped."""
    exchange = entry.effective.get("x-dead-letter-exchange")
    if exchange is None:
        return None
    key = entry.effective.get("x-dead-letter-routing-key")
    # Both were checked when the queue was declared, or the policy was set.
    assert isinstance(exchange, str)
    assert key is None or isinstance(key, str)
    broker = vhost.broker

    # RabbitMQ's condition: a queue that drops its head cannot keep what it may not lose.
    insists = (
        entry.effective.get("x-dead-letter-strategy") == "at-least-once"
        and entry.effective.get("x-overflow") == "reject-publish"
    )

    def bury(record: Record, reason: str, note: bytes) -> bool:
        if note and broker.annotated is not None:
            record = broker.annotated(record, note)
        assert broker.rewrite is not None, "a broker with dead letters is opened with `rewrite`"
        letter = broker.rewrite(record, Death(entry.name, reason, broker.log.now_ms() // 1000, key))
        words = broker.delayed.words
        delay_ms = words.delay_ms(letter.headers) if words is not None else 0
        keys = [join_key_block(exchange, one) for one in letter.keys]
        held: list[str] | None = [] if delay_ms else None
        route = vhost.publishing.route(None, ENC_AMQP091, keys[0], letter.headers, held, keys[1:])
        if held and words is not None:
            broker.delayed.schedule(
                vhost.name,
                broker.log.wall_ms() + delay_ms + 1,
                ENC_AMQP091,
                keys[0],
                words.served(letter.props, delay_ms),
                record.body,
                starts=key_blocks_at(held, keys),
                flags=record.flags & (PERSISTENT | SECTIONS),
                priority=record.priority,
            )
        if route.error is not None or not (route.routed or route.recents):
            return not insists
        feeds = {feed for feed in route.target.feeds if feed not in broker.log.retention_feeds}
        known = (vhost.queues.get(name) for name in letter.circling)
        reads = {other: [pair for pair in other.reads() if pair[0] in feeds] for other in known if other}
        circling = [other for other, found in reads.items() if found]
        readers = {feed: readers for found in reads.values() for feed, readers in found}
        if (
            feeds
            and len(readers) == len(feeds)
            and all(set(circling).issuperset(one) for one in readers.values())
        ):
            return True
        full = (guard.queue.data for guard in route.guards if guard.queue.refuses(len(record.body)))
        if insists and any(other not in circling for other in full):
            return False
        broker.dead_letters[queue_type(entry.arguments, entry.name, vhost.name), reason, insists] += 1
        vhost.publishing.append(
            route,
            keys[0],
            letter.props,
            record.body,
            record.flags & (PERSISTENT | SECTIONS),
            record.priority,
            ENC_AMQP091,
            without=circling,
        )
        return True

    return bury
