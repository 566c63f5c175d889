"""Dead letters: what becomes of messages that leave a queue undone.

A queue declared with `x-dead-letter-exchange` hands over what was rejected, what expired, what was over its
length limit, and what was redelivered too often. It is published again, by the broker, to that exchange,
with its own routing keys or with the one in `x-dead-letter-routing-key`. A missing exchange, or one that
routes it nowhere, drops it. A message that would come back to a queue it has left before is not given to it
again, if nobody has rejected it on the way: such a circle would turn by itself for ever.

What the message says of its deaths is the front end's: `Rewrite` makes the letter, this module delivers it.

Source: RabbitMQ's rabbit_dead_letter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.log_core._batch import PERSISTENT, Record
from penstock.router.arguments import Arguments
from penstock.router.names import ENC_AMQP091, join_key_block
from penstock.router.publishing import union

if TYPE_CHECKING:
    from penstock.router.entries import QueueEntry
    from penstock.router.vhost_state import VhostState
    from penstock.subscriptions.limits import Bury

__all__ = ["Death", "Letter", "Rewrite", "bury_of"]


@dataclass(frozen=True, slots=True)
class Death:
    """How a message left a queue."""

    queue: str
    reason: str
    """ "rejected", "expired", "maxlen" or "delivery_limit"."""
    time_s: int
    routing_key: str | None
    """What it is published with from here on; None: with its own keys."""


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
    """What a queue does with what leaves it undone; None: it drops it."""
    exchange = entry.arguments.get("x-dead-letter-exchange")
    if exchange is None:
        return None
    key = entry.arguments.get("x-dead-letter-routing-key")
    # Both were checked when the queue was declared.
    assert isinstance(exchange, str)
    assert key is None or isinstance(key, str)
    broker = vhost.broker

    def bury(record: Record, reason: str) -> None:
        assert broker.rewrite is not None, "a broker with dead letters is opened with `rewrite`"
        letter = broker.rewrite(record, Death(entry.name, reason, broker.log.now_ms() // 1000, key))
        found = [
            vhost.publishing.route(None, ENC_AMQP091, join_key_block(exchange, one), letter.headers)
            for one in letter.keys
        ]
        routes = [route for route in found if route.error is None and route.routed]
        if not routes:
            return
        route = union(routes)
        feeds = set(route.target.feeds)
        circling = {
            other
            for name in letter.circling
            if (other := vhost.queues.get(name)) is not None
            and any(slot.feed in feeds for slot, _ in other.slots())
        }
        if circling:
            slots = {slot for other in circling for slot, _ in other.slots() if slot.feed in feeds}
            if len(slots) == len(feeds) and all(circling.issuperset(slot.members) for slot in slots):
                return
        lsn = broker.log.appender.append_record(
            route.lp,
            route.target,
            join_key_block(exchange, letter.keys[0]),
            letter.props,
            record.body,
            record.flags & PERSISTENT,
            record.priority,
            ENC_AMQP091,
        )
        for other in circling:
            other.queue.cursor.refuse(lsn)

    return bury
