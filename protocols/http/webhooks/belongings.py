"""Objects that all webhooks work with, and the queues that belong to one.

Three queues belong to a webhook NAME, besides its source:

    webhook.NAME            what it was bound to, when its source is an exchange or a topic
    webhook.NAME.dead       what could not be delivered
    webhook.NAME.attempts   a stream: one JSON message for each request, seven days long
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.shared.traffic import Messages
from penstock.protocols.http.webhooks.address_rules import Guard
from penstock.protocols.http.webhooks.client import Resolve
from penstock.protocols.http.webhooks.store import Store
from penstock.router.arguments import Arguments
from penstock.router.authorization.identity import BROKER, Actor

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost

__all__ = ["Context", "attempts_queue", "dead_queue", "declare", "own_queue"]


def own_queue(name: str) -> str:
    """Where messages wait of a source that is no queue itself."""
    return f"webhook.{name}"


def dead_queue(name: str) -> str:
    """Where those end up that were never taken."""
    return f"webhook.{name}.dead"


def attempts_queue(name: str) -> str:
    """The delivery log: a stream."""
    return f"webhook.{name}.attempts"


def declare(vhost: Vhost, name: str, arguments: Arguments | None = None) -> int:
    """One of a webhook's queues, if it is not there; the LSN to wait for."""
    return vhost.declare_queue(name, Actor(BROKER, None), durable=True, arguments=arguments).lsn


@dataclass(frozen=True, slots=True)
class Context:
    """The services that all webhooks of a gateway share."""

    broker: Broker
    messages: Messages
    store: Store
    guard: Guard
    tls: Callable[[], ssl.SSLContext]
    """For https; all share one."""
    new_tls: Callable[[], ssl.SSLContext]
    """The same, for one who has a certificate of its own."""
    resolve: Resolve
    origin: str
    on_attempt: list[Callable[[str, str, dict[str, Any]], None]] = field(default_factory=list)
    """Called with the vhost, the webhook's name and the entry of the delivery log, for each request."""
