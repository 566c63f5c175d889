"""/metrics, /metrics/per-object, /metrics/detailed, /metrics/memory-breakdown.

A client on this machine needs no login; any other one needs a user with a tag for the management API.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.node.overview import memory_of
from penstock.protocols.http.metrics import node, objects, totals
from penstock.protocols.http.metrics.exposition import CONTENT_TYPE, Histogram, Metric, of_one, written
from penstock.protocols.http.metrics.own import own
from penstock.protocols.http.server.app import HttpApp
from penstock.protocols.http.server.messages import Request, Response

__all__ = ["add_metrics", "needs_no_login"]


def needs_no_login(request: Request) -> bool:
    """Whether the client is on this machine."""
    return request.local


def add_metrics(app: HttpApp, api: Management) -> None:
    """Serve the pages on `app`."""
    pages = _Pages(api)
    app.routes.add("GET", "/metrics", pages.aggregated)
    app.routes.add("GET", "/metrics/per-object", pages.per_object)
    app.routes.add("GET", "/metrics/detailed", pages.detailed)
    app.routes.add("GET", "/metrics/memory-breakdown", pages.memory)


class _Pages:
    def __init__(self, api: Management) -> None:
        self._api = api

    def _check(self, request: Request) -> None:
        if request.identity is not None:
            self._api.require(request, "monitoring", "management", "policymaker")

    async def aggregated(self, request: Request) -> Response:
        self._check(request)
        api = self._api
        metrics = objects.aggregated(api, api.registry.connections(), totals.totals(api))
        return _page(api, "aggregated", metrics, written("", (*own(api), *node.started(api))))

    async def per_object(self, request: Request) -> Response:
        self._check(request)
        return Response(200, content_type=CONTENT_TYPE, stream=objects.per_object(self._api))

    async def detailed(self, request: Request) -> Response:
        self._check(request)
        vhosts = request.query.get("vhost")
        families = [name for value in request.query.get("family", []) for name in value.split(",")]
        pages = objects.detailed(self._api, families, None if vhosts is None else frozenset(vhosts))
        return Response(200, content_type=CONTENT_TYPE, stream=pages)

    async def memory(self, request: Request) -> Response:
        self._check(request)
        parts = [
            of_one(f"memory_{name}_bytes", "gauge", f"Memory: {name}", value)
            for name, value in memory_of(self._api).items()
            if isinstance(value, int)
        ]
        return _page(self._api, "memory-breakdown", parts)


def _page(
    api: Management, endpoint: str, metrics: Iterable[Metric | Histogram], further: Iterable[str] = ()
) -> Response:
    lines = (*written("rabbitmq_", node.about(api, endpoint)), *written("rabbitmq_", metrics), *further)
    return Response(200, "".join(lines).encode(), CONTENT_TYPE)
