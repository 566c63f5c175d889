"""One webhook at work: takes messages, sends them, and does what the answers mean.

Each request is one task. The changes of an answer (messages settled, progress, dead letters, the entry of the
delivery log) is one atomic unit of the log. A webhook shares nothing with another one but the loop: it has
its own endpoint (decisions), client (connections) and feeders (consumers), so none waits for another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.logs import fields
from penstock.protocols.http.server.messages import dumps
from penstock.protocols.http.shared.traffic import Shown
from penstock.protocols.http.webhooks.belongings import Context, dead_queue, own_queue
from penstock.protocols.http.webhooks.client import NoAnswer
from penstock.protocols.http.webhooks.delivery.feeder import Feeder, Held
from penstock.protocols.http.webhooks.delivery.filters import Matcher
from penstock.protocols.http.webhooks.delivery.formats import Outgoing, encode, id_of
from penstock.protocols.http.webhooks.delivery.ledger import EXCERPT, Ledger
from penstock.protocols.http.webhooks.delivery.receipts import Receipt, receipt_of
from penstock.protocols.http.webhooks.delivery.sender import NoSender, Sender
from penstock.protocols.http.webhooks.endpoint import Endpoint, Item, Outcome
from penstock.protocols.http.webhooks.security.consent import Consent
from penstock.protocols.http.webhooks.security.handshake import Grant
from penstock.protocols.http.webhooks.settings import Filter
from penstock.protocols.http.webhooks.store import Webhook
from penstock.subscriptions.errors import SubscriptionError
from penstock.subscriptions.fault_isolation import guarded
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.router.vhost.vhost import Vhost
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Worker"]

logger: Final = logging.getLogger("penstock.webhooks")

_LOOK_S: Final = 30.0
"""The longest timer: due times are of the wall clock, which may be set."""
_ATTACH_S: Final = 5.0


class Worker:
    """See the module."""

    def __init__(self, context: Context, vhost: Vhost, webhook: Webhook, *, broken: str = "") -> None:
        """One webhook, which does nothing before `start`.

        Args:
            context: Shared by all webhooks.
            vhost: Where its source is.
            webhook: Its row.
            broken: Why it can send nothing, as another try has shown; it is there to be seen and changed.

        Raises:
            Forbidden: it may not go where its URL leads.
            BadCertificate: its certificate is none.
            OSError: `webhooks.ca_file` cannot be read.

        """
        self.webhook = webhook
        self.broken = broken
        self._ledger = Ledger(context, vhost, webhook)
        self.counts = self._ledger.counts
        self.waiting_for = ""
        """Why it does not consume though it should."""
        self._context = context
        self._vhost = vhost
        self._sender = NoSender(broken) if broken else Sender(context, webhook)
        wanted = webhook.settings.filter
        self._matcher = Matcher(wanted) if wanted != Filter() else None
        self._loop = asyncio.get_running_loop()
        self._endpoint = self._new_endpoint()
        self._consent = Consent(
            webhook, context.store, self._sender.ask, context.broker.log.wall_ms, self._agreed
        )
        self._feeders: list[Feeder] = []
        self._main: Feeder | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        """Those of them that a stop waits for."""
        self._timer: asyncio.TimerHandle | None = None
        self._running = False

    def _new_endpoint(self) -> Endpoint:
        endpoint = Endpoint(self.webhook.settings)
        endpoint.pace_s = self.webhook.pace_s
        return endpoint

    def _now_s(self) -> float:
        return self._context.broker.log.wall_ms() / 1000

    # State

    @property
    def held(self) -> int:
        """Messages under way, or waiting for their next attempt."""
        return self._endpoint.held

    @property
    def state(self) -> str:
        """One of `endpoint.STATES`."""
        webhook = self.webhook
        if self.broken:
            return "broken"
        if webhook.disabled:
            return "disabled"
        if webhook.paused:
            return "paused"
        if not self._consent.given:
            return "pending"
        if self.waiting_for:
            return "waiting"
        if self._endpoint.is_open:
            return "open"
        return "throttled" if self._endpoint.resting_s(self._now_s()) > 1 else "active"

    def shown(self) -> dict[str, Any]:
        """Its state, as JSON."""
        counts, endpoint = self.counts, self._endpoint
        source = self.source
        return {
            "state": self.state,
            "reason": self.broken or self.webhook.disabled or self.waiting_for,
            "backlog": source.ready_count if source is not None and not isinstance(source, Stream) else 0,
            "held": endpoint.held,
            "in_flight": endpoint.in_flight,
            "concurrency": endpoint.concurrency,
            "resting_ms": int(endpoint.resting_s(self._now_s()) * 1000),
            "dead": self._ready_in(dead_queue(self.webhook.name)),
            "requests": counts.requests,
            "results": dict(counts.outcomes),
            "p50_ms": counts.took_ms(0.5),
            "p99_ms": counts.took_ms(0.99),
            "delivered": counts.delivered,
            "filtered": counts.filtered,
            "last_status": counts.last_status,
            "last_error": self._consent.last_error or counts.last_error,
            "last_at": counts.last_ms,
        }

    def _ready_in(self, name: str) -> int:
        entry = self._vhost.queues.get(name)
        return 0 if entry is None else entry.queue.ready_count

    @property
    def source(self) -> Queue | None:
        """The queue or stream that it consumes; None: it is gone."""
        source = self.webhook.settings.source
        if source.subscription:
            return self._vhost.subscriptions.of(source.name).get(source.subscription)
        own = source.kind in ("exchange", "topic")
        entry = self._vhost.queues.get(own_queue(self.webhook.name) if own else source.name)
        return None if entry is None else entry.queue

    # Start and end

    def start(self) -> None:
        """Begin, or go on, as its row says."""
        webhook = self.webhook
        if self._running or self.broken or webhook.paused or webhook.disabled:
            return
        self._running = True
        if self._consent.given:
            self._attach()
        else:
            self._spawn(self._ask())

    def stop(self) -> None:
        """Take nothing more, give back what is held, and break off what is under way."""
        self._running = False
        self.waiting_for = ""
        for task in self._tasks:
            task.cancel()
        feeders, self._feeders, self._main = self._feeders, [], None
        for feeder in feeders:
            feeder.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sender.close()
        self._endpoint = self._new_endpoint()
        self._context.broker.tick.schedule()

    def retire(self) -> None:
        """The webhook was changed or deleted: another one has its row."""
        self._consent.retire()
        self.stop()

    async def drain(self, timeout_s: float) -> None:
        """Take nothing more, let the requests that are under way end, then stop."""
        self._running = False
        if self._sending:
            await asyncio.wait(self._sending, timeout=timeout_s)
        tasks = list(self._tasks)
        self.stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    def disable(self, reason: str) -> None:
        """Send nothing more until somebody resumes it."""
        logger.warning("a webhook is switched off", extra=fields(webhook=self.webhook.name, reason=reason))
        self.webhook.disabled = reason
        self._context.store.put(self.webhook)
        self.stop()

    def _attach(self) -> None:
        """Consume the source, or look again later when that cannot be."""
        if not self._running or self._main is not None:
            return
        queue = self.source
        if queue is None:
            self.disable("its source is gone")
            return
        if isinstance(queue, Stream):
            queue = self._reader(queue)
        feeder = self._feeder(queue)
        try:
            queue.attach(feeder)
        except SubscriptionError as error:
            self.waiting_for = error.message
            self._after(_ATTACH_S, self._attach)
            return
        self.waiting_for = ""
        self._main = feeder
        self._feeders.append(feeder)
        self._context.broker.tick.schedule()

    def _reader(self, stream: Stream) -> Queue:
        cursor_name = own_queue(self.webhook.name)
        offset = stream.kept_offset(cursor_name)
        if offset is None:
            first = self.webhook.settings.source.start == "first"
            offset = stream.first_offset if first else stream.next_offset
        return stream.reader(offset, cursor_name)

    def _feeder(self, queue: Queue, *, last_lsn: int = 0, most: int = 0) -> Feeder:
        name = own_queue(self.webhook.name)
        return Feeder(
            name,
            self._context.messages,
            queue,
            self._capacity,
            self._took,
            self._lost,
            last_lsn=last_lsn,
            most=most,
        )

    def _capacity(self) -> int:
        return self._endpoint.capacity(self._now_s()) if self._running else 0

    def _lost(self, feeder: Feeder, reason: str) -> None:
        """A queue let go of a feeder."""
        if feeder in self._feeders:
            self._feeders.remove(feeder)
        if feeder is self._main:
            self._main = None
            self.disable(f"its source is gone: {reason}")

    # Sending

    def _took(self, held: list[Held]) -> None:
        now_s = self._now_s()
        for one in held:
            record = one.delivery.record
            if self._matcher is not None and not self._matcher.matches(self._context.messages.show(record)):
                self.counts.filtered += 1
                one.feeder.settle(one)
                continue
            item = Item(one, self._key(one), len(record.body) + 256)
            progress = self._context.store.progress(self.webhook.key, record.lsn)
            if progress is not None:
                item.attempts, item.first_s, item.due_s = progress.attempts, progress.first_s, progress.due_s
            self._endpoint.add(item, now_s)
        self._loop.call_soon(self._kick)

    def _key(self, held: Held) -> str:
        settings = self.webhook.settings
        if settings.ordering != "key":
            return ""
        message = self._context.messages.show(held.delivery.record)
        if settings.ordering_key == "routing_key":
            return message.routing_key
        headers = message.properties.get("headers") or {}
        return str(headers.get(settings.ordering_key.removeprefix("header:"), ""))

    def _kick(self) -> None:
        """Send what may be sent now, and look again when there will be more."""
        if not self._running:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        what = f"the webhook {self.webhook.name!r} failed to send; it is tried again in {_LOOK_S:g} s"
        if not guarded(logger, what, self._send_due):
            self._timer = self._loop.call_later(_LOOK_S, self._kick)

    def _send_due(self) -> None:
        self._end_finished()
        now_s = self._now_s()
        if self._consent.falls_due():
            self._spawn(self._renew())
        while chosen := self._endpoint.next(now_s):
            self._sending.add(self._spawn(self._send(chosen)))
        for feeder in self._feeders:
            feeder.queue.credit_gained(feeder)
        wake_s = self._endpoint.wake_s(now_s)
        rest_s = self._endpoint.resting_s(now_s)
        if wake_s is not None or rest_s:
            wait_s = (wake_s if wake_s is not None else now_s + rest_s) - now_s
            self._timer = self._loop.call_later(min(max(wait_s, 0.001), _LOOK_S), self._kick)

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._sending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a webhook failed", exc_info=error, extra=fields(webhook=self.webhook.name))
            self.disable(f"an internal error; see the gateway's log: {error!r}"[:200])

    def _after(self, delay_s: float, callback: Callable[[], None]) -> None:
        async def later() -> None:
            await asyncio.sleep(delay_s)
            callback()

        self._spawn(later())

    async def _send(self, chosen: list[Item]) -> None:
        messages = [self._ledger.outgoing(item) for item in chosen]
        headers, body = encode(self.webhook.settings.format, messages)
        ids = [id_of(one) for one in messages]
        name = ids[0] if len(ids) == 1 else f"{ids[0]}+{len(ids) - 1}"
        began = self._loop.time()
        receipt, status, text = await self._request(
            headers, body, name, attempt=max(item.attempts for item in chosen) + 1, count=len(chosen)
        )
        took_s = self._loop.time() - began
        verdict = self._endpoint.answered(
            chosen,
            receipt.outcome,
            self._now_s(),
            wait_s=receipt.wait_s,
            refused=receipt.refused,
            again=receipt.again,
        )
        self._ledger.keep(verdict, ids, chosen, receipt, status, text, took_s)
        self._context.broker.tick.schedule()
        if verdict.disable:
            self.disable(verdict.disable)
            return
        self._kick()

    async def _request(
        self, headers: dict[str, str], body: bytes, name: str, *, attempt: int, count: int
    ) -> tuple[Receipt, int, str]:
        """Send one; (what the answer means, its status or 0, what it said or why there is none)."""
        try:
            answer = await self._sender.send(headers, body, name, attempt)
        except NoAnswer as error:
            return Receipt(Outcome.FAILED), 0, f"{error.kind}: {error.detail}"
        said = answer.body[:EXCERPT].decode("utf-8", "replace")
        return receipt_of(answer, count, self._now_s()), answer.status, said

    # The receiver's consent

    async def _ask(self) -> None:
        """Begin when it agrees."""
        await self._consent.wait()
        self._attach()

    def _agreed(self, grant: Grant) -> None:
        self._endpoint.pace_s = grant.pace_s

    async def _renew(self) -> None:
        if why := await self._consent.renew():
            self.disable(why)

    # By hand

    async def verify(self) -> Grant:
        """Ask the receiver whether it agrees, now. If it agreed once and does not now, nothing more is sent.

        Raises:
            NoAnswer: it does not say.

        """
        had_agreed = self._consent.given
        grant = await self._consent.ask()
        if had_agreed and not grant.allowed and not self.webhook.disabled:
            self.disable(f"the receiver agrees no more: {grant.reason}")
        return grant

    async def test(self) -> dict[str, Any]:
        """Send one message that is in no queue, in the webhook's format; what came of it."""
        now_ms = self._context.broker.log.wall_ms()
        message = Shown(
            "",
            "",
            {
                "content_type": "application/json",
                "message_id": f"test-{now_ms}",
                "type": "penstock.webhook.test",
            },
            dumps({"type": "penstock.webhook.test", "webhook": self.webhook.name}),
        )
        queue = own_queue(self.webhook.name) if self.source is None else self.source.name
        one = Outgoing(0, now_ms, queue, self.webhook.vhost, message)
        headers, body = encode(self.webhook.settings.format, [one])
        began = self._loop.time()
        receipt, status, text = await self._request(headers, body, "test", attempt=1, count=1)
        ms = round((self._loop.time() - began) * 1000, 3)
        return {"result": receipt.outcome.value, "status": status, "answer": text, "ms": ms}

    def feed_from(self, queue: Queue, *, last_lsn: int = 0, most: int = 0) -> None:
        """Send these, too: a replay, or dead letters. Raises SubscriptionError."""
        feeder = self._feeder(queue, last_lsn=last_lsn, most=most)
        queue.attach(feeder)
        self._feeders.append(feeder)
        self._context.broker.tick.schedule()
        self._kick()

    def _end_finished(self) -> None:
        for feeder in [one for one in self._feeders if one.is_finished]:
            self._feeders.remove(feeder)
            feeder.stop()
