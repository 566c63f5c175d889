"""Durable effects of an answer: progress, dead letters, the entry of the delivery log, and counts."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import AMQP091, PERSISTENT
from penstock.protocols.http.server.messages import dumps
from penstock.protocols.http.webhooks.belongings import Context, attempts_queue, dead_queue, declare
from penstock.protocols.http.webhooks.delivery.feeder import Held
from penstock.protocols.http.webhooks.delivery.formats import ID_HEADER, Outgoing, id_of
from penstock.protocols.http.webhooks.delivery.receipts import Receipt
from penstock.protocols.http.webhooks.endpoint import Item, Outcome, Verdict
from penstock.protocols.http.webhooks.store import Progress, Webhook
from penstock.router.names import join_key_block
from penstock.router.queues.dead_letters import Death
from penstock.subscriptions.streams.replay import Replay

if TYPE_CHECKING:
    from penstock.router.vhost.vhost import Vhost

__all__ = ["EXCERPT", "Counts", "Ledger"]

_RECENT: Final = 500
"""Requests whose times are kept: enough to tell what one in a hundred takes."""
EXCERPT = 256
"""Bytes of an answer that the delivery log has."""


@dataclass(slots=True)
class Counts:
    """The counters of a webhook since the start of the process."""

    requests: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: {one.value: 0 for one in Outcome})
    delivered: int = 0
    filtered: int = 0
    """Messages that its filter is not for."""
    dead: int = 0
    seconds: float = 0.0
    last_status: int = 0
    last_error: str = ""
    last_ms: int = 0
    """When, since the epoch."""
    recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """The time that each of the last requests took."""

    def took_ms(self, share: float) -> float | None:
        """The time within which this share of the last requests was answered; None: there were none."""
        if not self.recent_s:
            return None
        ordered = sorted(self.recent_s)
        return round(1000 * ordered[math.ceil(share * len(ordered)) - 1], 3)


class Ledger:
    """Of one webhook."""

    def __init__(self, context: Context, vhost: Vhost, webhook: Webhook) -> None:
        self.counts = Counts()
        self._context = context
        self._vhost = vhost
        self._webhook = webhook

    def keep(
        self,
        verdict: Verdict,
        ids: list[str],
        chosen: list[Item],
        receipt: Receipt,
        status: int,
        text: str,
        took_s: float,
    ) -> None:
        """The outcome of a request, as one atomic unit."""
        self._count(receipt, status, text, took_s, len(verdict.done))
        if verdict.dead:
            declare(self._vhost, dead_queue(self._webhook.name))
        with self._context.broker.log.unit():
            self._apply(verdict)
            self._record(ids, chosen, receipt, status, text, took_s)

    def outgoing(self, item: Item) -> Outgoing:
        """A message, to be encoded."""
        held = item.name
        assert isinstance(held, Held)
        record = held.delivery.record
        message = self._context.messages.show(record)
        return Outgoing(record.lsn, record.ts, held.delivery.queue.name, self._vhost.name, message)

    def _apply(self, verdict: Verdict) -> None:
        store, key = self._context.store, self._webhook.key
        for item in verdict.done:
            held = item.name
            assert isinstance(held, Held)
            if item.attempts:
                store.done(key, held.delivery.record.lsn)
            held.feeder.settle(held)
        for item in verdict.dead:
            held = item.name
            assert isinstance(held, Held)
            store.done(key, held.delivery.record.lsn)
            self._bury(item, held)
            held.feeder.settle(held)
            # In the same unit as its letter: the two never disagree after a crash.
            held.delivery.queue.promise()
        for item in verdict.again:
            held = item.name
            assert isinstance(held, Held)
            if isinstance(held.delivery.queue, Replay):
                continue  # which ends with the process
            store.keep(key, held.delivery.record.lsn, Progress(item.attempts, item.first_s, item.due_s))

    def _bury(self, item: Item, held: Held) -> None:
        """Put a dead letter, which keeps the message's keys and its id."""
        broker, record = self._context.broker, held.delivery.record
        assert broker.rewrite is not None  # the gateway is opened with it
        death = Death(held.delivery.queue.name, "rejected", broker.log.now_ms() // 1000, None)
        letter = broker.rewrite(record, death)
        outgoing = self.outgoing(item)
        props = self._context.messages.with_header(letter.props, ID_HEADER, id_of(outgoing))
        self.counts.dead += 1
        route = self._vhost.route(None, AMQP091, join_key_block("", dead_queue(self._webhook.name)))
        key = join_key_block(outgoing.message.exchange, letter.keys[0])
        self._vhost.publishing.append(route, key, props, record.body, PERSISTENT, record.priority, AMQP091)

    def _count(self, receipt: Receipt, status: int, text: str, took_s: float, done: int) -> None:
        counts = self.counts
        counts.requests += 1
        counts.outcomes[receipt.outcome.value] += 1
        counts.delivered += done
        counts.seconds += took_s
        counts.recent_s.append(took_s)
        counts.last_status, counts.last_ms = status, self._context.broker.log.wall_ms()
        counts.last_error = "" if receipt.outcome is Outcome.DONE else (text or f"status {status}")

    def _record(
        self, ids: list[str], chosen: list[Item], receipt: Receipt, status: int, text: str, took_s: float
    ) -> None:
        """One entry of the delivery log."""
        name = attempts_queue(self._webhook.name)
        positions = [item.name.delivery.record.lsn for item in chosen if isinstance(item.name, Held)]
        entry = {
            "webhook": self._webhook.name,
            "ids": ids,
            "positions": positions,
            "attempt": max(item.attempts for item in chosen) + (receipt.outcome is Outcome.DONE),
            "at": self._context.broker.log.wall_ms(),
            "ms": round(took_s * 1000, 3),
            "result": receipt.outcome.value,
            "status": status,
            "answer": text[:EXCERPT],
        }
        for told in self._context.on_attempt:
            told(self._vhost.name, self._webhook.name, entry)
        if name not in self._vhost.queues:
            return  # somebody deleted the log
        key = join_key_block("", name)
        route = self._vhost.route(None, AMQP091, key)
        self._vhost.publishing.append(
            route, key, self._context.messages.json_props, dumps(entry), PERSISTENT, 0, AMQP091
        )
