"""/api/shovels: the state of shovels, as RabbitMQ's plug-in rabbitmq_shovel_management has it; /api/bridges:
that of bridges, which RabbitMQ has not.

Besides RabbitMQ's fields: `reason` also while a shovel waits to connect again, `retry_in_s`, `faults`,
`forwarded`, `pending`, `messages_ready`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from penstock.protocols.http.management.context import Management, absent
from penstock.protocols.http.server.messages import Request, Response
from penstock.protocols.http.shared.lists import one_of, reply_list
from penstock.protocols.links.link import Link, State
from penstock.protocols.links.links import SHOVEL

__all__ = ["add"]

_ONE: Final = "/api/shovels/vhost/{vhost}/{name}"
_STATES: Final = {State.WAITING: "terminated"}
"""RabbitMQ has no word for a shovel that will begin again."""


def _shovel(api: Management, link: Link) -> dict[str, Any]:
    state = _STATES.get(link.state, link.state.value)
    return {**_view(api, link), "type": "dynamic", "state": state}


def _view(api: Management, link: Link) -> dict[str, Any]:
    """A link and how it is; without passwords."""
    changed = datetime.fromtimestamp(link.changed_at, UTC)
    shown: dict[str, Any] = {
        "node": api.node,
        "timestamp": changed.strftime("%Y-%m-%d %H:%M:%S"),
        "name": link.name,
        "vhost": link.vhost,
        "state": link.state.value,
        **link.facts(),
        "forwarded": link.counts.forwarded,
        "faults": link.counts.faults,
    }
    if link.error:
        shown |= {"reason": link.error, "retry_in_s": round(link.retry_in_s, 1)}
    return shown


def add(api: Management) -> None:
    """Serve these paths."""

    async def index(request: Request) -> Response:
        api.require(request, "monitoring", "policymaker")
        rows = [link for vhost in api.vhosts(request) for link in api.links.shovels(vhost.name)]
        return await reply_list(
            request, rows, lambda link: _shovel(api, link), lambda link: (link.vhost, link.name)
        )

    def found(request: Request, *tags: str, change: bool = False) -> Link:
        identity = api.require(request, *tags)
        vhost = api.vhost(request, change=change and "administrator" not in identity.tags)
        for link in api.links.shovels(vhost.name):
            if link.name == request.names["name"]:
                return link
        raise absent()

    async def show(request: Request) -> Response:
        return one_of(request, _shovel(api, found(request, "monitoring", "policymaker")))

    async def delete(request: Request) -> Response:
        link = found(request, "policymaker", change=True)
        await api.kept(api.broker.parameters.clear(link.vhost, SHOVEL, link.name))
        return Response(204)

    async def restart(request: Request) -> Response:
        link = found(request, "policymaker", change=True)
        api.links.restart(link.vhost, link.name)
        return Response(204)

    def bridges(request: Request) -> list[Link]:
        api.require(request, "monitoring", "policymaker")
        seen = {vhost.name for vhost in api.vhosts(request)}
        return [link for link in api.links.bridges if link.vhost in seen]

    async def index_bridges(request: Request) -> Response:
        return await reply_list(
            request,
            bridges(request),
            lambda link: _view(api, link),
            lambda link: (link.vhost, link.name),
        )

    async def show_bridge(request: Request) -> Response:
        for link in bridges(request):
            if link.name == request.names["name"]:
                return one_of(request, _view(api, link))
        raise absent()

    for method, path, handler in (
        ("GET", "/api/bridges", index_bridges),
        ("GET", "/api/bridges/{vhost}", index_bridges),
        ("GET", "/api/bridges/{vhost}/{name}", show_bridge),
        ("GET", "/api/shovels", index),
        ("GET", "/api/shovels/{vhost}", index),
        ("GET", _ONE, show),
        ("DELETE", _ONE, delete),
        ("DELETE", f"{_ONE}/restart", restart),
    ):
        api.app.routes.add(method, path, handler)
