"""Serves the OpenAPI document. It needs no login: it says nothing that docs/reference/http.md does not."""

from __future__ import annotations

from functools import cache
from typing import Final

from penstock.protocols.http.server.messages import Request, Response, dumps

__all__ = ["PATHS", "is_open", "serve"]

PATHS: Final = ("/openapi.json", "/v1/openapi.json")


def is_open(request: Request) -> bool:
    """Whether a request is for this document."""
    segments = request.segments
    return bool(segments) and segments[-1] == "openapi.json" and "/" + "/".join(segments) in PATHS


async def serve(request: Request) -> Response:
    """The document."""
    return Response(200, _encoded(), "application/vnd.oai.openapi+json;version=3.1")


@cache
def _encoded() -> bytes:
    from penstock.protocols.http.data.openapi.document import document  # here: few gateways are asked for it

    return dumps(document())
