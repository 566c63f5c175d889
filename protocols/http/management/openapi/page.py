"""Serves the OpenAPI document. It needs no login: it says no more than docs/reference/management.md."""

from __future__ import annotations

from typing import Final

from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.messages import Request, Response, dumps

__all__ = ["add", "is_open"]

_PATH: Final = "/api/openapi.json"


def add(api: Management) -> None:
    """Serve the document."""

    async def serve(_: Request) -> Response:
        from penstock.protocols.http.management.openapi.document import (
            document,  # here: few gateways are asked
        )

        routes = [route for route in api.app.routes.named_paths() if route[1] != _PATH]
        return Response(200, dumps(document(routes)), "application/json")

    api.app.routes.add("GET", _PATH, serve)


def is_open(request: Request) -> bool:
    """Whether a request is for this document."""
    return request.method in ("GET", "HEAD") and "/" + "/".join(request.segments) == _PATH
