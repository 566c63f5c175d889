"""The schemas of the OpenAPI document (`openapi`): what the data plane takes and answers."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["TEXT", "Json", "number", "object_", "ref", "schemas"]

Json = dict[str, Any]

TEXT: Final[Json] = {"type": "string"}


def ref(name: str) -> Json:
    """A schema of this module, by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def number(least: int, most: int, default: int, text: str = "") -> Json:
    """A whole number in [least, most]."""
    schema: Json = {"type": "integer", "minimum": least, "maximum": most, "default": default}
    return {**schema, "description": text} if text else schema


def object_(properties: Json, *required: str, closed: bool = False) -> Json:
    """An object; `closed`: with no other properties."""
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    if closed:
        schema["additionalProperties"] = False
    return schema


def schemas() -> Json:
    """Each by its name."""
    text_or_none = {"type": ["string", "null"]}
    publish = object_(
        {
            "value": {"description": "Text; any other JSON is kept as JSON."},
            "value_b64": {"type": "string", "contentEncoding": "base64"},
            "key": text_or_none,
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
            "delay_id": text_or_none,
            "persistent": {"type": "boolean", "default": True},
        },
        closed=True,
    )
    publish["oneOf"] = [{"required": ["value"]}, {"required": ["value_b64"]}]
    result = object_(
        {
            "id": TEXT,
            "routed": {
                "type": "boolean",
                "description": "Whether a queue or subscription gets it; not of delayed messages.",
            },
            "duplicate": {"type": "boolean"},
            "staged": {"type": "integer", "description": "Its place in the results of the commit."},
            "error": object_({"code": TEXT, "detail": TEXT}, "code"),
        }
    )
    message = object_(
        {
            "id": TEXT,
            "handle": TEXT,
            "offset": {"type": "integer"},
            "key": TEXT,
            "exchange": TEXT,
            "routing_key": TEXT,
            "deliveries": {"type": "integer"},
            "redelivered": {"type": "boolean"},
            "published_at": {"type": "integer", "description": "Milliseconds since the epoch."},
            "headers": {"type": "object"},
            "value": TEXT,
            "value_b64": TEXT,
        },
        "id",
        "exchange",
        "routing_key",
        "published_at",
    )
    return {
        "Problem": object_(
            {
                "type": TEXT,
                "title": TEXT,
                "status": {"type": "integer"},
                "detail": TEXT,
                "code": TEXT,
                "retryable": {"type": "boolean"},
                "retry_after_ms": {"type": "integer"},
                "earliest": {"type": "integer", "description": "Of `position_deleted`."},
            },
            "type",
            "title",
            "status",
            "detail",
            "code",
            "retryable",
        ),
        "Queue": object_(
            {
                "name": TEXT,
                "durable": {"type": "boolean"},
                "auto_delete": {"type": "boolean"},
                "arguments": {"type": "object"},
                "ready": {"type": "integer"},
                "unacked": {"type": "integer"},
                "consumers": {"type": "integer"},
            },
            "name",
            "durable",
            "auto_delete",
            "arguments",
            "ready",
            "unacked",
            "consumers",
        ),
        "Stream": object_(
            {
                "name": TEXT,
                "messages": {"type": "integer"},
                "first_offset": {"type": "integer"},
                "next_offset": {"type": "integer"},
                "max_age": text_or_none,
                "max_bytes": {"type": ["integer", "null"]},
            },
            "name",
            "messages",
            "first_offset",
            "next_offset",
        ),
        "Subscription": object_(
            {
                "name": TEXT,
                "stream": TEXT,
                "kind": TEXT,
                "durable": {"type": "boolean"},
                "paused": {"type": "boolean"},
                "backlog": {"type": "integer"},
                "unacked": {"type": "integer"},
                "lag": {"type": "integer"},
                "head_age_ms": {"type": ["integer", "null"]},
                "consumers": {"type": "integer"},
            },
            "name",
            "stream",
            "kind",
            "durable",
            "paused",
            "backlog",
            "unacked",
            "lag",
            "head_age_ms",
            "consumers",
        ),
        "Publish": publish,
        "Event": object_(
            {
                "specversion": {"const": "1.0"},
                "id": {"type": "string", "minLength": 1},
                "source": {"type": "string", "minLength": 1},
                "type": {"type": "string", "minLength": 1},
                "partitionkey": TEXT,
            },
            "specversion",
            "id",
            "source",
            "type",
        ),
        "Results": object_({"results": {"type": "array", "items": result}}, "results"),
        "Settled": object_(
            {
                "results": {
                    "type": "array",
                    "items": object_({"handle": TEXT, "error": object_({"code": TEXT}, "code")}, "handle"),
                }
            },
            "results",
        ),
        "Message": message,
        "Read": object_(
            {
                "messages": {"type": "array", "items": ref("Message")},
                "next": {"type": "integer"},
                "first_offset": {"type": "integer"},
                "next_offset": {"type": "integer"},
            },
            "messages",
            "next",
            "first_offset",
            "next_offset",
        ),
        "WebhookSettings": object_(
            {
                "source": {
                    "oneOf": [
                        object_({"queue": TEXT}, "queue", closed=True),
                        object_({"exchange": TEXT, "routing_key": TEXT}, "exchange", closed=True),
                        object_({"topic": TEXT}, "topic", closed=True),
                        object_({"stream": TEXT, "from": {"enum": ["first", "next"]}}, "stream", closed=True),
                        object_(
                            {"stream": TEXT, "subscription": {"type": "string", "minLength": 1}},
                            "stream",
                            "subscription",
                            closed=True,
                        ),
                    ]
                },
                "url": {"type": "string", "format": "uri", "maxLength": 2048},
                "method": {"enum": ["POST", "PUT", "PATCH"]},
                "headers": {"type": "object", "additionalProperties": TEXT, "maxProperties": 50},
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
                "ordering_key": TEXT,
                "max_inflight": number(1, 256, 32),
                "timeout_ms": number(100, 300000, 15000),
                "batch": object_(
                    {
                        "max_messages": number(1, 1000, 1),
                        "max_bytes": number(1, 16 << 20, 256 << 10),
                        "linger_ms": number(0, 60000, 0),
                    },
                    closed=True,
                ),
                "filter": object_(
                    {
                        "routing_key": TEXT,
                        "headers": {"type": "object", "maxProperties": 50},
                        "types": {"type": "array", "maxItems": 100, "items": TEXT},
                    },
                    closed=True,
                ),
                "retry": object_(
                    {
                        "schedule_ms": {
                            "type": "array",
                            "maxItems": 100,
                            "items": {"type": "integer", "minimum": 0, "maximum": 604800000},
                        },
                        "max_age_ms": number(0, 31536000000, 345600000),
                        "refused_attempts": number(1, 100, 5),
                    },
                    closed=True,
                ),
                "disable_after_ms": number(1000, 31536000000, 432000000),
                "verify": {"enum": ["options", "challenge", "none"]},
                "auth": {"oneOf": _webhook_auth()},
                "signing": {"enum": ["hmac", "ed25519", "none"]},
                "secret": TEXT,
            },
            "source",
            "url",
            closed=True,
        ),
        "Webhook": object_(
            {
                "name": TEXT,
                "vhost": TEXT,
                "user": TEXT,
                "state": TEXT,
                "reason": TEXT,
                "source": {"type": "object"},
                "url": TEXT,
                "secret": {"type": "string", "description": "Of a webhook that was made just now."},
                "public_key": text_or_none,
                "backlog": {"type": "integer"},
                "dead": {"type": "integer"},
                "delivered": {"type": "integer"},
                "last_status": {"type": "integer"},
                "last_error": TEXT,
            },
            "name",
            "vhost",
            "state",
            "source",
            "url",
        ),
    }


def _webhook_auth() -> list[Json]:
    """The ways a webhook proves itself, one schema each."""

    def one(kind: str, *needed: str, **others: Json) -> Json:
        fields: Json = {name: {"type": "string", "minLength": 1} for name in needed}
        return object_({"type": {"const": kind}} | fields | others, "type", *needed, closed=True)

    return [
        one("none"),
        one("basic", "user", "password"),
        one("bearer", "token"),
        one(
            "oauth2-client-credentials",
            "token_url",
            "client_id",
            "client_secret",
            client_auth={"enum": ["basic", "post"], "default": "basic"},
            scope=TEXT,
            audience=TEXT,
        ),
        one("mtls", "certificate", "key"),
    ]
