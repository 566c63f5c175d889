"""The data plane put together: its paths below /v1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.live.events import Events
from penstock.protocols.http.data.live.sockets import Sockets
from penstock.protocols.http.data.live.sse import TailHandlers
from penstock.protocols.http.data.live.tail import Tails
from penstock.protocols.http.data.log.message import LogMessage
from penstock.protocols.http.data.log.replay import LogReplay
from penstock.protocols.http.data.log.search import LogSearch
from penstock.protocols.http.data.openapi import page as openapi
from penstock.protocols.http.data.publishing.delayed import DelayedHandlers
from penstock.protocols.http.data.publishing.half import Halves
from penstock.protocols.http.data.publishing.idempotency import Idempotency
from penstock.protocols.http.data.publishing.producers import NumberedProducers
from penstock.protocols.http.data.publishing.publish import Publisher
from penstock.protocols.http.data.publishing.staged import Staged
from penstock.protocols.http.data.publishing.topics import TopicPublisher
from penstock.protocols.http.data.publishing.transactions import Transactions
from penstock.protocols.http.data.pulling.leases import Leases
from penstock.protocols.http.data.pulling.members import Members
from penstock.protocols.http.data.pulling.peek import Peek
from penstock.protocols.http.data.pulling.polls import Polls
from penstock.protocols.http.data.pulling.pull import Puller
from penstock.protocols.http.data.pulling.reader import StreamReader
from penstock.protocols.http.data.queues import QueueHandlers
from penstock.protocols.http.data.redrive import Redrive
from penstock.protocols.http.data.streams import StreamHandlers
from penstock.protocols.http.data.tokens import TokenHandlers
from penstock.protocols.http.server.app import HttpApp
from penstock.protocols.http.shared.traffic import Messages
from penstock.protocols.http.webhooks.delivery.questions import Questions
from penstock.protocols.http.webhooks.handlers import WebhookHandlers
from penstock.protocols.http.webhooks.service import Webhooks

if TYPE_CHECKING:
    from penstock.protocols.http.server.messages import Request, Response
    from penstock.protocols.listening.registry import Registry
    from penstock.router.broker import Broker

__all__ = ["DataPlane"]


class DataPlane:
    """Its handlers; one for all apps that serve them, so that a handle is good on each."""

    def __init__(
        self,
        app: HttpApp,
        broker: Broker,
        messages: Messages,
        webhooks: Webhooks,
        questions: Questions,
        registry: Registry,
    ) -> None:
        access = self.access = Access(app, broker, messages)
        idempotency = Idempotency(broker)
        clock = broker.tick.time
        polls, leases = Polls(broker.tick), Leases(broker.tick, clock)
        staged = self.staged = Staged(broker.tick, leases, clock)
        self.producers = NumberedProducers(access)
        self.publisher = Publisher(access, idempotency, self.producers, staged)
        members = Members(broker, messages, leases, clock)
        self.topics = TopicPublisher(access, self.publisher)
        self.puller = Puller(access, polls, leases, members, staged)
        self.transactions = Transactions(access, leases, staged, idempotency)
        self.halves = Halves(access, questions)
        self.delayed = DelayedHandlers(access)
        self.redrive = Redrive(access, polls)
        self.peek = Peek(access)
        self.search = LogSearch(access)
        self.replay = LogReplay(access)
        self.message = LogMessage(access, webhooks)
        self.reader = StreamReader(access, polls)
        tails, events = Tails(broker), Events(broker, webhooks)
        self.tails = TailHandlers(access, tails, self.reader, events)
        self.sockets = Sockets(access, self.publisher, tails, self.reader, events)
        self._registry = registry
        self.streams = StreamHandlers(access)
        self.queues = QueueHandlers(access)
        self.tokens = TokenHandlers(access)
        self.webhooks = WebhookHandlers(access, webhooks, self.reader)

    def add(self, app: HttpApp) -> None:
        """Serve the paths on `app`."""
        vhost = "/v1/vhosts/{vhost}"
        queue, exchange = f"{vhost}/queues/{{queue}}", f"{vhost}/exchanges/{{exchange}}"
        stream = f"{vhost}/streams/{{stream}}"
        subscription = f"{stream}/subscriptions/{{subscription}}"
        app.routes.add("POST", f"{exchange}/messages", self.publisher.to_exchange, quick=True)
        app.routes.add("POST", f"{vhost}/mqtt/messages", self.topics.publish, quick=True)
        app.routes.add("DELETE", f"{exchange}/delayed/{{delayed}}", self.delayed.cancel)
        app.routes.add("GET", f"{vhost}/delayed", self.delayed.index)
        app.routes.add("GET", f"{vhost}/delayed-hours", self.delayed.hours)
        app.routes.add("DELETE", f"{vhost}/delayed/{{waiting}}", self.delayed.cancel_one)
        app.routes.add("POST", f"{vhost}/delayed/{{waiting}}/send", self.delayed.send_one)
        app.routes.add("GET", f"{exchange}/tail", self.tails.exchange)
        app.routes.add("GET", f"{vhost}/tail", self.tails.of_query)
        app.routes.add("GET", f"{vhost}/ws", self.sockets.connect)
        app.routes.add("GET", f"{vhost}/mqtt", self._mqtt)
        app.routes.add("POST", f"{vhost}/log/search", self.search.search)
        app.routes.add("GET", f"{vhost}/log/messages/{{message}}", self.message.show)
        app.routes.add("GET", f"{stream}/tail", self.tails.stream)
        app.routes.add("GET", f"{vhost}/queues", self.queues.index)
        app.routes.add("PUT", queue, self.queues.put)
        app.routes.add("GET", queue, self.queues.show)
        app.routes.add("DELETE", queue, self.queues.delete)
        app.routes.add("POST", f"{queue}/messages", self.publisher.to_queue, quick=True)
        app.routes.add("POST", f"{queue}/redrive", self.redrive.redrive)
        app.routes.add("POST", f"{queue}/peek", self.peek.peek)
        app.routes.add("POST", f"{queue}/replay", self.replay.replay)
        for source in (queue, subscription):
            app.routes.add("POST", f"{source}/pull", self.puller.pull, quick=True)
            app.routes.add("POST", f"{source}/ack", self.puller.ack, quick=True)
            app.routes.add("POST", f"{source}/nack", self.puller.nack, quick=True)
            app.routes.add("POST", f"{source}/extend", self.puller.extend, quick=True)
        app.routes.add("POST", f"{subscription}/ack-cumulative", self.puller.ack_cumulative)
        app.routes.add("POST", f"{subscription}/seek", self.streams.seek)
        app.routes.add("POST", f"{subscription}/pause", self.streams.pause)
        app.routes.add("POST", f"{subscription}/resume", self.streams.resume)
        app.routes.add("GET", f"{vhost}/streams", self.streams.index)
        app.routes.add("POST", f"{vhost}/half", self.halves.prepare)
        app.routes.add("GET", f"{vhost}/half/{{half}}", self.halves.show)
        app.routes.add("POST", f"{vhost}/half/{{half}}/commit", self.halves.commit)
        app.routes.add("POST", f"{vhost}/half/{{half}}/rollback", self.halves.rollback)
        app.routes.add("PUT", stream, self.streams.put)
        app.routes.add("GET", stream, self.streams.show)
        app.routes.add("DELETE", stream, self.streams.delete)
        app.routes.add("POST", f"{stream}/messages", self.publisher.to_stream, quick=True)
        app.routes.add("GET", f"{stream}/messages", self.reader.read)
        app.routes.add("GET", f"{stream}/subscriptions", self.streams.subscriptions)
        app.routes.add("PUT", subscription, self.streams.subscribe)
        app.routes.add("GET", subscription, self.streams.show_subscription)
        app.routes.add("DELETE", subscription, self.streams.unsubscribe)
        app.routes.add("POST", f"{vhost}/producers", self.producers.begin)
        transaction = f"{vhost}/transactions/{{transaction}}"
        app.routes.add("POST", f"{vhost}/transactions", self.transactions.post)
        app.routes.add("GET", transaction, self.transactions.show)
        app.routes.add("POST", f"{transaction}/commit", self.transactions.commit)
        app.routes.add("POST", f"{transaction}/rollback", self.transactions.rollback)
        app.routes.add("POST", "/v1/tokens", self.tokens.issue)
        app.routes.add("GET", "/v1/tokens", self.tokens.index)
        app.routes.add("DELETE", "/v1/tokens/{token}", self.tokens.revoke)
        self.webhooks.add(app)
        for path in openapi.PATHS:
            app.routes.add("GET", path, openapi.serve)

    async def _mqtt(self, request: Request) -> Response:
        from penstock.protocols.http.data.live.mqtt_sockets import MqttSockets  # here: few gateways need it

        return await MqttSockets(self.access, self._registry).connect(request)
