"""/api/log-readers: the external readers of the log, by their leases, and how far behind each is.

See `log_core.maintenance.leases`.
"""

from __future__ import annotations

from typing import Any

from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.messages import Request, Response
from penstock.protocols.http.shared.lists import reply_list

__all__ = ["add"]


def add(api: Management) -> None:
    """Serve this path."""
    log = api.broker.log

    async def index(request: Request) -> Response:
        api.require(request, "monitoring")
        found: list[dict[str, Any]] = [
            {
                "name": lease.name,
                "user": lease.user,
                "position": lease.position,
                "behind": max(log.written_lsn + 1 - lease.position, 0),
            }
            for lease in log.leases
        ]
        return await reply_list(request, found, lambda item: item, lambda item: (item["name"],))

    api.app.routes.add("GET", "/api/log-readers", index)
