"""PUT /api/nodes/N/log-level: {"level": "debug"} sets the level of penstock's loggers in this process.

It holds until a restart, or until SIGHUP reads the configuration again.
"""

from __future__ import annotations

from typing import Final

from penstock import logs
from penstock.protocols.http.management.context import Management, absent, fields_of
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response

__all__ = ["LEVELS", "add"]

LEVELS: Final = ("debug", "info", "warning", "error")


def add(api: Management) -> None:
    """Serve this path."""

    async def put(request: Request) -> Response:
        api.require(request)
        if request.names["node"] != api.node:
            raise absent()
        level = fields_of(await request.json(), ("level",))["level"]
        if level not in LEVELS:
            raise HttpError(400, "bad_request", f"level is one of {', '.join(LEVELS)}")
        logs.set_level(level)
        return json_response({"level": level})

    api.app.routes.add("PUT", "/api/nodes/{node}/log-level", put)
