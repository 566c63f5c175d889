"""/api/webhooks: webhooks as the data plane shows them (`webhooks.handlers`), which also makes and changes
them."""

from __future__ import annotations

from typing import Any

from penstock.protocols.http.management.context import Management, absent
from penstock.protocols.http.server.messages import Request, Response
from penstock.protocols.http.shared.lists import one_of, reply_list
from penstock.protocols.http.webhooks.handlers import shown

__all__ = ["add"]


def add(api: Management) -> None:
    """Serve these paths."""

    def visible(request: Request) -> list[dict[str, Any]]:
        return [shown(worker) for vhost in api.vhosts(request) for worker in api.webhooks.of(vhost)]

    async def index(request: Request) -> Response:
        return await reply_list(
            request, visible(request), lambda item: item, lambda item: (item["vhost"], item["name"])
        )

    async def one(request: Request) -> Response:
        for item in visible(request):
            if item["name"] == request.names["name"]:
                return one_of(request, item)
        raise absent()

    for path in ("/api/webhooks", "/api/webhooks/{vhost}"):
        api.app.routes.add("GET", path, index)
    api.app.routes.add("GET", "/api/webhooks/{vhost}/{name}", one)
