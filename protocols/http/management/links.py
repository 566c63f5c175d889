"""/api/shovels and /api/federation-links: the state of links, as RabbitMQ's plug-ins have it
(rabbitmq_shovel_management, rabbitmq_federation_management); /api/bridges: that of bridges, which it has not.

Besides RabbitMQ's fields: `reason` also while a shovel waits to connect again, `retry_in_s`, `faults`,
`forwarded`, `pending`, `messages_ready`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.management.context import Management, absent
from penstock.protocols.http.server.messages import Request, Response
from penstock.protocols.http.shared.lists import one_of, reply_list
from penstock.protocols.links.link import Link, State
from penstock.protocols.links.links import SHOVEL

if TYPE_CHECKING:
    from penstock.protocols.links.amqp.federation.federated import FederatedLink

__all__ = ["add"]

_ONE: Final = "/api/shovels/vhost/{vhost}/{name}"
_STATES: Final = {State.WAITING: "terminated"}
"""RabbitMQ has no word for a shovel that will begin again."""
_STATUSES: Final = {
    State.STARTING: "starting",
    State.RUNNING: "running",
    State.WAITING: "error",
    State.TERMINATED: "shutdown",
}
"""Of links of federation, in RabbitMQ's words."""


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


def _federation(api: Management, link: FederatedLink) -> dict[str, Any]:
    shown = _view(api, link)
    del shown["name"], shown["state"]
    shown["status"] = _STATUSES[link.state]
    if "reason" in shown:
        shown["error"] = shown.pop("reason")
    return shown


def _add_federation(api: Management) -> None:
    def links(request: Request) -> list[FederatedLink]:
        api.require(request, "monitoring", "policymaker")
        return [link for vhost in api.vhosts(request) for link in api.links.federation.links(vhost.name)]

    async def reply(request: Request, rows: list[FederatedLink]) -> Response:
        return await reply_list(
            request, rows, lambda link: _federation(api, link), lambda link: (link.vhost, link.name)
        )

    async def index(request: Request) -> Response:
        return await reply(request, links(request))

    async def down(request: Request) -> Response:
        return await reply(request, [link for link in links(request) if link.state is not State.RUNNING])

    async def restart(request: Request) -> Response:
        identity = api.require(request, "policymaker")
        vhost = api.vhost(request, change="administrator" not in identity.tags)
        for link in api.links.federation.links(vhost.name):
            if link.id == request.names["id"] and api.node == request.names["node"]:
                api.links.federation.restart(link)
                return Response(204)
        raise absent()

    for method, path, handler in (
        ("GET", "/api/federation-links", index),
        ("GET", "/api/federation-links/{vhost}", index),
        ("GET", "/api/federation-links/state/down", down),
        ("GET", "/api/federation-links/{vhost}/state/down", down),
        ("DELETE", "/api/federation-links/vhost/{vhost}/{id}/{node}/restart", restart),
    ):
        api.app.routes.add(method, path, handler)


def add(api: Management) -> None:
    """Serve these paths."""
    _add_federation(api)

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
