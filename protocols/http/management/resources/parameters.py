"""Run-time parameters of vhosts, which links act on, and global ones, which nothing acts on.

Limits of vhosts and operator policies are parameters for RabbitMQ, too; here they have paths of their own
only. Passwords in URIs are shown as ******. A value that comes back so keeps the password that it had.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from penstock.protocols.http.management.bodies import Body, Given
from penstock.protocols.http.management.context import Management, absent, table_of
from penstock.protocols.http.server.messages import HttpError, Request, Response
from penstock.protocols.http.shared.lists import one_of, reply_list
from penstock.protocols.links.amqp.federation.upstreams import set_schema, upstream_schema
from penstock.protocols.links.amqp.parameters import shown
from penstock.protocols.links.federation import UPSTREAM_SET
from penstock.protocols.links.terms import shovel_schemas
from penstock.router.arguments import decode_table, encode_table
from penstock.router.parameters import Parameter
from penstock.router.rows import row_key
from penstock.router.vhost.vhost import Vhost

__all__ = ["GLOBAL", "GLOBAL_TABLE", "add", "global_parameters", "parameter_body", "parameter_view"]

Item = dict[str, Any]

GLOBAL: Final = Body({"value": Given({})}, "value")
GLOBAL_TABLE: Final = "global_parameter"
"""Rows: row_key(name) -> name and value. Nothing here acts on them; they are kept for whoever put them."""
_ONE: Final = "/api/parameters/{component}/{vhost}/{name}"


@cache
def parameter_body() -> Body:
    """The body of a parameter."""
    value = {
        "description": "Of its component: shovel, federation-upstream or federation-upstream-set.",
        "anyOf": [*shovel_schemas(), upstream_schema(), set_schema()],
    }
    return Body({"value": Given(value)}, "value")


def add(api: Management) -> None:
    """Serve these paths."""
    parameters, in_common = _Parameters(api), _Global(api)
    for method, path, handler in (
        ("GET", "/api/parameters", parameters.index),
        ("GET", "/api/parameters/{component}", parameters.index),
        ("GET", "/api/parameters/{component}/{vhost}", parameters.index),
        ("GET", _ONE, parameters.show),
        ("PUT", _ONE, parameters.put),
        ("DELETE", _ONE, parameters.delete),
        ("GET", "/api/global-parameters", in_common.index),
        ("GET", "/api/global-parameters/{name}", in_common.show),
        ("PUT", "/api/global-parameters/{name}", in_common.put),
        ("DELETE", "/api/global-parameters/{name}", in_common.delete),
    ):
        api.app.routes.add(method, path, handler)


def parameter_view(one: Parameter) -> Item:
    """A parameter, without passwords."""
    return {"value": shown(one.value), "vhost": one.vhost, "component": one.component, "name": one.name}


class _Parameters:
    def __init__(self, api: Management) -> None:
        self._api = api

    async def index(self, request: Request) -> Response:
        api = self._api
        api.require(request, "policymaker")
        component = request.names.get("component")
        rows = [
            one
            for vhost in api.vhosts(request)
            for one in api.broker.parameters.of(vhost.name, None if component == "all" else component)
        ]
        return await reply_list(
            request, rows, parameter_view, lambda one: (one.component, one.vhost, one.name)
        )

    def _vhost(self, request: Request) -> Vhost:
        identity = self._api.require(request, "policymaker")
        return self._api.vhost(request, change="administrator" not in identity.tags)

    def _found(self, request: Request) -> Parameter:
        vhost = self._vhost(request)
        names = request.names
        found = self._api.broker.parameters.get(vhost.name, names["component"], names["name"])
        if found is None:
            raise absent()
        return found

    async def show(self, request: Request) -> Response:
        return one_of(request, parameter_view(self._found(request)))

    async def put(self, request: Request) -> Response:
        api = self._api
        vhost = self._vhost(request)
        body = parameter_body().read(await request.json())
        component, name = request.names["component"], request.names["name"]
        parameters = api.broker.parameters
        known = parameters.get(vhost.name, component, name) is not None
        identity = api.identity(request)
        if identity.grants is not None:
            told = "a parameter outlives a token: put it as a user of the gateway's own"
            raise HttpError(403, "not_authorised", told)
        # A set is a list; all others are tables.
        value = body["value"] if component == UPSTREAM_SET else table_of(body, "value")
        await api.kept(parameters.put(Parameter(vhost.name, component, name, value, identity.username)))
        return Response(204 if known else 201)

    async def delete(self, request: Request) -> Response:
        found = self._found(request)
        parameters = self._api.broker.parameters
        await self._api.kept(parameters.clear(found.vhost, found.component, found.name))
        return Response(204)


def global_parameters(api: Management) -> list[Item]:
    """All global parameters, by name."""
    rows = [decode_table(value) for _, value in api.broker.log.tables.items(GLOBAL_TABLE)]
    return sorted(rows, key=lambda row: str(row["name"]))


class _Global:
    def __init__(self, api: Management) -> None:
        self._api = api

    async def index(self, request: Request) -> Response:
        self._api.require(request, "policymaker")
        return await reply_list(
            request,
            global_parameters(self._api),
            lambda item: item,
            lambda item: (item["name"],),
            in_common=True,
        )

    def _find(self, name: str) -> Item | None:
        return next((item for item in global_parameters(self._api) if item["name"] == name), None)

    async def show(self, request: Request) -> Response:
        self._api.require(request, "policymaker")
        found = self._find(request.names["name"])
        if found is None:
            raise absent()
        return one_of(request, found)

    async def put(self, request: Request) -> Response:
        api = self._api
        api.require(request)
        name = request.names["name"]
        value = GLOBAL.read(await request.json())["value"]
        known = self._find(name) is not None
        row = encode_table({"name": name, "value": value})
        await api.kept(api.broker.log.tables.put(GLOBAL_TABLE, row_key(name), row))
        return Response(204 if known else 201)

    async def delete(self, request: Request) -> Response:
        api = self._api
        api.require(request)
        name = request.names["name"]
        if self._find(name) is None:
            raise absent()
        await api.kept(api.broker.log.tables.delete(GLOBAL_TABLE, row_key(name)))
        return Response(204)
