"""/api/log-readers: who reads the log itself, by their leases (`log_core.holds`), and how far behind."""

from __future__ import annotations

from typing import Any

from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.lists import reply_list
from penstock.protocols.http.messages import Request, Response

__all__ = ["add"]


def add(api: Management) -> None:
    """Serve this path."""
    log = api.broker.log

    async def index(request: Request) -> Response:
        api.require(request, "monitoring")
        found: list[dict[str, Any]] = [
            {
                "name": hold.name,
                "user": hold.user,
                "position": hold.position,
                "behind": max(log.written_lsn + 1 - hold.position, 0),
            }
            for hold in log.holds
        ]
        return await reply_list(request, found, lambda item: item, lambda item: (item["name"],))

    api.app.routes.add("GET", "/api/log-readers", index)
