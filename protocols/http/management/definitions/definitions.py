"""/api/definitions: everything that was declared, as RabbitMQ's definitions.json, out and in (`loading`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from penstock.protocols.http.management import views
from penstock.protocols.http.management.context import (
    RABBITMQ_VERSION,
    Management,
    fields_of,
)
from penstock.protocols.http.management.definitions.differences import difference
from penstock.protocols.http.management.definitions.kinds import is_own
from penstock.protocols.http.management.definitions.loading import Import
from penstock.protocols.http.management.queue_totals import queue_type
from penstock.protocols.http.management.resources.parameters import global_parameters
from penstock.protocols.http.management.resources.users import user_view
from penstock.protocols.http.management.resources.vhosts import policy_view
from penstock.protocols.http.server.messages import HttpError, Request, Response, dumps, json_response, parsed
from penstock.protocols.listening.definitions import OF_FRONTS, OF_VHOST, OF_WORKER, Item, Part, join
from penstock.router.vhost.vhost import Vhost

__all__ = ["add"]

logger: Final = logging.getLogger("penstock.http")

_BODY_MAX: Final = 64 << 20
_AT_ONCE: Final = 200
"""Things shown before the loop does something else."""


def add(api: Management) -> None:
    """Serve these paths."""
    handlers = _Definitions(api)
    for path in ("/api/definitions", "/api/all-configuration"):
        api.app.routes.add("GET", path, handlers.export)
        api.app.routes.add("POST", path, handlers.load)
    api.app.routes.add("POST", "/api/definitions-dry-run", handlers.compare)
    api.app.routes.add("POST", "/api/definitions-dry-run/{vhost}", handlers.compare_vhost)
    api.app.routes.add("GET", "/api/definitions/{vhost}", handlers.export_vhost)
    api.app.routes.add("POST", "/api/definitions/{vhost}", handlers.load_vhost)


class _Definitions:
    def __init__(self, api: Management) -> None:
        self._api = api

    # Out

    def _head(self) -> Item:
        return {
            "rabbit_version": RABBITMQ_VERSION,
            "rabbitmq_version": RABBITMQ_VERSION,
            "product_name": "penstock",
            "product_version": self._api.version,
            "rabbitmq_definition_format": "cluster",
            "original_cluster_name": self._api.cluster,
        }

    async def export(self, request: Request) -> Response:
        self._api.require(request)
        return _attached(request, await self._whole())

    async def _whole(self, *, transient: bool = False) -> Item:
        api = self._api
        broker = api.broker
        vhosts = sorted(broker.vhosts.values(), key=lambda vhost: vhost.name)
        parts: dict[str, list[Item]] = {name: [] for name in (*OF_VHOST, *OF_FRONTS)}
        for vhost in vhosts:
            for name, items in (await self._of(vhost, transient=transient)).items():
                parts[name] += [{"vhost": vhost.name, **item} for item in items]
        return {
            **self._head(),
            "explanation": f"Definitions of {api.node}",
            "users": [user_view(api, name) for name in broker.users.names()],
            "vhosts": [
                {
                    "name": vhost.name,
                    "description": vhost.metadata.description,
                    "tags": list(vhost.metadata.tags),
                    "metadata": {
                        "description": vhost.metadata.description,
                        "tags": list(vhost.metadata.tags),
                    },
                    "limits": dict(vhost.limits) or [],
                    **_default_type(vhost),
                }
                for vhost in vhosts
            ],
            "permissions": [
                {
                    "user": user,
                    "vhost": vhost,
                    "configure": one.configure,
                    "write": one.write,
                    "read": one.read,
                }
                for user, vhost, one in broker.authorizer.permissions()
            ],
            "topic_permissions": [
                {"user": user, "vhost": vhost, "exchange": exchange, "write": t.write, "read": t.read}
                for user, vhost, exchange, t in broker.authorizer.topic_permissions()
            ],
            "global_parameters": global_parameters(api),
            **parts,
        }

    async def export_vhost(self, request: Request) -> Response:
        self._api.require(request)
        vhost = self._api.vhost(request)
        parts = await self._of(vhost)
        return _attached(
            request,
            {
                **self._head(),
                "rabbitmq_definition_format": "single_virtual_host",
                "original_vhost_name": vhost.name,
                "explanation": f"Definitions of virtual host '{vhost.name}'",
                "metadata": {"description": vhost.metadata.description, "tags": list(vhost.metadata.tags)},
                **parts,
            },
        )

    async def _of(self, vhost: Vhost, *, transient: bool = False) -> dict[str, list[Item]]:
        """The durable things of a vhost, without its name; `transient`: and the others."""
        parameters: list[Item] = []
        if vhost.limits:
            parameters.append({"component": "vhost-limits", "name": "limits", "value": dict(vhost.limits)})
        for policy in vhost.policies.all("operator_policy"):
            shown = policy_view(vhost.name, policy)
            name = shown.pop("name")
            del shown["vhost"]
            parameters.append({"component": "operator_policy", "name": name, "value": shown})
        # With their passwords: whoever imports them needs these, and only an administrator exports.
        parameters += [
            {"component": one.component, "name": one.name, "value": one.value}
            for one in self._api.broker.parameters.of(vhost.name)
        ]
        queues = [
            {
                "name": entry.name,
                "type": queue_type(entry),
                "durable": entry.durable,
                "auto_delete": entry.auto_delete,
                "arguments": entry.arguments,
            }
            for entry in vhost.queues.values()
            if (entry.durable or transient) and entry.owner is None
        ]
        await asyncio.sleep(0)
        exchanges = [
            {
                "name": found.name,
                "type": found.type,
                "durable": found.durable,
                "auto_delete": found.auto_delete,
                "internal": found.internal,
                "arguments": found.arguments,
            }
            for found in vhost.exchanges.values()
            if (found.durable or transient) and is_own(found.name)
        ]
        bindings = []
        for source in vhost.exchanges.values():
            for binding in source.bindings.values():
                if not (binding.row or transient) or source.name == "":  # there it is one of a tail
                    continue
                if getattr(binding.destination, "kind", "exchange") == "share":
                    continue
                shown = views.binding(views.BindingRow.of(binding, vhost.name))
                del shown["properties_key"], shown["vhost"]
                bindings.append(shown)
        policies = []
        for policy in vhost.policies.all("policy"):
            shown = policy_view(vhost.name, policy)
            del shown["vhost"]
            policies.append(shown)
        kept = {
            name: await self._kept(part, vhost) for name, part in self._api.registry.definitions().items()
        }
        return {
            "parameters": parameters,
            "policies": policies,
            "queues": queues,
            "exchanges": exchanges,
            "bindings": bindings,
            **kept,
        }

    async def _kept(self, part: Part, vhost: Vhost) -> list[Item]:
        found: list[Item] = []
        for item in part.export(vhost):
            found.append(item)
            if len(found) % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    # In

    async def load(self, request: Request) -> Response:
        self._api.require(request)
        return await self._load(request, None)

    async def compare(self, request: Request) -> Response:
        """The effect of an import. A path of its own: a server without it must not import instead."""
        self._api.require(request)
        return await self._compare(request, None)

    async def compare_vhost(self, request: Request) -> Response:
        """The effect of an import into a vhost, which its worker answers."""
        self._api.require(request)
        return await self._compare(request, self._api.vhost(request, change=True).name)

    async def _compare(self, request: Request, vhost: str | None) -> Response:
        """Each worker checks the file beside its own vhosts. Worker 0 compares it with what all have."""
        api, others = self._api, request.others
        importing = await self._importing(request, vhost)
        await importing.check(conflicts=False)
        there = await self._whole(transient=True)
        if request.part:
            return json_response({name: there[name] for name in OF_WORKER})
        file = importing.file
        if others is not None and api.forwarder is not None:
            await api.forwarder.settled()
            there = join(there, await others.ask(["definitions"] * others.count, body=file.text()))
        return json_response({**difference(there, file.wanted()), "unknown": file.unknown()})

    async def load_vhost(self, request: Request) -> Response:
        api = self._api
        api.require(request)
        name = request.names["vhost"]
        if api.broker.elsewhere(name) is not None:
            if not api.broker.authorizer.enter(api.identity(request), name):
                raise HttpError(403, "not_authorised", "User not authorised to access virtual host")
            return await self._load(request, name)
        return await self._load(request, api.vhost(request, change=True).name)

    async def _importing(self, request: Request, vhost: str | None) -> Import:
        body = await request.body(_BODY_MAX)
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            body = _from_form(body)
        api, user = self._api, self._api.identity(request).username
        return Import(
            api.broker,
            api.app.told,
            fields_of(parsed(body)),
            user=user,
            vhost=vhost,
            parts=api.registry.definitions(),
        )

    async def _load(self, request: Request, vhost: str | None) -> Response:
        api = self._api
        importing = await self._importing(request, vhost)
        await importing.run()
        if api.forwarder is not None and not request.part:
            await api.forwarder.settled()
            for worker, parts in importing.elsewhere.items():
                answer = await api.forwarder.forward(
                    request, worker, api.place, part="definitions", body=dumps(parts)
                )
                if answer.status != 204:
                    return answer
        return Response(204)


def _default_type(vhost: Vhost) -> Item:
    """The vhost's default queue type, where it has one: importing it changes what queues are declared as."""
    kind = vhost.metadata.default_queue_type
    return {"default_queue_type": kind} if kind else {}


def _attached(request: Request, value: Item) -> Response:
    headers: Iterable[tuple[str, str]] = ()
    if request.parameter("download"):
        name = "".join(c for c in request.parameter("download") if c.isalnum() or c in "._-")
        headers = (("content-disposition", f'attachment; filename="{name}"'),)
    return json_response(value, headers=tuple(headers))


def _from_form(body: bytes) -> bytes:
    """The file in a multipart form: between the first empty line and the last boundary."""
    start = body.find(b"\r\n\r\n")
    end = body.rfind(b"\r\n--", 0, body.rstrip(b"\r\n-").rfind(b"\r\n--") + 4)
    if start < 0 or end < start + 4:
        raise HttpError(400, "bad_request", "a form without a file")
    return body[start + 4 : end]
