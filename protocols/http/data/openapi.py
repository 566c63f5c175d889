"""GET /openapi.json: what the data plane takes and answers, as OpenAPI 3.1, for people and for generators.

Written by hand beside the handlers; a test holds it to the routes there are, and requests made from it find
what it does not say (schemathesis). It needs no login: it says nothing that this page does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from penstock import __version__
from penstock.protocols.http.messages import Request, Response, dumps

__all__ = ["PATHS", "document", "is_open", "serve"]

PATHS: Final = ("/openapi.json", "/v1/openapi.json")
Json = dict[str, Any]

_TEXT: Final[Json] = {"type": "string"}
_HANDLES: Final[Json] = {
    "type": "array",
    "maxItems": 10000,
    "items": {"type": "string"},
    "description": "As a pull gave them.",
}


def is_open(request: Request) -> bool:
    """Whether a request is for this document."""
    return "/" + "/".join(request.segments) in PATHS


async def serve(request: Request) -> Response:
    """The document."""
    return Response(200, _encoded(), "application/vnd.oai.openapi+json;version=3.1")


@cache
def _encoded() -> bytes:
    return dumps(document())


def document() -> Json:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "penstock data plane",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "Publish, pull and read messages; webhooks: docs/http.md, docs/webhooks.md.",
        },
        "security": [{"basic": []}],
        "paths": {"/v1/vhosts/{vhost}" + path: _named(path, item) for path, item in _paths().items()},
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            "schemas": _schemas(),
        },
    }


def _named(path: str, item: Json) -> Json:
    names = [part.partition("}")[0] for part in ("{vhost}" + path).split("{")[1:]]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in names
    ]
    return {"parameters": parameters, **item}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _number(least: int, most: int, default: int, text: str = "") -> Json:
    schema: Json = {"type": "integer", "minimum": least, "maximum": most, "default": default}
    return {**schema, "description": text} if text else schema


def _object(properties: Json, *required: str, closed: bool = False) -> Json:
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    if closed:
        schema["additionalProperties"] = False
    return schema


def _query(name: str, schema: Json, text: str) -> Json:
    return {"name": name, "in": "query", "schema": schema, "description": text}


def _operation(
    summary: str,
    answers: Mapping[int, Json | None],
    *,
    body: Json | None = None,
    kinds: dict[str, Json] | None = None,
    optional: bool = False,
    parameters: list[Json] | None = None,
    media: str = "application/json",
) -> Json:
    """`answers`: the schema of the body for each status; None: there is none."""
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    responses: Json = {"default": {"description": "It was refused.", "content": problem}}
    for status, schema in answers.items():
        content = {media: {"schema": schema}} if schema is not None else None
        responses[str(status)] = {"description": "Done.", **({"content": content} if content else {})}
    operation: Json = {"summary": summary, "responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if body is not None or kinds is not None:
        content = {name: {"schema": schema} for name, schema in (kinds or {}).items()}
        if body is not None:
            content["application/json"] = {"schema": body}
        operation["requestBody"] = {"required": not optional, "content": content}
    return operation


def _paths() -> Json:
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "maxLength": 255, "pattern": "^[!-~]*$"},
        "description": "The request happens once, however often it is sent.",
    }
    acks = _query("ack", {"enum": ["fsync", "written", "none"], "default": "fsync"}, "What is waited for.")
    mandatory = _query("mandatory", {"enum": ["true", "false"]}, "Refuse what goes to no queue.")
    published = {200: _ref("Results"), 202: _ref("Results"), 207: _ref("Results")}
    events = {
        "application/x-ndjson": {"type": "string"},
        "application/cloudevents+json": _ref("Event"),
        "application/cloudevents-batch+json": {"type": "array", "items": _ref("Event")},
    }
    many = {
        "anyOf": [
            _object({"messages": {"type": "array", "items": _ref("Publish")}}, "messages"),
            _ref("Publish"),
        ]
    }
    routing_key = _query("routing_key", _TEXT, "Of messages without one.")
    settled = {200: _ref("Settled"), 207: _ref("Settled")}
    pull = _object(
        {
            "max_messages": _number(1, 1000, 10),
            "wait_ms": _number(0, 60000, 5000),
            "lease_ms": _number(1000, 43200000, 30000),
        }
    )
    read = [
        _query("from", {"type": "string", "default": "first"}, "first, next, an offset, a time or -1h."),
        _query("max", _number(1, 1000, 100), "Messages at most."),
        _query("wait_ms", _number(0, 60000, 0), "How long the first one is waited for."),
    ]
    queue = "/queues/{queue}"
    messages = _object({"messages": {"type": "array", "items": _ref("Message")}}, "messages")
    return {
        "/exchanges/{exchange}/messages": {
            "post": _operation(
                "Publish through an exchange.",
                published,
                body=many,
                kinds=events,
                parameters=[acks, mandatory, routing_key, key],
            )
        },
        "/exchanges/{exchange}/tail": {
            "get": _operation(
                "What passes an exchange from now on, as server-sent events.",
                {200: {"type": "string"}},
                parameters=[_query("pattern", {"type": "string", "default": "#"}, "A binding key.")],
                media="text/event-stream",
            )
        },
        f"{queue}/messages": {
            "post": _operation(
                "Publish into a queue.", published, body=many, kinds=events, parameters=[acks, mandatory, key]
            )
        },
        f"{queue}/pull": {
            "post": _operation("Lease messages, waiting for some.", {200: messages}, body=pull)
        },
        f"{queue}/ack": {
            "post": _operation("They are done.", settled, body=_object({"handles": _HANDLES}, "handles"))
        },
        f"{queue}/nack": {
            "post": _operation(
                "They are given back, or dead-lettered.",
                settled,
                body=_object({"handles": _HANDLES, "dead_letter": {"type": "boolean"}}, "handles"),
            )
        },
        f"{queue}/extend": {
            "post": _operation(
                "They take longer.",
                settled,
                body=_object({"handles": _HANDLES, "lease_ms": _number(1000, 43200000, 30000)}, "handles"),
            )
        },
        "/transactions": {
            "post": _operation(
                "Publish and acknowledge as one atomic unit.",
                {200: _ref("Results")},
                body=_object(
                    {
                        "publish": {"type": "array", "maxItems": 1000, "items": {"type": "object"}},
                        "ack": {
                            "type": "array",
                            "items": _object({"queue": _TEXT, "handles": _HANDLES}, "queue", "handles"),
                        },
                    },
                    closed=True,
                ),
                parameters=[key],
            )
        },
        "/streams/{queue}/messages": {
            "get": _operation("Read a stream.", {200: _ref("Read")}, parameters=read)
        },
        **_webhooks(read),
    }


def _webhooks(read: list[Json]) -> Json:
    one, shown = "/webhooks/{name}", _ref("Webhook")
    since = {"type": "string", "description": 'A time with its zone, an interval ("-1h"), or "pos:N".'}
    accepted = {"type": "object"}
    return {
        "/webhooks": {
            "get": _operation(
                "All webhooks.", {200: _object({"webhooks": {"type": "array", "items": shown}}, "webhooks")}
            )
        },
        one: {
            "get": _operation("Settings and state.", {200: shown}),
            "put": _operation("Make or change one.", {200: shown, 201: shown}, body=_ref("WebhookSettings")),
            "delete": _operation("End it.", {204: None}),
        },
        f"{one}/pause": {"post": _operation("Send nothing until it is resumed.", {200: shown})},
        f"{one}/resume": {"post": _operation("Go on.", {200: shown})},
        f"{one}/test": {"post": _operation("Send a message that is in no queue.", {200: accepted})},
        f"{one}/rotate-secret": {
            "post": _operation(
                "A new secret beside the old one.",
                {200: _object({"secret": _TEXT}, "secret")},
                body=_object(
                    {
                        "overlap_ms": _number(0, 2592000000, 86400000),
                        "signing": {"enum": ["hmac", "ed25519"]},
                        "secret": _TEXT,
                    }
                ),
                optional=True,
            )
        },
        f"{one}/replay": {
            "post": _operation(
                "Send again what was sent.",
                {202: accepted},
                body=_object({"from": since, "to": since}, "from"),
            )
        },
        f"{one}/redrive": {
            "post": _operation(
                "Send its dead letters again.",
                {202: accepted},
                body=_object({"max": _number(1, 1000000, 1000)}),
                optional=True,
            )
        },
        f"{one}/attempts": {"get": _operation("The delivery log.", {200: _ref("Read")}, parameters=read)},
    }


def _schemas() -> Json:
    text_or_none = {"type": ["string", "null"]}
    publish = _object(
        {
            "value": {"description": "Text; any other JSON is kept as JSON."},
            "value_b64": {"type": "string", "contentEncoding": "base64"},
            "routing_key": text_or_none,
            "content_type": text_or_none,
            "headers": {"type": ["object", "null"]},
            "message_id": text_or_none,
            "correlation_id": text_or_none,
            "reply_to": text_or_none,
            "type": text_or_none,
            "priority": {"type": ["integer", "null"], "minimum": 0, "maximum": 255},
            "timestamp": {"type": ["integer", "null"], "minimum": 0},
            "ttl_ms": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**32 - 1},
            "delay_ms": {"type": ["integer", "null"]},
            "deliver_at": {"type": ["string", "integer", "null"]},
            "persistent": {"type": "boolean", "default": True},
        },
        closed=True,
    )
    result = _object(
        {
            "id": _TEXT,
            "duplicate": {"type": "boolean"},
            "error": _object({"code": _TEXT, "detail": _TEXT}, "code"),
        }
    )
    message = _object(
        {
            "id": _TEXT,
            "handle": _TEXT,
            "offset": {"type": "integer"},
            "exchange": _TEXT,
            "routing_key": _TEXT,
            "deliveries": {"type": "integer"},
            "redelivered": {"type": "boolean"},
            "published_at": {"type": "integer", "description": "Milliseconds since the epoch."},
            "headers": {"type": "object"},
            "value": _TEXT,
            "value_b64": _TEXT,
        },
        "id",
        "exchange",
        "routing_key",
        "published_at",
    )
    return {
        "Problem": _object(
            {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT, "code": _TEXT},
            "type",
            "title",
            "status",
            "detail",
            "code",
        ),
        "Publish": publish,
        "Event": _object(
            {
                "specversion": {"const": "1.0"},
                "id": {"type": "string", "minLength": 1},
                "source": {"type": "string", "minLength": 1},
                "type": {"type": "string", "minLength": 1},
                "partitionkey": _TEXT,
            },
            "specversion",
            "id",
            "source",
            "type",
        ),
        "Results": _object({"results": {"type": "array", "items": result}}, "results"),
        "Settled": _object(
            {
                "results": {
                    "type": "array",
                    "items": _object({"handle": _TEXT, "error": _object({"code": _TEXT}, "code")}, "handle"),
                }
            },
            "results",
        ),
        "Message": message,
        "Read": _object(
            {
                "messages": {"type": "array", "items": _ref("Message")},
                "next": {"type": "integer"},
                "first_offset": {"type": "integer"},
                "next_offset": {"type": "integer"},
            },
            "messages",
            "next",
            "first_offset",
            "next_offset",
        ),
        "WebhookSettings": _object(
            {
                "source": {
                    "oneOf": [
                        _object({"queue": _TEXT}, "queue", closed=True),
                        _object({"exchange": _TEXT, "routing_key": _TEXT}, "exchange", closed=True),
                        _object({"topic": _TEXT}, "topic", closed=True),
                        _object(
                            {"stream": _TEXT, "from": {"enum": ["first", "next"]}}, "stream", closed=True
                        ),
                    ]
                },
                "url": {"type": "string", "format": "uri", "maxLength": 2048},
                "method": {"enum": ["POST", "PUT", "PATCH"]},
                "headers": {"type": "object", "additionalProperties": _TEXT, "maxProperties": 50},
                "format": {
                    "enum": [
                        "cloudevents-binary",
                        "cloudevents-structured",
                        "cloudevents-batch",
                        "raw",
                        "json",
                    ]
                },
                "ordering": {"enum": ["none", "key", "strict"]},
                "ordering_key": _TEXT,
                "max_inflight": _number(1, 256, 32),
                "timeout_ms": _number(100, 300000, 15000),
                "batch": _object(
                    {
                        "max_messages": _number(1, 1000, 1),
                        "max_bytes": _number(1, 16 << 20, 256 << 10),
                        "linger_ms": _number(0, 60000, 0),
                    },
                    closed=True,
                ),
                "retry": _object(
                    {
                        "schedule_ms": {
                            "type": "array",
                            "maxItems": 100,
                            "items": {"type": "integer", "minimum": 0, "maximum": 604800000},
                        },
                        "max_age_ms": _number(0, 31536000000, 345600000),
                        "refused_attempts": _number(1, 100, 5),
                    },
                    closed=True,
                ),
                "disable_after_ms": _number(1000, 31536000000, 432000000),
                "verify": {"enum": ["options", "none"]},
                "signing": {"enum": ["hmac", "ed25519", "none"]},
                "secret": _TEXT,
            },
            "source",
            "url",
            closed=True,
        ),
        "Webhook": _object(
            {
                "name": _TEXT,
                "vhost": _TEXT,
                "user": _TEXT,
                "state": _TEXT,
                "reason": _TEXT,
                "source": {"type": "object"},
                "url": _TEXT,
                "secret": {"type": "string", "description": "Of a webhook that was made just now."},
                "public_key": text_or_none,
                "backlog": {"type": "integer"},
                "dead": {"type": "integer"},
                "delivered": {"type": "integer"},
                "last_status": {"type": "integer"},
                "last_error": _TEXT,
            },
            "name",
            "vhost",
            "state",
            "source",
            "url",
        ),
    }
