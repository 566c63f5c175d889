"""Vhosts and what is set for them: limits, policies, operator policies."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.management import views
from penstock.protocols.http.management.bodies import LIMIT, Body, Flag, Given, Number, Table, Text
from penstock.protocols.http.management.context import Management, absent, fields_of, table_of
from penstock.protocols.http.management.plots import add_samples
from penstock.protocols.http.management.resources.users import Tags
from penstock.protocols.http.server.messages import HttpError, Request, Response, parsed
from penstock.protocols.http.shared.lists import one_of, reply_list
from penstock.router.authorization.permissions import Permission
from penstock.router.policies.definitions import definition_schema
from penstock.router.policies.policies import APPLY_TO

if TYPE_CHECKING:
    from penstock.router.policies.policies import Policy
    from penstock.router.vhost.vhost import Vhost

__all__ = ["VHOST", "add", "policy_body", "policy_view"]

VHOST: Final = Body(
    {
        "description": Text(),
        "tags": Tags(),
        "tracing": Flag(None),
        "default_queue_type": Given(
            {"enum": ["classic", "quorum", "stream", "undefined", None], "description": "undefined: none."}
        ),
        "metadata": Table("Description, tags and default_queue_type, where they are not given apart."),
        "worker": Given({"type": "integer", "minimum": 0, "description": "A worker that there is."}),
    },
    optional=True,
)


@cache
def policy_body(*, operator: bool) -> Body:
    """The body of a policy or an operator policy."""
    return Body(
        {
            "pattern": Given({"type": "string", "description": "A regular expression."}),
            "definition": Table(inner=definition_schema(operator=operator)),
            "priority": Number(1 - 2**31, 2**31 - 1, default=0),
            "apply-to": Given({"enum": sorted(APPLY_TO), "default": "all"}, "all"),
        },
        "pattern",
        "definition",
    )


Item = dict[str, Any]


def add(api: Management) -> None:
    """Serve these paths."""
    vhosts = _Vhosts(api)
    add_route = api.app.routes.add
    for method, path, handler in (
        ("GET", "/api/vhosts", vhosts.index),
        ("GET", "/api/vhosts/{vhost}", vhosts.show),
        ("PUT", "/api/vhosts/{vhost}", vhosts.put),
        ("DELETE", "/api/vhosts/{vhost}", vhosts.delete),
        ("POST", "/api/vhosts/{vhost}/start/{node}", vhosts.start),
        ("GET", "/api/vhost-limits", vhosts.limits),
        ("GET", "/api/vhost-limits/{vhost}", vhosts.limits),
        ("PUT", "/api/vhost-limits/{vhost}/{limit}", vhosts.put_limit),
        ("DELETE", "/api/vhost-limits/{vhost}/{limit}", vhosts.delete_limit),
    ):
        add_route(method, path, handler)
    for kind, operator in (("policies", False), ("operator-policies", True)):
        policies = _Policies(api, operator=operator)
        add_route("GET", f"/api/{kind}", policies.index)
        add_route("GET", f"/api/{kind}/{{vhost}}", policies.index)
        add_route("GET", f"/api/{kind}/{{vhost}}/{{name}}", policies.show)
        add_route("PUT", f"/api/{kind}/{{vhost}}/{{name}}", policies.put)
        add_route("DELETE", f"/api/{kind}/{{vhost}}/{{name}}", policies.delete)


class _Vhosts:
    def __init__(self, api: Management) -> None:
        self._api = api

    async def index(self, request: Request) -> Response:
        api = self._api
        lives = api.registry.connections()
        return await reply_list(
            request,
            api.vhosts(request),
            lambda vhost: views.vhost(api, vhost, lives),
            lambda vhost: (vhost.name,),
        )

    async def show(self, request: Request) -> Response:
        api = self._api
        vhost = api.vhost(request)
        shown = views.vhost(api, vhost, api.registry.connections())
        lengths, traffic = views.vhost_lengths(api, vhost), views.vhost_traffic(api, vhost)
        add_samples(request, "msg_rates", shown["message_stats"], traffic)
        # Lengths and bytes stand in one object, but their ranges are asked for apart.
        bytes_of_all = {
            key: shown[key] for key in ("recv_oct", "recv_oct_details", "send_oct", "send_oct_details")
        }
        add_samples(request, "data_rates", bytes_of_all, traffic)
        lengths_of_all = {key: one for key, one in shown.items() if key not in bytes_of_all}
        add_samples(request, "lengths", lengths_of_all, *lengths)
        return one_of(request, shown)

    async def put(self, request: Request) -> Response:
        api = self._api
        identity = api.require(request)
        raw = await request.body()
        given: Item = fields_of(parsed(raw)) if raw else {}
        body = VHOST.read({**table_of(given, "metadata"), **given})
        name = request.names["vhost"]
        known = api.broker.knows(name)
        if request.part:
            # Worker 0 has seen to the rest.
            api.broker.vhost(name).firehose.turn(on=bool(body["tracing"]))
            return Response(204)
        lsn = api.broker.administration.put_vhost(
            name,
            description=body["description"],
            tags=body["tags"],
            default_queue_type=body["default_queue_type"],
            worker=body["worker"],
        )
        if not known and identity.grants is None:
            # As RabbitMQ does it: the user who makes a vhost may use it. A token allows what its issuer says.
            lsn = max(lsn, api.broker.administration.set_permission(identity.username, name, Permission()))
        if body["tracing"] is not None and name in api.broker.vhosts:
            api.broker.vhost(name).firehose.turn(on=body["tracing"])
        await api.kept(lsn)
        worker = api.broker.elsewhere(name)
        if body["tracing"] is not None and worker is not None and api.forwarder is not None:
            await api.forwarder.settled()
            await api.forwarder.forward(request, worker, api.place, part="tracing", body=raw)
        return Response(204 if known else 201)

    def _known(self, request: Request) -> str:
        self._api.require(request)
        name = request.names["vhost"]
        if not self._api.broker.knows(name):
            raise absent()
        return name

    async def delete(self, request: Request) -> Response:
        api = self._api
        name = self._known(request)
        if api.forwarder is not None:
            await api.forwarder.clear(name)
        await api.kept(api.broker.administration.delete_vhost(name))
        return Response(204)

    async def start(self, request: Request) -> Response:
        """Every vhost runs as long as the gateway does."""
        self._known(request)
        if request.names["node"] != self._api.node:
            raise HttpError(400, "bad_request", f"Request to node {request.names['node']} failed")
        return Response(204)

    # Limits

    async def limits(self, request: Request) -> Response:
        api = self._api
        shown: list[Item] = [
            {"vhost": vhost.name, "value": dict(vhost.limits)}
            for vhost in api.vhosts(request)
            if vhost.limits
        ]
        return await reply_list(request, shown, lambda item: item, lambda item: (item["vhost"],))

    async def put_limit(self, request: Request) -> Response:
        api = self._api
        value = LIMIT.read(await request.json())["value"]
        name = self._known(request)
        await api.kept(api.broker.administration.set_vhost_limits(name, {request.names["limit"]: value}))
        return Response(204)

    async def delete_limit(self, request: Request) -> Response:
        api = self._api
        name = self._known(request)
        await api.kept(api.broker.administration.clear_vhost_limits(name, request.names["limit"]))
        return Response(204)


def policy_view(vhost: str, policy: Policy) -> Item:
    """A policy or an operator policy."""
    return {
        "vhost": vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


class _Policies:
    def __init__(self, api: Management, *, operator: bool) -> None:
        self._api = api
        self._operator = operator

    def _of(self, vhost: Vhost) -> list[Policy]:
        return vhost.policies.all("operator_policy" if self._operator else "policy")

    async def index(self, request: Request) -> Response:
        rows = [(vhost.name, policy) for vhost in self._api.vhosts(request) for policy in self._of(vhost)]
        return await reply_list(
            request, rows, lambda row: policy_view(*row), lambda row: (row[0], row[1].name)
        )

    def _known(self, vhost: Vhost, name: str) -> Policy | None:
        return next((policy for policy in self._of(vhost) if policy.name == name), None)

    async def show(self, request: Request) -> Response:
        vhost = self._api.vhost(request)
        found = self._known(vhost, request.names["name"])
        if found is None:
            raise absent()
        return one_of(request, policy_view(vhost.name, found))

    def _vhost(self, request: Request) -> Vhost:
        """The vhost, for somebody who sets policies."""
        if self._operator:
            self._api.require(request)
        else:
            self._api.require(request, "policymaker")
        # An administrator need not be let into the vhost, as rabbitmqctl need not: it could let itself in.
        is_administrator = "administrator" in self._api.identity(request).tags
        return self._api.vhost(request, change=not is_administrator)

    async def put(self, request: Request) -> Response:
        api = self._api
        vhost = self._vhost(request)
        body = policy_body(operator=self._operator).read(await request.json())
        name = request.names["name"]
        known = self._known(vhost, name) is not None
        lsn = api.broker.administration.put_policy(
            vhost.name,
            name,
            pattern=body["pattern"],
            definition=body["definition"],
            priority=body["priority"],
            apply_to=body["apply-to"],
            operator=self._operator,
        )
        await api.kept(lsn)
        return Response(204 if known else 201)

    async def delete(self, request: Request) -> Response:
        api = self._api
        vhost = self._vhost(request)
        name = request.names["name"]
        if self._known(vhost, name) is None:
            raise absent()
        await api.kept(api.broker.administration.delete_policy(vhost.name, name, operator=self._operator))
        return Response(204)
