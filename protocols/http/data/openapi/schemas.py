"""The schemas of the OpenAPI document (`openapi`): what the data plane takes and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.protocols.http.data.publishing.bodies import FIELDS
from penstock.protocols.http.data.streams import DELAYS
from penstock.protocols.http.shared.fields import Whole
from penstock.protocols.http.shared.shapes import schema_of
from penstock.protocols.http.shared.traffic import SHORT_PROPERTIES
from penstock.protocols.http.webhooks import settings as webhooks
from penstock.protocols.http.webhooks.answers import WEBHOOK
from penstock.protocols.http.webhooks.handlers import SIGNING
from penstock.protocols.http.webhooks.security import auth

__all__ = [
    "AGO",
    "FILTER",
    "NAME",
    "SECRET",
    "START",
    "TEXT",
    "TIME",
    "Json",
    "answer",
    "object_",
    "publish_to",
    "ref",
    "schemas",
    "since",
    "wholes",
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
_WIDEST: Final = "Whole numbers in it have at most 64 bits with their sign, at any depth."
_HORIZON_MS: Final = 99 * 365 * 86_400_000


def ref(name: str) -> Json:
    """A schema of this module, by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def wholes(fields: Mapping[str, Whole], **texts: str) -> Json:
    """The numbers that a handler reads by these bounds; `texts` are descriptions of some."""
    return {
        name: {**bounds.schema(), **({"description": texts[name]} if name in texts else {})}
        for name, bounds in fields.items()
    }


def object_(properties: Json, *required: str, closed: bool = False) -> Json:
    """An object; `closed`: with no other properties."""
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    if closed:
        schema["additionalProperties"] = False
    return schema


def answer(schema: Json) -> Json:
    """The schema of an answer: its objects, at any depth, have no other properties than those it names."""
    closed: Json = {
        name: answer(inner) if isinstance(inner, dict) else [answer(one) for one in inner]
        for name, inner in schema.items()
        if name in ("items", "anyOf", "oneOf")
    }
    if "properties" in schema:
        named = {name: answer(inner) for name, inner in schema["properties"].items()}
        closed |= {"properties": named, "additionalProperties": False}
    return {**schema, **closed}


def since(*ends: str) -> Json:
    """The schema of a text for a start: these ends, a position, a time, or a time ago."""
    return {"anyOf": [*([{"enum": list(ends)}] if ends else []), _POSITION, AGO, TIME]}


def publish_to(to: str | None = None, *, later: bool = True) -> Json:
    """The schema of a message that is published. `to`: the field that says where to; `later`: it may wait."""
    text_or_none = {"type": ["string", "null"], "maxLength": 255, "description": "At most 255 bytes."}
    fields: Json = {
        "value": {"description": "Text; any other JSON is kept as JSON."},
        "value_b64": {"type": "string", "contentEncoding": "base64", "pattern": _BASE64},
        "key": text_or_none,
        "routing_key": text_or_none,
        "content_type": text_or_none,
        "headers": {
            "type": ["object", "null"],
            "description": f"Their names have at most 255 bytes. {_WIDEST}",
        },
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
    }
    # The names are those that the handler knows.
    known = {name: fields[name] for name in sorted(FIELDS)}
    needed = () if to is None else (to,)
    publish = object_({**dict.fromkeys(needed, TEXT), **known}, *needed, closed=True)
    publish["oneOf"] = [{"required": ["value"]}, {"required": ["value_b64"]}]
    if later:
        publish["not"] = {"required": ["delay_ms", "deliver_at"]}
    else:
        for name in ("delay_ms", "deliver_at", "delay_id"):
            del publish["properties"][name]
    return publish


def schemas() -> Json:
    """Each by its name; those that are answers are whole."""
    answered = {name: answer(schema) for name, schema in _answered().items()}
    return {"Publish": publish_to(), **_taken(), **answered}


def _answered() -> Json:
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
            "topic": {**TEXT, "description": "Of a message that came by MQTT."},
            "deliveries": {"type": "integer"},
            "redelivered": {"type": "boolean"},
            "published_at": {"type": "integer", "description": "Milliseconds since the epoch."},
            "headers": {"type": "object"},
            **{name: TEXT for name in SHORT_PROPERTIES},
            **{name: {"type": "integer"} for name in ("delivery_mode", "priority", "timestamp")},
            "protocol": {
                "enum": ["amqp", "mqtt"],
                "description": "Of its publisher; of one message.",
            },
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
                "delivered": {"type": "integer"},
                "acknowledged": {"type": "integer"},
                "requeued": {"type": "integer"},
                **{name: {"type": ["integer", "null"]} for name in (*DELAYS, "max_deliveries")},
                "dead_letter": text_or_none,
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
        "Results": object_(
            {
                "results": {"type": "array", "items": result},
                "duplicate": {"type": "boolean", "description": "Of a transaction: it was done before."},
            },
            "results",
        ),
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
        "Webhook": schema_of({**WEBHOOK, "secret?": str}),
    }


def _taken() -> Json:
    return {
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
            "description": _WIDEST,
        },
        "WebhookSettings": object_(
            {
                "source": {
                    "oneOf": [
                        object_({"queue": TEXT}, "queue", closed=True),
                        object_({"exchange": TEXT, "routing_key": TEXT}, "exchange", closed=True),
                        object_({"topic": FILTER}, "topic", closed=True),
                        object_(
                            {"stream": TEXT, "from": {"enum": list(webhooks.STARTS)}}, "stream", closed=True
                        ),
                        object_(
                            {"stream": TEXT, "subscription": {"type": "string", "minLength": 1}},
                            "stream",
                            "subscription",
                            closed=True,
                        ),
                    ]
                },
                "url": {"type": "string", "format": "uri", "maxLength": 2048},
                "method": {"enum": list(webhooks.METHODS)},
                "headers": {
                    "type": "object",
                    "propertyNames": {"pattern": _TOKEN, "maxLength": 100},
                    "additionalProperties": {"type": "string", "pattern": _PRINTABLE, "maxLength": 4096},
                    "maxProperties": 50,
                    "description": "Others than the gateway's own, such as webhook-* and ce-*.",
                },
                "format": {"enum": list(webhooks.FORMATS)},
                "ordering": {"enum": list(webhooks.ORDERINGS)},
                "ordering_key": {"type": "string", "pattern": "^(routing_key|header:[!-~]{1,100})$"},
                **wholes(webhooks.NUMBERS),
                "batch": object_(
                    wholes(webhooks.BATCH, max_messages="More than one: in a format with many."), closed=True
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
                            "maxItems": webhooks.SCHEDULE_MAX,
                            "items": {
                                "type": "integer",
                                "minimum": 0,
                                "maximum": webhooks.SCHEDULED_MS_MAX,
                            },
                        },
                        **wholes(webhooks.RETRY),
                    },
                    closed=True,
                ),
                "verify": {"enum": list(webhooks.VERIFICATIONS)},
                "auth": {
                    "oneOf": _webhook_auth(),
                    "description": "A user has no colon, token_url is https, certificate and key are PEM.",
                },
                "signing": {"enum": list(SIGNING)},
                "secret": SECRET,
            },
            "source",
            "url",
            closed=True,
        ),
    }


def _webhook_auth() -> list[Json]:
    """The ways a webhook proves itself, one schema each."""
    found = []
    for kind, names in auth.FIELDS.items():
        needed = [name for name in names if name not in auth.DEFAULTS]
        fields = {name: _webhook_secret(name, needed=name in needed) for name in names}
        needed = ["type", *needed] if kind != "none" else []
        found.append(object_({"type": {"const": kind}, **fields}, *needed, closed=True))
    return found


def _webhook_secret(name: str, *, needed: bool) -> Json:
    if name == "client_auth":
        return {"enum": list(auth.CLIENT_AUTHS), "default": auth.DEFAULTS[name]}
    if name in auth.PEM:
        return {"type": "string", "minLength": 1, "maxLength": auth.PEM_MAX}
    schema: Json = {"type": "string", "maxLength": auth.TEXT_MAX, "pattern": _PRINTABLE}
    return {**schema, "minLength": 1} if needed else schema
