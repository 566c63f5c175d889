"""GET /healthz and /readyz: what a supervisor or a load balancer asks, without a login.

    /healthz   200 "ok"; 503 "failed": the log cannot write any more, and the process ends
    /readyz    200 "ok"; 503 "not ready": also while the listeners of clients are stopped, and while the owner
               of a cluster hands out nothing

They say nothing else. Alarms do not count: publishers wait then, and consumers go on. /api/health/checks has
more, with a login.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.protocols.http.server.app import HttpApp
from penstock.protocols.http.server.messages import Request, Response

if TYPE_CHECKING:
    from penstock.protocols.listening.registry import Registry
    from penstock.router.broker import Broker

__all__ = ["Health", "is_open"]

_PATHS: Final = ("healthz", "readyz")


def is_open(request: Request) -> bool:
    """Whether a request is for one of these pages."""
    return len(request.segments) == 1 and request.segments[0] in _PATHS


class Health:
    """The handlers."""

    def __init__(self, broker: Broker, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry

    def add(self, app: HttpApp) -> None:
        """Serve the pages on `app`."""
        app.routes.add("GET", "/healthz", self._alive)
        app.routes.add("GET", "/readyz", self._ready)

    async def _alive(self, request: Request) -> Response:
        return _page(200, "ok") if self._broker.log.failed is None else _page(503, "failed")

    async def _ready(self, request: Request) -> Response:
        stopped = any(not listener.accepting for _, listener in self._registry.listeners())
        if stopped or self._broker.log.failed is not None or self._broker.tick.held:
            return _page(503, "not ready")
        return _page(200, "ok")


def _page(status: int, text: str) -> Response:
    return Response(
        status, f"{text}\n".encode(), "text/plain; charset=utf-8", (("cache-control", "no-store"),)
    )
