"""The terms of a shovel's parameter, by the protocols of its ends: which there are, and what they may be.

    value = terms of the source + terms of the destination + COMMON

Source: rabbitmq.com/docs/shovel-dynamic; rabbit_shovel_parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.protocols.links.amqp.parameters import (
    SCHEMAS,
    Check,
    any_of,
    flag,
    is_whole,
    number,
    prefetch,
    table,
    text,
    uris,
)

__all__ = [
    "ACK_MODES",
    "AMQP",
    "AMQP10",
    "NATIVE",
    "NATIVE_TERMS",
    "shovel_schemas",
    "terms_of",
    "whole",
]

AMQP: Final = "amqp091"
AMQP10: Final = "amqp10"
NATIVE: Final = "penstock"
"""The native protocol, as `src-protocol` and `dest-protocol`; the others are RabbitMQ's."""
ACK_MODES: Final = ("on-confirm", "on-publish", "no-ack")
_TEXTS: Final = (
    *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id"),
    *("type", "user_id", "app_id", "cluster_id"),
)
_INTEGERS: Final = {"delivery_mode": (1, 2), "priority": (0, 255), "timestamp": (0, 2**63 - 1)}
"""With their least and greatest values."""
_PROPERTIES: Final[Mapping[str, dict[str, Any]]] = {
    **{name: {"type": "string", "maxLength": 255} for name in _TEXTS},
    **{
        name: {"type": "integer", "minimum": least, "maximum": most}
        for name, (least, most) in _INTEGERS.items()
    },
    "headers": {"type": "object"},
}
"""Properties in `dest-publish-properties`, with their JSON Schemas."""
_PROPERTIES_10: Final = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "group_id",
    "reply_to_group_id",
)
"""Properties in `dest-properties`: those that are text."""
_SYMBOLS: Final = ("content_type", "content_encoding")
"""Those that are ASCII; so are the names of annotations."""

_ack_mode: Final = any_of(*ACK_MODES)


def _after_count(value: Any) -> str:
    is_number = is_whole(value) and 0 <= value < 2**63
    return "" if value == "never" or is_number else "should be never or a number"


def _delete_after(value: Any) -> str:
    if value == "queue-length" or not _after_count(value):
        return ""
    return "should be never, queue-length or a number"


def _protocol(value: Any) -> str:
    if value == "local":
        return f"local is not supported by shovels here: use {AMQP}"
    return "" if value in (AMQP, AMQP10, NATIVE) else f"should be {AMQP}, {AMQP10} or {NATIVE}"


def _properties(value: Any) -> str:
    if problem := table(value):
        return problem
    for name, one in dict(value).items():
        if name not in _PROPERTIES:
            return f"has {name}, which is no property"
        if name in _TEXTS and not isinstance(one, str):
            return f"has {name}, which should be a string"
        if name == "headers" and not isinstance(one, dict):
            return f"has {name}, which should be an object"
        if name in _INTEGERS:
            least, most = _INTEGERS[name]
            if not is_whole(one) or not least <= one <= most:
                return f"has {name}, which should be an integer from {least} to {most}"
    from penstock.protocols.links.amqp.header import encoded  # pamqp: only where there are shovels

    try:
        encoded(whole(dict(value)))
    except ValueError as error:
        return f"has {error}"
    return ""


def whole(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties with 2.0 as 2: RabbitMQ takes it, too, and then fails at each message."""
    return {name: int(one) if name in _INTEGERS else one for name, one in properties.items()}


def _texts(value: Any) -> str:
    if problem := table(value):
        return problem
    for name, one in dict(value).items():
        if not isinstance(one, str):
            return f"has {name}, which should be a string"
    return ""


def _annotations(value: Any) -> str:
    if problem := _texts(value):
        return problem
    wrong = [name for name in dict(value) if not name.isascii()]
    return f"has {wrong[0]}, which should be ASCII" if wrong else ""


def _properties_10(value: Any) -> str:
    if problem := _texts(value):
        return problem
    for name, one in dict(value).items():
        if name not in _PROPERTIES_10:
            return f"has {name}, which is no property that is text"
        if name in _SYMBOLS and not one.isascii():
            return f"has {name}, which should be ASCII"
    return ""


_SOURCES: Final[Mapping[str, Mapping[str, Check]]] = {
    AMQP: {
        "src-protocol": _protocol,
        "src-uri": uris,
        "src-queue": text,
        "src-queue-args": table,
        "src-consumer-args": table,
        "src-exchange": text,
        "src-exchange-key": text,
        "src-prefetch-count": prefetch,
        "src-delete-after": _delete_after,
        "src-predeclared": flag,
        # As RabbitMQ 3.6 had them.
        "prefetch-count": prefetch,
        "delete-after": _delete_after,
    },
    AMQP10: {
        "src-protocol": _protocol,
        "src-uri": uris,
        "src-address": text,
        "src-prefetch-count": prefetch,
        "src-delete-after": _after_count,
    },
}
_DESTINATIONS: Final[Mapping[str, Mapping[str, Check]]] = {
    AMQP: {
        "dest-protocol": _protocol,
        "dest-uri": uris,
        "dest-queue": text,
        "dest-queue-args": table,
        "dest-exchange": text,
        "dest-exchange-key": text,
        "dest-add-forward-headers": flag,
        "dest-add-timestamp-header": flag,
        "dest-publish-properties": _properties,
        "dest-predeclared": flag,
        # As RabbitMQ 3.6 had them.
        "add-forward-headers": flag,
        "add-timestamp-header": flag,
        "publish-properties": _properties,
    },
    AMQP10: {
        "dest-protocol": _protocol,
        "dest-uri": uris,
        "dest-address": text,
        "dest-add-forward-headers": flag,
        "dest-add-timestamp-header": flag,
        "dest-properties": _properties_10,
        "dest-application-properties": _texts,
        "dest-message-annotations": _annotations,
    },
}
_COMMON: Final[Mapping[str, Check]] = {"ack-mode": _ack_mode, "reconnect-delay": number}

NATIVE_TERMS: Final = frozenset(
    {
        *("src-protocol", "src-uri", "src-queue", "src-prefetch-count", "reconnect-delay"),
        *("dest-protocol", "dest-uri", "dest-queue", "dest-exchange", "dest-exchange-key"),
    }
)
"""Terms of shovels by the native protocol."""


def terms_of(source: Any, destination: Any) -> dict[str, Check]:
    """The terms of shovels with ends of these protocols; one that is unknown counts as AMQP 0-9-1."""
    ends = _SOURCES.get(source, _SOURCES[AMQP]), _DESTINATIONS.get(destination, _DESTINATIONS[AMQP])
    return {**ends[0], **ends[1], **_COMMON}


_ASCII_SCHEMA: Final = {"type": "string", "pattern": r"^[\x00-\x7F]*$"}
_TEXTS_SCHEMA: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_COUNT_SCHEMA: Final = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_SCHEMAS: Final[Mapping[Check, dict[str, Any]]] = {
    **SCHEMAS,
    _delete_after: {"anyOf": [{"enum": ["never", "queue-length"]}, _COUNT_SCHEMA]},
    _after_count: {"anyOf": [{"const": "never"}, _COUNT_SCHEMA]},
    _properties: {
        "type": "object",
        "properties": dict(_PROPERTIES),
        "additionalProperties": False,
    },
    _properties_10: {
        "type": "object",
        "properties": {
            name: _ASCII_SCHEMA if name in _SYMBOLS else {"type": "string"} for name in _PROPERTIES_10
        },
        "additionalProperties": False,
    },
    _texts: _TEXTS_SCHEMA,
    _annotations: {**_TEXTS_SCHEMA, "propertyNames": _ASCII_SCHEMA},
}
_NATIVE_URI: Final = {
    "type": "string",
    "pattern": "^penstocks?://",
    "description": "A URI of the native protocol, such as penstock://HOST.",
}
_NATIVE_SCHEMAS: Final[Mapping[Check, dict[str, Any]]] = {
    **_SCHEMAS,
    _protocol: {"const": NATIVE},
    uris: {"anyOf": [_NATIVE_URI, {"type": "array", "items": _NATIVE_URI, "minItems": 1}]},
}
"""Of checks that mean something else in a shovel by the native protocol."""
_ONE_SOURCE: Final = {"oneOf": [{"required": ["src-queue"]}, {"required": ["src-exchange"]}]}
_ONE_DESTINATION: Final = {"oneOf": [{"required": ["dest-queue"]}, {"required": ["dest-exchange"]}]}
_NOT_BOTH: Final = {"not": {"required": ["dest-queue", "dest-exchange"]}}


def shovel_schemas() -> list[dict[str, Any]]:
    """JSON Schemas of the values of shovels: a value fits one of them."""
    native = {
        "type": "object",
        "description": "A shovel by the native protocol.",
        "properties": {
            name: _NATIVE_SCHEMAS[check]
            for name, check in terms_of(AMQP, AMQP).items()
            if name in NATIVE_TERMS
        },
        "required": ["src-protocol", "dest-protocol", "src-uri", "dest-uri", "src-queue"],
        "additionalProperties": False,
        "oneOf": [
            {"required": ["dest-queue"], "not": {"required": ["dest-exchange"]}},
            {"required": ["dest-exchange", "dest-exchange-key"], "not": {"required": ["dest-queue"]}},
        ],
    }
    return [*(_schema(one, other) for one in (AMQP, AMQP10) for other in (AMQP, AMQP10)), native]


def _schema(source: str, destination: str) -> dict[str, Any]:
    """Of shovels by two protocols of AMQP."""
    versions = {AMQP: "AMQP 0-9-1", AMQP10: "AMQP 1.0"}
    rules: list[dict[str, Any]] = []
    required = ["src-uri", "dest-uri"]
    if source == AMQP10:
        required += ["src-protocol", "src-address"]
    else:
        rules.append(_ONE_SOURCE)
    if destination == AMQP10:
        required += ["dest-protocol", "dest-address"]
    else:
        rules.append(_NOT_BOTH if source == AMQP else _ONE_DESTINATION)
    return {
        "type": "object",
        "description": f"A shovel from {versions[source]} to {versions[destination]}.",
        "properties": {
            **{
                name: _SCHEMAS[check]
                for name, check in terms_of(source, destination).items()
                if check != _protocol
            },
            "src-protocol": {"const": source},
            "dest-protocol": {"const": destination},
        },
        "required": required,
        "additionalProperties": False,
        **({"allOf": rules} if rules else {}),
    }
