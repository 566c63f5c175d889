"""All webhooks of a gateway: made, changed, deleted, put back at a start, ended at a stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from penstock.logs import fields
from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.shared.traffic import Messages
from penstock.protocols.http.webhooks.address_rules import Forbidden
from penstock.protocols.http.webhooks.belongings import (
    Context,
    attempts_queue,
    dead_queue,
    declare,
    own_queue,
)
from penstock.protocols.http.webhooks.client import Resolve, look_up
from penstock.protocols.http.webhooks.definitions import WebhookDefinitions
from penstock.protocols.http.webhooks.options import WebhookOptions
from penstock.protocols.http.webhooks.security.auth import BadCertificate
from penstock.protocols.http.webhooks.settings import Settings, Source
from penstock.protocols.http.webhooks.store import Store, Webhook
from penstock.router.authorization.identity import BROKER, Actor, Identity
from penstock.router.errors import AccessRefused, NotFound, TopicRefused
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.router.names import binding_key, text, wire
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.protocols.http.webhooks.delivery.worker import Worker
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Webhooks"]

logger: Final = logging.getLogger("penstock.webhooks")

_ATTEMPTS: Final = {"x-queue-type": "stream", "x-max-age": "7D", "x-max-length-bytes": 256 << 20}
_NAME_MAX: Final = 100
_WEBHOOKS_MAX: Final = 1000
"""In all vhosts together."""


class Webhooks:
    """See the module."""

    def __init__(
        self, broker: Broker, messages: Messages, options: WebhookOptions, *, resolve: Resolve = look_up
    ) -> None:
        """Put back those that the log's tables have, and let them begin.

        Raises:
            ConfigError: their secrets cannot be opened.

        """
        self._broker = broker
        seal = options.seal()
        self._store = Store(broker.log.tables, seal)
        self.definitions = WebhookDefinitions(self, seal)
        self._context = Context(
            broker,
            messages,
            self._store,
            options.guard(),
            cache(options.tls),
            options.tls,
            resolve,
            options.origin or socket.gethostname(),
        )
        self.on_attempt = self._context.on_attempt
        self._workers: dict[tuple[str, str], Worker] = {}
        broker.on_permissions_changed.append(self._permissions_changed)
        for webhook in self._store.webhooks():
            vhost = broker.vhosts.get(webhook.vhost)
            if vhost is None:
                self._store.delete(webhook)
                continue
            self._restore(vhost, webhook)

    def _restore(self, vhost: Vhost, webhook: Webhook) -> None:
        try:
            worker = self._worker(vhost, webhook)
        except (Forbidden, BadCertificate, OSError) as error:
            # The configuration has become narrower: it stays, and can be seen and changed.
            why = _told(error)
            told = fields(webhook=webhook.name, vhost=vhost.name)
            logger.error("a webhook cannot be served: %s", why, extra=told)
            worker = self._worker(vhost, webhook, broken=why)
        self._workers[vhost.name, webhook.name] = worker
        worker.start()
        if not webhook.disabled:
            self._recheck(vhost, worker)  # rules that are in files may be others now

    def _worker(self, vhost: Vhost, webhook: Webhook, *, broken: str = "") -> Worker:
        from penstock.protocols.http.webhooks.delivery.worker import Worker  # here: many gateways have none

        return Worker(self._context, vhost, webhook, broken=broken)

    def __iter__(self) -> Any:
        return iter(list(self._workers.values()))

    def of(self, vhost: Vhost) -> list[Worker]:
        """Those of a vhost, by name."""
        self._forget_lost()
        return [worker for (name, _), worker in sorted(self._workers.items()) if name == vhost.name]

    def get(self, vhost: Vhost, name: str) -> Worker:
        """Raises HttpError 404."""
        worker = self._workers.get((vhost.name, name))
        if worker is None:
            raise HttpError(404, "not_found", f"no webhook '{name}' in vhost '{vhost.name}'")
        return worker

    # Rights

    def permit(self, identity: Identity, vhost: Vhost, name: str) -> None:
        """A user who may configure the queue webhook.NAME may make, change and see the webhook NAME.

        Raises:
            AccessRefused: `identity` may not.

        """
        if not self._broker.authorizer.allow(identity, vhost.name, "configure", own_queue(name)):
            raise AccessRefused("queue", own_queue(name), vhost.name, identity.username, "configure")

    def _permit_source(self, identity: Identity, vhost: Vhost, source: Source) -> None:
        """Raises AccessRefused, TopicRefused."""
        allowed = self._broker.authorizer
        if source.kind in ("queue", "stream"):
            if not allowed.allow(identity, vhost.name, "read", source.name):
                raise AccessRefused("queue", source.name, vhost.name, identity.username, "read")
            return
        exchange, key = _binding(source)
        if not allowed.allow(identity, vhost.name, "read", exchange):
            raise AccessRefused("exchange", exchange, vhost.name, identity.username, "read")
        found = vhost.exchanges.get(exchange)
        if found is not None and found.is_topic:
            if not allowed.allow_topic(identity, vhost.name, "read", exchange, wire(key)):
                raise TopicRefused(exchange, vhost.name, identity.username, "read", wire(key))

    def _permissions_changed(self, user: str, vhost: str) -> None:
        for worker in self._workers.values():
            webhook = worker.webhook
            if webhook.user != user or webhook.vhost != vhost or webhook.disabled:
                continue
            found = self._broker.vhosts.get(vhost)
            if found is not None:
                self._recheck(found, worker)

    def _recheck(self, vhost: Vhost, worker: Worker) -> None:
        webhook = worker.webhook
        try:
            self._permit_source(Identity(webhook.user), vhost, webhook.settings.source)
        except (AccessRefused, TopicRefused):
            worker.disable(f"user '{webhook.user}' may not read its source any more")

    # Changes

    def put(
        self, identity: Identity, vhost: Vhost, name: str, settings: Settings, secrets: list[str]
    ) -> tuple[Worker, bool, int]:
        """Make a webhook, or change one; (it, whether it is new, the LSN to wait for).

        Raises:
            HttpError: 400, 403, 409 or 422: it cannot be so.
            RoutingError: its source is not there, or may not be read.

        """
        if identity.grants is not None:
            raise HttpError(
                403, "access_refused", "a webhook outlives a token: make it as a user of the gateway's own"
            )
        self.permit(identity, vhost, name)
        self._permit_source(identity, vhost, settings.source)
        if settings.verify == "none" and "administrator" not in identity.tags:
            raise HttpError(
                403, "access_refused", "verify: only an administrator sends without the receiver's consent"
            )
        known = self._workers.get((vhost.name, name))
        if known is not None and known.webhook.settings.source != settings.source:
            raise HttpError(409, "inequivalent", "source: a webhook keeps its source; make another webhook")
        webhook = Webhook(vhost.name, name, identity.username, settings, secrets)
        if known is not None:
            webhook.paused = known.webhook.paused
            webhook.secrets = secrets or known.webhook.secrets
            if known.webhook.settings.url == settings.url:
                webhook.granted_ms, webhook.pace_s = known.webhook.granted_ms, known.webhook.pace_s
        worker, lsn = self._install(vhost, webhook)
        return worker, known is None, lsn

    def adopt(self, vhost: Vhost, webhook: Webhook) -> int:
        """Make one that another gateway had, with the rights of its user here; the LSN to wait for.

        Raises:
            HttpError: 400, 409 or 422: it cannot be so.
            RoutingError: its source is not there, or its user may not read it.

        """
        self._permit_source(Identity(webhook.user), vhost, webhook.settings.source)
        return self._install(vhost, webhook)[1]

    def _install(self, vhost: Vhost, webhook: Webhook) -> tuple[Worker, int]:
        """Let it begin, instead of the one that has its name; (it, the LSN to wait for)."""
        name = webhook.name
        if not name or len(name.encode()) > _NAME_MAX:
            raise HttpError(400, "bad_field", f"the name of a webhook has 1 to {_NAME_MAX} bytes")
        known = self._workers.get((vhost.name, name))
        if known is None and len(self._workers) >= _WEBHOOKS_MAX:
            raise HttpError(409, "too_many_webhooks", f"there are {_WEBHOOKS_MAX} webhooks; delete one")
        try:
            worker = self._worker(vhost, webhook)
        except Forbidden as error:
            raise HttpError(422, "forbidden_target", str(error)) from error
        except BadCertificate as error:
            raise HttpError(400, "bad_field", str(error)) from error
        except OSError as error:
            raise HttpError(422, "forbidden_target", _told(error)) from error
        with self._broker.log.unit():
            lsn = max(self._declare(vhost, name, webhook.settings.source), self._store.put(webhook))
        if known is not None:
            known.retire()
        self._workers[vhost.name, name] = worker
        worker.start()
        return worker, lsn

    def _declare(self, vhost: Vhost, name: str, source: Source) -> int:
        """The queues of a webhook. Raises RoutingError."""
        if source.kind in ("queue", "stream"):
            entry = vhost.queues.get(source.name)
            if entry is None:
                raise NotFound("queue", source.name, vhost.name)
            if isinstance(entry.queue, Stream) != (source.kind == "stream"):
                right = "stream" if isinstance(entry.queue, Stream) else "queue"
                raise HttpError(409, "wrong_mode", f"source: '{source.name}' is a {right}: name it so")
            if source.subscription:
                found = vhost.subscriptions.get(source.name, source.subscription)
                if not found.durable:
                    raise HttpError(409, "wrong_mode", "source: a subscription that ends with its consumers")
            if entry.owner is not None or entry.auto_delete:
                raise HttpError(409, "wrong_mode", "source: a queue that is exclusive or auto-delete")
        else:
            exchange, key = _binding(source)
            if exchange not in vhost.exchanges or not exchange:
                raise NotFound("exchange", exchange, vhost.name)
            declare(vhost, own_queue(name))
            vhost.bind_queue(own_queue(name), exchange, key, Actor(BROKER, None))
        declare(vhost, dead_queue(name))
        return declare(vhost, attempts_queue(name), _ATTEMPTS)

    def delete(self, vhost: Vhost, name: str) -> int:
        """End a webhook; its dead letters stay, if there are any. The LSN to wait for."""
        worker = self.get(vhost, name)
        worker.retire()
        del self._workers[vhost.name, name]
        queues = [own_queue(name), attempts_queue(name)]
        dead = vhost.queues.get(dead_queue(name))
        if dead is not None and not dead.queue.ready_count:
            queues.append(dead_queue(name))
        with self._broker.log.unit():
            for queue in queues:
                vhost.delete_queue(queue, Actor(BROKER, None))
            return self._store.delete(worker.webhook)

    def save(self, worker: Worker) -> int:
        """Keep what was changed in its row; the LSN to wait for."""
        return self._store.put(worker.webhook)

    def _forget_lost(self) -> None:
        """A vhost that was deleted took its webhooks with it."""
        for (vhost, name), worker in list(self._workers.items()):
            if vhost not in self._broker.vhosts:
                worker.retire()
                del self._workers[vhost, name]
                self._store.delete(worker.webhook)

    # The end

    async def drain(self, timeout_s: float) -> None:
        """Let what is under way end; nothing new begins."""
        await asyncio.gather(*(worker.drain(timeout_s) for worker in self._workers.values()))


def _told(error: Exception) -> str:
    """Why there can be no worker; of files only `webhooks.ca_file` is read."""
    return f"webhooks.ca_file: {error}" if isinstance(error, OSError) else str(error)


def _binding(source: Source) -> tuple[str, str]:
    """The exchange and the key that an exchange's or a topic's webhook is bound with."""
    if source.kind == "topic":
        return MQTT_EXCHANGE, text(binding_key(wire(source.name)))
    return source.name, source.routing_key
