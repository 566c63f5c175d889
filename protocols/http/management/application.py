"""PUT /api/nodes/N/application: what `rabbitmqctl stop_app` and `start_app` do.

    {"state": "stopped"}    listeners of clients are closed and their connections ended as at a stop
    {"state": "running"}    they listen again, at the same addresses

The state of the broker stays as it is, webhooks go on, and so do the management API and the metrics: what is
stopped by HTTP is started by HTTP. A restart of the process begins with all listeners.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.errors import StartError
from penstock.protocols.http.management.bodies import Body, Choice
from penstock.protocols.http.management.context import Management, absent
from penstock.protocols.http.server.messages import HttpError, Request, Response, dumps, json_response

__all__ = ["STATE", "add"]

STATE: Final = Body({"state": Choice(("stopped", "running"))}, "state")

_STAY: Final = ("management", "management_tls", "metrics")
"""Listeners that are never stopped."""
_DRAIN_S: Final = 10.0


def add(api: Management) -> None:
    """Serve this path."""
    api.app.routes.add("PUT", "/api/nodes/{node}/application", _Application(api).put)


class _Application:
    def __init__(self, api: Management) -> None:
        self._api = api
        self._changing = asyncio.Lock()

    async def put(self, request: Request) -> Response:
        """Stop or start; what is so already is fine."""
        api = self._api
        api.require(request)
        if request.names["node"] != api.node and not request.part:
            raise absent()
        state = STATE.read(await request.json())["state"]
        front_ends = list(api.registry.front_ends.values())
        async with self._changing:
            if state == "stopped":
                await asyncio.gather(*(front_end.suspend(_DRAIN_S, but=_STAY) for front_end in front_ends))
            else:
                try:
                    for front_end in front_ends:
                        front_end.resume()
                except StartError as error:
                    raise HttpError(503, "unavailable", str(error)) from error
            if api.forwarder is not None and not request.part:
                # Clients of each vhost are accepted by all workers: one that goes on stops nothing.
                await api.forwarder.everywhere(request, api.place, dumps({"state": state}))
        return json_response({"state": state})
