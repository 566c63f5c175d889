"""The data plane put together: its paths below /v1."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.protocols.http.app import HttpApp
from penstock.protocols.http.data import openapi
from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.idempotency import Idempotency
from penstock.protocols.http.data.publish import Publisher
from penstock.protocols.http.data.pull import Puller
from penstock.protocols.http.data.reader import StreamReader
from penstock.protocols.http.data.tail import Tailer
from penstock.protocols.http.data.transactions import Transactions
from penstock.protocols.http.traffic import Messages
from penstock.protocols.http.webhooks.handlers import WebhookHandlers
from penstock.protocols.http.webhooks.service import Webhooks

if TYPE_CHECKING:
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        access = Access(app, broker, messages)
        idempotency = Idempotency(broker)
        self.publisher = Publisher(access, idempotency)
        self.puller = Puller(access, clock)
        self.transactions = Transactions(access, self.puller, idempotency)
        self.tailer = Tailer(access)
        self.reader = StreamReader(access, self.puller)
        self.webhooks = WebhookHandlers(access, webhooks, self.reader)

    def add(self, app: HttpApp) -> None:
        """Serve the paths on `app`."""
        queue, exchange = "/v1/vhosts/{vhost}/queues/{queue}", "/v1/vhosts/{vhost}/exchanges/{exchange}"
        app.routes.add("POST", f"{exchange}/messages", self.publisher.to_exchange)
        app.routes.add("GET", f"{exchange}/tail", self.tailer.tail)
        app.routes.add("POST", f"{queue}/messages", self.publisher.to_queue)
        app.routes.add("POST", f"{queue}/pull", self.puller.pull)
        app.routes.add("POST", f"{queue}/ack", self.puller.ack)
        app.routes.add("POST", f"{queue}/nack", self.puller.nack)
        app.routes.add("POST", f"{queue}/extend", self.puller.extend)
        app.routes.add("GET", "/v1/vhosts/{vhost}/streams/{queue}/messages", self.reader.read)
        app.routes.add("POST", "/v1/vhosts/{vhost}/transactions", self.transactions.commit)
        self.webhooks.add(app)
        for path in openapi.PATHS:
            app.routes.add("GET", path, openapi.serve)
