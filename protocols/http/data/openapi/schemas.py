"""The schemas of the OpenAPI document (`openapi`): what the data plane takes and answers."""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "AGO",
    "FILTER",
    "NAME",
    "SECRET",
    "START",
    "TEXT",
    "TIME",
    "Json",
    "number",
    "object_",
    "publish_to",
    "ref",
    "schemas",
    "since",
]

Json = dict[str, Any]

TEXT: Final[Json] = {"type": "string"}
NAME: Final[Json] = {"type": "string", "minLength": 1, "maxLength": 255, "description": "At most 255 bytes."}
TIME: Final[Json] = {"type": "string", "format": "date-time", "description": "With its zone."}
AGO: Final[Json] = {"type": "string", "pattern": "^-[0-9]{1,9}[YMDhms]$", "description": "So long ago."}
FILTER: Final[Json] = {
    "type": "string",
    "pattern": r"^(#|(\+|[^+#/]*)(/(\+|[^+#/]*))*(/#)?)$",
    "description": "A topic filter of MQTT, such as a/+/b.",
}
_POSITION: Final[Json] = {"type": "string", "pattern": "^pos:[0-9]{1,18}$"}
_SINCE_EPOCH: Final[Json] = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
START: Final[Json] = {
    "description": "Where to begin: an end, a position, a time (also in milliseconds since the epoch).",
    "anyOf": [{"enum": ["earliest", "latest"]}, _POSITION, AGO, TIME, _SINCE_EPOCH],
}
SECRET: Final[Json] = {
    "type": "string",
    "pattern": "^(whsec_([A-Za-z0-9+/]{4}){8,21}|whsk_[A-Za-z0-9+/]{43}=)$",
    "description": "Of HMAC (whsec_) or ed25519 (whsk_), as `signing` says.",
}
_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_TOKEN: Final = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
_PRINTABLE: Final = "^[ -~]*$"
_HORIZON_MS: Final = 99 * 365 * 86_400_000


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


def since(*ends: str) -> Json:
    """The schema of a text for a start: these ends, a position, a time, or a time ago."""
    return {"anyOf": [*([{"enum": list(ends)}] if ends else []), _POSITION, AGO, TIME]}


def publish_to(to: str | None = None, *, later: bool = True) -> Json:
    """The schema of a message that is published. `to`: the field that says where to; `later`: it may wait."""
    text_or_none = {"type": ["string", "null"], "maxLength": 255, "description": "At most 255 bytes."}
    publish = object_(
        {
            **({} if to is None else {to: TEXT}),
            "value": {"description": "Text; any other JSON is kept as JSON."},
            "value_b64": {"type": "string", "contentEncoding": "base64", "pattern": _BASE64},
            "key": text_or_none,
            "routing_key": text_or_none,
            "content_type": text_or_none,
            "headers": {"type": ["object", "null"], "description": "Their names have at most 255 bytes."},
            "message_id": text_or_none,
            "correlation_id": text_or_none,
            "reply_to": text_or_none,
            "type": text_or_none,
            "priority": {"type": ["integer", "null"], "minimum": 0, "maximum": 255},
            "timestamp": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1},
            "ttl_ms": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**32 - 1},
            "delay_ms": {"type": ["integer", "null"], "maximum": _HORIZON_MS},
            "deliver_at": {
                "description": "A time with its zone or milliseconds since the epoch, within 100 years; "
                "not beside delay_ms.",
                "anyOf": [TIME, {"type": ["integer", "null"], "maximum": _HORIZON_MS}],
            },
            "delay_id": text_or_none,
            "persistent": {"type": "boolean", "default": True},
        },
        *(() if to is None else (to,)),
        closed=True,
    )
    publish["oneOf"] = [{"required": ["value"]}, {"required": ["value_b64"]}]
    if later:
        publish["not"] = {"required": ["delay_ms", "deliver_at"]}
    else:
        for name in ("delay_ms", "deliver_at", "delay_id"):
            del publish["properties"][name]
    return publish


def schemas() -> Json:
    """Each by its name."""
    text_or_none = {"type": ["string", "null"]}
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
                "remedy": {"type": "string", "description": "The request that helps, where there is one."},
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
        "Publish": publish_to(),
        "Event": {
            **object_(
                {
                    "specversion": {"const": "1.0"},
                    "id": {"type": "string", "minLength": 1},
                    "source": {"type": "string", "minLength": 1},
                    "type": {"type": "string", "minLength": 1},
                    "partitionkey": {"type": "string", "maxLength": 255, "description": "At most 255 bytes."},
                    "data_base64": {"type": "string", "contentEncoding": "base64", "pattern": _BASE64},
                },
                "specversion",
                "id",
                "source",
                "type",
            ),
            "propertyNames": {"pattern": "^[a-z0-9_]{1,200}$"},
        },
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
                        object_({"topic": FILTER}, "topic", closed=True),
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
                "headers": {
                    "type": "object",
                    "propertyNames": {"pattern": _TOKEN, "maxLength": 100},
                    "additionalProperties": {"type": "string", "pattern": _PRINTABLE, "maxLength": 4096},
                    "maxProperties": 50,
                    "description": "Others than the gateway's own, such as webhook-* and ce-*.",
                },
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
                "ordering_key": {"type": "string", "pattern": "^(routing_key|header:[!-~]{1,100})$"},
                "max_inflight": number(1, 256, 32),
                "timeout_ms": number(100, 300000, 15000),
                "batch": object_(
                    {
                        "max_messages": number(1, 1000, 1, "More than one: in a format with many."),
                        "max_bytes": number(1, 16 << 20, 256 << 10),
                        "linger_ms": number(0, 60000, 0),
                    },
                    closed=True,
                ),
                "filter": object_(
                    {
                        "routing_key": TEXT,
                        "headers": {
                            "type": "object",
                            "maxProperties": 50,
                            "additionalProperties": {"type": ["string", "number", "boolean"]},
                        },
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
                "auth": {
                    "oneOf": _webhook_auth(),
                    "description": "A user has no colon, token_url is https, certificate and key are PEM.",
                },
                "signing": {"enum": ["hmac", "ed25519", "none"]},
                "secret": SECRET,
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
        fields: Json = {
            name: {"type": "string", "minLength": 1, "maxLength": 8192, "pattern": _PRINTABLE}
            for name in needed
        }
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
            scope={"type": "string", "maxLength": 8192, "pattern": _PRINTABLE},
            audience={"type": "string", "maxLength": 8192, "pattern": _PRINTABLE},
        ),
        one("mtls", "certificate", "key"),
    ]
