"""The listeners of the HTTP front end: data plane, management API, metrics, where the configuration says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http import health, problems
from penstock.protocols.http.audit.actions import Noting
from penstock.protocols.http.console import files as console
from penstock.protocols.http.data.app import DataPlane
from penstock.protocols.http.data.openapi import page as openapi
from penstock.protocols.http.management import oauth_login, sessions
from penstock.protocols.http.management.app import add_management
from penstock.protocols.http.management.context import Management, Replication
from penstock.protocols.http.management.node import overview
from penstock.protocols.http.management.openapi import page as management_openapi
from penstock.protocols.http.metrics.app import add_metrics, needs_no_login
from penstock.protocols.http.metrics.exported import exported
from penstock.protocols.http.server.app import ErrorTexts, HttpApp
from penstock.protocols.http.server.endpoint import HttpFrontEnd
from penstock.protocols.http.server.messages import Request
from penstock.protocols.http.server.routes import Around, Handler
from penstock.protocols.http.server.workers import Forwarder
from penstock.protocols.http.shared.traffic import Messages
from penstock.protocols.http.webhooks.delivery.questions import Questions
from penstock.protocols.http.webhooks.options import WebhookOptions
from penstock.protocols.http.webhooks.service import Webhooks
from penstock.protocols.net.connection_context import ServerOptions
from penstock.protocols.net.process_context import ProcessContext

if TYPE_CHECKING:
    from penstock.config import Address
    from penstock.config.findings import Finding
    from penstock.protocols.http.metrics.exposition import Histogram, Metric
    from penstock.protocols.links.links import Links
    from penstock.protocols.listening.front_end import FrontEnd
    from penstock.protocols.listening.registry import Registry
    from penstock.protocols.login.code_flow import CodeFlow
    from penstock.protocols.workers.replication import Leader
    from penstock.router.broker import Broker

__all__ = ["HttpOptions", "Telemetry", "serve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Where to listen, None = off, and what to tell."""

    http: Address | None = None
    http_tls: Address | None = None
    management: Address | None = None
    management_tls: Address | None = None
    metrics: Address | None = None
    cluster: str = "localhost"
    """The name of this gateway, in the API and in metrics."""
    data_dir: Path = Path("data")
    disk_free_limit: int = 0
    """Publishers are stopped with less free space, in bytes."""
    history_bytes: int = 0
    """The most that histories of counters take; 0 = there are none."""
    webhooks: WebhookOptions = field(default_factory=WebhookOptions)
    replication: Replication | None = None
    """The owner's side of a cluster; None: this gateway is alone."""
    code_flow: CodeFlow | None = None
    """How a page logs in at the issuer of tokens; None: it cannot."""
    telemetry: Telemetry | None = None
    """By which metrics and requests are exported; None: they are not."""
    settings_findings: Callable[[], Iterable[Finding]] = tuple
    """Finds what is unsafe in the configuration."""


class Telemetry(Protocol):
    """An exporter of metrics, and of what requests to the management API are."""

    def around(self, method: str, path: str, handler: Handler) -> Handler:
        """The handler of a route, traced."""

    def reads(self, metrics: Callable[[], Iterable[Metric | Histogram]]) -> None:
        """`metrics` gives them all, as they are when it is called."""


def _is_open(request: Request) -> bool:
    """Whether a request needs no login: for what is no secret."""
    return openapi.is_open(request) or problems.is_open(request) or health.is_open(request)


def _is_open_management(request: Request) -> bool:
    """The same, of the listener of the management API."""
    groups = (console, overview, sessions, oauth_login, management_openapi)
    return any(group.is_open(request) for group in groups) or _is_open(request)


def _is_open_page(request: Request) -> bool:
    """The same, of the listener of metrics."""
    return health.is_open(request) or needs_no_login(request)


def _both(outer: Around, inner: Around) -> Around:
    return lambda method, path, handler: outer(method, path, inner(method, path, handler))


def serve(
    broker: Broker,
    registry: Registry,
    words: ErrorTexts,
    options: HttpOptions,
    server: ServerOptions,
    loop: asyncio.AbstractEventLoop,
    shared: ProcessContext | None = None,
    leader: Leader | None = None,
    *,
    links: Links,
) -> FrontEnd:
    """Listen at every address that is on; `shared.tls` is needed for those with TLS, `leader` in worker 0 of
    several.

    Raises:
        StartError: an address cannot be listened on.

    """
    shared = shared or ProcessContext()
    front_end = HttpFrontEnd("http", broker, server, loop, shared)
    if shared.handover is not None:
        front_end.forwarder = Forwarder(broker, shared.handover, leader)
    messages = Messages(words)
    data = HttpApp(words, needs_no_login=_is_open)
    problems.add(data)
    pages_of_health = health.Health(broker, registry)
    pages_of_health.add(data)
    webhooks = Webhooks(broker, messages, options.webhooks)
    front_end.definitions["webhooks"] = webhooks.definitions
    front_end.before_drain.append(webhooks.drain)
    questions = Questions(broker, messages, options.webhooks.guard(), cache(options.webhooks.tls))
    front_end.before_drain.append(questions.drain)
    noting = Noting(broker, webhooks, registry)
    data.routes.around = noting.around
    plane = DataPlane(data, broker, messages, webhooks, questions, registry)
    plane.add(data)
    front_end.serve("http", data, options.http, options.http_tls, shared.tls)
    managed = options.management is not None or options.management_tls is not None
    telemetry = options.telemetry
    if not managed and options.metrics is None and telemetry is None:
        return front_end
    app = HttpApp(words, needs_no_login=_is_open_management)
    app.routes.around = noting.around if telemetry is None else _both(telemetry.around, noting.around)
    problems.add(app)
    pages_of_health.add(app)
    api = Management(
        app,
        broker,
        registry,
        messages,
        webhooks,
        links,
        plane.access,
        plane.staged,
        cluster=options.cluster,
        data_dir=options.data_dir,
        disk_free_limit=options.disk_free_limit,
        tls=shared.tls,
        forwarder=front_end.forwarder,
        history_bytes=options.history_bytes,
        replication=options.replication,
        code_flow=options.code_flow,
        settings_findings=options.settings_findings,
    )
    add_management(api)
    if telemetry is not None:
        telemetry.reads(partial(exported, api))
    if managed:
        # Here too, so that a page of the management can publish and pull without another origin.
        plane.add(app)
        console.add(app)
        front_end.serve("management", app, options.management, options.management_tls, shared.tls)
    if options.metrics is not None:
        pages = HttpApp(words, needs_no_login=_is_open_page)
        pages_of_health.add(pages)
        add_metrics(pages, api)
        front_end.serve("metrics", pages, options.metrics, None, None)
    return front_end
