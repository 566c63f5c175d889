"""PUT /api/nodes/N/log-level: {"level": "debug"} sets the level of penstock's loggers in this process.

It holds until a restart, or until SIGHUP reads the configuration again.
"""

from __future__ import annotations

from typing import Final

from penstock import logs
from penstock.protocols.http.management.bodies import Body, Choice
from penstock.protocols.http.management.context import Management, absent
from penstock.protocols.http.server.messages import Request, Response, json_response

__all__ = ["LEVEL", "add"]

LEVEL: Final = Body({"level": Choice(("debug", "info", "warning", "error"))}, "level")


def add(api: Management) -> None:
    """Serve this path."""

    async def put(request: Request) -> Response:
        api.require(request)
        if request.names["node"] != api.node:
            raise absent()
        level = LEVEL.read(await request.json())["level"]
        logs.set_level(level)
        return json_response({"level": level})

    api.app.routes.add("PUT", "/api/nodes/{node}/log-level", put)
