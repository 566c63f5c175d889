"""/api/auth/attempts/NODE: how many logins there were since the start, by protocol."""

from __future__ import annotations

from typing import Final

from penstock.protocols.http.management.context import Management, absent
from penstock.protocols.http.server.messages import Request, Response, json_response

__all__ = ["PROTOCOLS", "add"]

PROTOCOLS: Final = {"amqp": "amqp091", "mqtt": "mqtt", "native": "native", "http": "http"}
"""The protocols that logins are counted by, with RabbitMQ's names."""


def add(api: Management) -> None:
    """Serve this path."""

    async def attempts(request: Request) -> Response:
        api.require(request, "monitoring")
        if request.names["node"] != api.node:
            raise absent()
        counted = api.broker.users.attempts
        return json_response(
            [
                {
                    "protocol": told,
                    "auth_attempts": counted[protocol, True] + counted[protocol, False],
                    "auth_attempts_failed": counted[protocol, False],
                    "auth_attempts_succeeded": counted[protocol, True],
                }
                for protocol, told in PROTOCOLS.items()
            ]
        )

    api.app.routes.add("GET", "/api/auth/attempts/{node}", attempts)
