"""GET /api/openapi.json: the paths of the management API and the bodies they take, as OpenAPI 3.1.

The paths are those of the app's routes. The bodies are RabbitMQ's; the exchange types and policy keys are
those that the handlers ask. Answers are RabbitMQ's, too: docs/reference/management.md. It needs no login: it
says no more than that page.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock import __version__
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.node.log_level import LEVELS
from penstock.protocols.http.management.node.recording import FOR_S_MAX, KINDS
from penstock.protocols.http.server.messages import Request, Response, dumps
from penstock.router.exchanges.exchanges import TYPES
from penstock.router.policies.definitions import definition_schema
from penstock.router.policies.policies import APPLY_TO

__all__ = ["add", "document", "is_open"]

Json = dict[str, Any]

_PATH: Final = "/api/openapi.json"
_TEXT: Final[Json] = {"type": "string"}
_URI: Final[Json] = {**_TEXT, "description": "A URI of AMQP, such as amqp://."}
_SHOVEL: Final[Json] = {
    "type": "object",
    "properties": {"src-uri": _URI, "src-queue": _TEXT, "dest-uri": _URI, "dest-queue": _TEXT},
    "required": ["src-uri", "src-queue", "dest-uri"],
    "additionalProperties": False,
}
_FLAG: Final[Json] = {"type": "boolean", "default": False}
_ARGUMENTS: Final[Json] = {
    "type": "object",
    "description": "Those of docs/reference/amqp.md, such as x-max-length.",
}
_TAGS: Final[Json] = {
    "description": "A list, or text with commas.",
    "anyOf": [_TEXT, {"type": "array", "items": _TEXT}],
}
_HASH: Final[Json] = {"type": "string", "description": "As an export has it, in base64; empty: none."}
_USER: Final[Json] = {"type": "string", "description": "Names of users that are there."}
_REGEX: Final[Json] = {"type": "string", "description": "A regular expression."}
_LIMIT: Final[Json] = {"type": "integer", "minimum": -1, "maximum": 2**31 - 1, "description": "-1: none."}
_MODES: Final = ("ack_requeue_true", "reject_requeue_true", "ack_requeue_false", "reject_requeue_false")


def add(api: Management) -> None:
    """Serve the document."""

    async def serve(_: Request) -> Response:
        return Response(200, dumps(document(api.app.routes.named_paths())), "application/json")

    api.app.routes.add("GET", _PATH, serve)


def is_open(request: Request) -> bool:
    """Whether a request is for this document."""
    return request.method in ("GET", "HEAD") and "/" + "/".join(request.segments) == _PATH


def document(routes: Iterable[tuple[str, str]]) -> Json:
    """The whole document, of the routes (method, path) under /api."""
    paths: dict[str, Json] = {}
    bodies = _bodies()
    for method, path in routes:
        if path.startswith("/api/") and path != _PATH:
            paths.setdefault(path, _parameters(path))[method.lower()] = _operation(bodies.get((method, path)))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "penstock management API",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "RabbitMQ's management API; see docs/reference/management.md.",
        },
        "security": [{"basic": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {"Error": _object({"error": _TEXT, "reason": {}}, "error", "reason")},
        },
    }


def _parameters(path: str) -> Json:
    names = [part.partition("}")[0] for part in path.split("{")[1:]]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in names
    ]
    return {"parameters": parameters} if parameters else {}


def _operation(body: Json | None) -> Json:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: Json = {
        "responses": {
            "2XX": {"description": "Done."},
            "default": {"description": "It was refused.", "content": error},
        }
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


def _object(properties: Json, *required: str) -> Json:
    schema: Json = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def _bodies() -> dict[tuple[str, str], Json]:
    """The body that a route takes, for those that take one."""
    binding = _object({"routing_key": {**_TEXT, "maxLength": 255}, "arguments": _ARGUMENTS})
    permission = {"configure": _REGEX, "write": _REGEX, "read": _REGEX}
    value = _object({"value": _LIMIT}, "value")
    definitions: Json = {"type": "object", "description": "As an export has them."}

    def policy(*, operator: bool) -> Json:
        return _object(
            {
                "pattern": _REGEX,
                "definition": definition_schema(operator=operator),
                "priority": {"type": "integer", "minimum": 1 - 2**31, "maximum": 2**31 - 1, "default": 0},
                "apply-to": {"enum": sorted(APPLY_TO), "default": "all"},
            },
            "pattern",
            "definition",
        )

    return {
        ("PUT", "/api/queues/{vhost}/{name}"): {
            **_object({"durable": _FLAG, "auto_delete": _FLAG, "arguments": _ARGUMENTS}),
            "description": "As it is, if it is there.",
        },
        ("POST", "/api/queues/{vhost}/{name}/actions"): _object(
            {"action": {"enum": ["sync", "cancel_sync"]}}, "action"
        ),
        ("POST", "/api/queues/{vhost}/{name}/get"): _object(
            {
                "count": {"type": "integer", "minimum": 0, "maximum": 10_000},
                "ackmode": {"enum": list(_MODES)},
                "encoding": {"enum": ["auto", "base64"]},
                "truncate": {"type": "integer", "minimum": 0, "description": "Bytes of each payload."},
            },
            "count",
            "ackmode",
            "encoding",
        ),
        ("POST", "/api/exchanges/{vhost}/{name}/route"): _object(
            {"routing_key": {**_TEXT, "maxLength": 255}, "headers": {"type": "object"}}
        ),
        ("PUT", "/api/exchanges/{vhost}/{name}"): _object(
            {
                "type": {"enum": list(TYPES), "default": "direct"},
                "durable": _FLAG,
                "auto_delete": _FLAG,
                "internal": _FLAG,
                "arguments": _ARGUMENTS,
            }
        ),
        ("POST", "/api/exchanges/{vhost}/{name}/publish"): _object(
            {
                "properties": {"type": "object", "description": "AMQP's, such as content_type."},
                "routing_key": {**_TEXT, "maxLength": 255, "description": "At most 255 bytes."},
                "payload": {**_TEXT, "description": "In base64, if payload_encoding says so."},
                "payload_encoding": {"enum": ["string", "base64"]},
            },
            "properties",
            "routing_key",
            "payload",
            "payload_encoding",
        ),
        ("POST", "/api/bindings/{vhost}/e/{source}/q/{destination}"): binding,
        ("POST", "/api/bindings/{vhost}/e/{source}/e/{destination}"): binding,
        ("PUT", "/api/users/{user}"): _object(
            {"tags": _TAGS, "password": _TEXT, "password_hash": _HASH, "hashing_algorithm": _TEXT}, "tags"
        ),
        ("POST", "/api/users/bulk-delete"): _object({"users": {"type": "array", "items": _USER}}, "users"),
        ("PUT", "/api/user-limits/{user}/{limit}"): value,
        ("PUT", "/api/vhost-limits/{vhost}/{limit}"): value,
        ("PUT", "/api/permissions/{vhost}/{user}"): _object(permission, *permission),
        ("PUT", "/api/topic-permissions/{vhost}/{user}"): _object(
            {"exchange": _TEXT, "write": _REGEX, "read": _REGEX}, "exchange", "write", "read"
        ),
        ("PUT", "/api/vhosts/{vhost}"): _object(
            {
                "description": _TEXT,
                "tags": _TAGS,
                "tracing": _FLAG,
                "default_queue_type": {"enum": ["classic", "quorum", "stream", "undefined"]},
                "metadata": {"type": "object"},
            }
        ),
        ("PUT", "/api/policies/{vhost}/{name}"): policy(operator=False),
        ("PUT", "/api/operator-policies/{vhost}/{name}"): policy(operator=True),
        ("PUT", "/api/parameters/{component}/{vhost}/{name}"): _object(
            {"value": {**_SHOVEL, "description": "Of the component shovel; see docs/how-to/shovels.md."}},
            "value",
        ),
        ("PUT", "/api/global-parameters/{name}"): _object({"value": {}}, "value"),
        ("POST", "/api/login"): _object({"username": _TEXT, "password": _TEXT}, "username", "password"),
        ("PUT", "/api/nodes/{node}/log-level"): _object({"level": {"enum": list(LEVELS)}}, "level"),
        ("PUT", "/api/recording"): _object(
            {
                "kinds": {"type": "array", "items": {"enum": list(KINDS)}},
                "for_s": {"type": "integer", "minimum": 0, "maximum": FOR_S_MAX, "description": "0: end it."},
            },
            "kinds",
            "for_s",
        ),
        ("PUT", "/api/nodes/{node}/application"): _object(
            {"state": {"enum": ["stopped", "running"]}}, "state"
        ),
        ("PUT", "/api/nodes/{node}/memory-high-watermark"): _object(
            {
                "fraction": {"type": "number", "minimum": 0, "maximum": 1},
                "bytes": {"type": "integer", "minimum": 0},
            }
        ),
        ("POST", "/api/definitions"): definitions,
        ("POST", "/api/all-configuration"): definitions,
        ("POST", "/api/definitions-dry-run"): definitions,
        ("POST", "/api/definitions/{vhost}"): definitions,
    }
