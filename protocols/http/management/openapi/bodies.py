"""The body that each route takes: the one by which its handler reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.protocols.http.management.application import STATE
from penstock.protocols.http.management.bodies import LIMIT, Body
from penstock.protocols.http.management.node.log_level import LEVEL
from penstock.protocols.http.management.node.overview import NAME, WATERMARK
from penstock.protocols.http.management.node.recording import RECORDING
from penstock.protocols.http.management.resources.exchanges import BINDING, EXCHANGE, ROUTED
from penstock.protocols.http.management.resources.messages import GET, PUBLISH
from penstock.protocols.http.management.resources.parameters import GLOBAL, parameter_body
from penstock.protocols.http.management.resources.queues import ACTION, QUEUE
from penstock.protocols.http.management.resources.users import PERMISSION, TOPIC_PERMISSION, USER, USERS
from penstock.protocols.http.management.resources.vhosts import VHOST, policy_body
from penstock.protocols.http.management.sessions import LOGIN

__all__ = ["bodies"]

Route = tuple[str, str]
"""Method and path."""


def bodies() -> Mapping[Route, dict[str, Any]]:
    """The `requestBody` of each route that takes one."""
    described = {route: _request(body.schema(), body.optional) for route, body in _read().items()}
    definitions = _request({"type": "object", "description": "As an export has them."}, optional=False)
    loads = (
        "definitions",
        "all-configuration",
        "definitions-dry-run",
        "definitions-dry-run/{vhost}",
        "definitions/{vhost}",
    )
    return {**described, **{("POST", f"/api/{path}"): definitions for path in loads}}


def _request(schema: dict[str, Any], optional: bool) -> dict[str, Any]:
    return {"required": not optional, "content": {"application/json": {"schema": schema}}}


def _read() -> Mapping[Route, Body]:
    return {
        ("PUT", "/api/queues/{vhost}/{name}"): QUEUE,
        ("POST", "/api/queues/{vhost}/{name}/actions"): ACTION,
        ("POST", "/api/queues/{vhost}/{name}/get"): GET,
        ("PUT", "/api/exchanges/{vhost}/{name}"): EXCHANGE,
        ("POST", "/api/exchanges/{vhost}/{name}/publish"): PUBLISH,
        ("POST", "/api/exchanges/{vhost}/{name}/route"): ROUTED,
        ("POST", "/api/bindings/{vhost}/e/{source}/q/{destination}"): BINDING,
        ("POST", "/api/bindings/{vhost}/e/{source}/e/{destination}"): BINDING,
        ("PUT", "/api/users/{user}"): USER,
        ("POST", "/api/users/bulk-delete"): USERS,
        ("PUT", "/api/user-limits/{user}/{limit}"): LIMIT,
        ("PUT", "/api/vhost-limits/{vhost}/{limit}"): LIMIT,
        ("PUT", "/api/permissions/{vhost}/{user}"): PERMISSION,
        ("PUT", "/api/topic-permissions/{vhost}/{user}"): TOPIC_PERMISSION,
        ("PUT", "/api/vhosts/{vhost}"): VHOST,
        ("PUT", "/api/policies/{vhost}/{name}"): policy_body(operator=False),
        ("PUT", "/api/operator-policies/{vhost}/{name}"): policy_body(operator=True),
        ("PUT", "/api/parameters/{component}/{vhost}/{name}"): parameter_body(),
        ("PUT", "/api/global-parameters/{name}"): GLOBAL,
        ("PUT", "/api/cluster-name"): NAME,
        ("POST", "/api/login"): LOGIN,
        ("PUT", "/api/nodes/{node}/log-level"): LEVEL,
        ("PUT", "/api/nodes/{node}/application"): STATE,
        ("PUT", "/api/nodes/{node}/memory-high-watermark"): WATERMARK,
        ("PUT", "/api/recording"): RECORDING,
    }
