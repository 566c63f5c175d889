"""The value of a parameter `shovel`, checked as RabbitMQ checks it.

Source: rabbitmq.com/docs/shovel-dynamic; rabbit_shovel_parameters. `src-protocol` and `dest-protocol` are
amqp091, or both penstock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, cast, get_args

from penstock.lazy_dataclass import dataclass
from penstock.protocols.links.amqp.parameters import (
    SCHEMAS,
    Check,
    any_of,
    flag,
    listed,
    mistakes_of,
    number,
    prefetch,
    table,
    text,
    uris,
)
from penstock.protocols.links.amqp.uri import Uri, parse_uri

__all__ = [
    "NATIVE",
    "AckMode",
    "Destination",
    "ShovelSettings",
    "Source",
    "local_vhosts",
    "shovel_schemas",
    "shovel_settings",
]

AckMode = Literal["on-confirm", "on-publish", "no-ack"]
"""When a message is settled at its source."""
_ACK_MODES: Final = get_args(AckMode)
_URIS: Final = ("src-uri", "dest-uri")
_PROTOCOLS: Final = ("src-protocol", "dest-protocol")
NATIVE: Final = "penstock"
"""The native protocol, as `src-protocol` and `dest-protocol`; the others are RabbitMQ's."""
_PREFETCH: Final = 20_000
"""RabbitMQ's is 1,000: then each thousand waits for a sync of the disk."""
_NATIVE_PREFETCH: Final = 50_000
"""It repeats nothing after a fault."""
_RECONNECT_S: Final = 5.0
_PROPERTIES: Final = {
    "content_type": str,
    "content_encoding": str,
    "headers": dict,
    "delivery_mode": int,
    "priority": int,
    "correlation_id": str,
    "reply_to": str,
    "expiration": str,
    "message_id": str,
    "timestamp": int,
    "type": str,
    "user_id": str,
    "app_id": str,
    "cluster_id": str,
}
"""Properties in `dest-publish-properties`, with their types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The end that messages come from: a queue, or an exchange with a queue of the shovel's."""

    uris: tuple[str, ...]
    queue: str | None = None
    exchange: str = ""
    key: str = ""
    queue_arguments: Mapping[str, Any] = field(default_factory=dict)
    consumer_arguments: Mapping[str, Any] = field(default_factory=dict)
    prefetch: int = _PREFETCH
    delete_after: int | Literal["never", "queue-length"] = "never"
    predeclared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The end that messages go to: a queue, an exchange, or with neither the exchange that each came by."""

    uris: tuple[str, ...]
    queue: str | None = None
    exchange: str | None = None
    key: str | None = None
    """None: each message keeps its own."""
    queue_arguments: Mapping[str, Any] = field(default_factory=dict)
    forward_headers: bool = False
    timestamp_header: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict)
    predeclared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShovelSettings:
    """A shovel."""

    source: Source
    destination: Destination
    native: bool = False
    """Whether both ends speak the native protocol."""
    ack_mode: AckMode = "on-confirm"
    reconnect_delay_s: float = _RECONNECT_S
    """The first pause after a fault; 0 = it stays down."""


_ack_mode: Final = any_of(*_ACK_MODES)


def _delete_after(value: Any) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return (
        "" if value in ("never", "queue-length") or is_number else "should be never, queue-length or a number"
    )


def _protocol(value: Any) -> str:
    if value in ("amqp10", "local"):
        return f"{value} is not supported by shovels here: use amqp091"
    return "" if value in ("amqp091", NATIVE) else f"should be amqp091 or {NATIVE}"


def _properties(value: Any) -> str:
    if problem := table(value):
        return problem
    for name, one in dict(value).items():
        kind = _PROPERTIES.get(name)
        if kind is None:
            return f"has {name}, which is no property"
        if not isinstance(one, kind) or isinstance(one, bool):
            return f"has {name}, which should be a {kind.__name__}"
    return ""


_TERMS: Final[dict[str, Check]] = {
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
    "ack-mode": _ack_mode,
    "reconnect-delay": number,
    # As RabbitMQ 3.6 had them.
    "prefetch-count": prefetch,
    "delete-after": _delete_after,
    "add-forward-headers": flag,
    "add-timestamp-header": flag,
    "publish-properties": _properties,
}


_NATIVE_TERMS: Final = frozenset(
    {
        *("src-protocol", "src-uri", "src-queue", "src-prefetch-count", "reconnect-delay"),
        *("dest-protocol", "dest-uri", "dest-queue", "dest-exchange", "dest-exchange-key"),
    }
)
"""Terms of shovels by the native protocol."""


_SCHEMAS: Final[Mapping[Check, dict[str, Any]]] = {
    **SCHEMAS,
    _protocol: {"const": "amqp091"},
    _delete_after: {
        "anyOf": [
            {"enum": ["never", "queue-length"]},
            {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
        ]
    },
    _properties: {
        "type": "object",
        "properties": {
            name: {"type": {int: "integer", dict: "object", str: "string"}[kind]}
            for name, kind in _PROPERTIES.items()
        },
        "additionalProperties": False,
    },
}


_NATIVE_URI: Final = {
    "type": "string",
    "pattern": "^penstocks?://",
    "description": "A URI of the native protocol, such as penstock://HOST.",
}
_NATIVE_SCHEMAS: Final[Mapping[Check, dict[str, Any]]] = {
    _protocol: {"const": NATIVE},
    uris: {"anyOf": [_NATIVE_URI, {"type": "array", "items": _NATIVE_URI, "minItems": 1}]},
}
"""Of checks that mean something else in a shovel by the native protocol."""


def shovel_schemas() -> list[dict[str, Any]]:
    """JSON Schemas of what `shovel_settings` reads: a value fits one of them."""
    amqp = {
        "type": "object",
        "description": "A shovel by AMQP 0-9-1.",
        "properties": {name: _SCHEMAS[check] for name, check in _TERMS.items()},
        "required": list(_URIS),
        "additionalProperties": False,
        "oneOf": [{"required": ["src-queue"]}, {"required": ["src-exchange"]}],
        "not": {"required": ["dest-queue", "dest-exchange"]},
    }
    native = {
        "type": "object",
        "description": "A shovel by the native protocol.",
        "properties": {
            name: _NATIVE_SCHEMAS.get(check, _SCHEMAS[check])
            for name, check in _TERMS.items()
            if name in _NATIVE_TERMS
        },
        "required": [*_PROTOCOLS, *_URIS, "src-queue"],
        "additionalProperties": False,
        "oneOf": [
            {"required": ["dest-queue"], "not": {"required": ["dest-exchange"]}},
            {"required": ["dest-exchange", "dest-exchange-key"], "not": {"required": ["dest-queue"]}},
        ],
    }
    return [amqp, native]


def shovel_settings(value: Mapping[str, Any]) -> ShovelSettings:
    """Read the value of a parameter.

    Raises:
        ValueError: with a line for each mistake; no password is in it.

    """
    mistakes = mistakes_of(value, _TERMS, _URIS, "shovel")
    if "src-queue" in value and "src-exchange" in value:
        mistakes.append("Cannot specify 'src-exchange' and 'src-queue'")
    if "src-queue" not in value and "src-exchange" not in value:
        mistakes.append("Must specify 'src-exchange' or 'src-queue'")
    if "dest-queue" in value and "dest-exchange" in value:
        mistakes.append("Cannot specify 'dest-exchange' and 'dest-queue'")
    if not mistakes:
        mistakes += _of_protocols(value)
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return ShovelSettings(
        native=value.get("src-protocol") == NATIVE,
        source=_source(value),
        destination=_destination(value),
        ack_mode=cast("AckMode", value.get("ack-mode", "on-confirm")),
        reconnect_delay_s=float(value.get("reconnect-delay", _RECONNECT_S)),
    )


def _of_protocols(value: Mapping[str, Any]) -> list[str]:
    """Mistakes about the protocols of the ends."""
    is_native = NATIVE in (value.get("src-protocol"), value.get("dest-protocol"))
    mistakes = []
    if is_native and value.get("src-protocol") != value.get("dest-protocol"):
        mistakes.append(f"src-protocol and dest-protocol should both be {NATIVE}, or neither")
    for name in _URIS:
        if any(parse_uri(one).native != is_native for one in listed(value[name])):
            scheme = "penstock:// or penstocks://" if is_native else "amqp:// or amqps://"
            mistakes.append(f"{name} should begin with {scheme}")
    if is_native and (others := sorted(set(value) - _NATIVE_TERMS)):
        mistakes.append(f"{', '.join(others)}: not with the protocol {NATIVE}")
    if is_native and not ("dest-queue" in value or {"dest-exchange", "dest-exchange-key"} <= set(value)):
        mistakes.append("Must specify 'dest-queue', or 'dest-exchange' and 'dest-exchange-key'")
    return mistakes


def _source(value: Mapping[str, Any]) -> Source:
    prefetch = _NATIVE_PREFETCH if value.get("src-protocol") == NATIVE else _PREFETCH
    return Source(
        uris=listed(value["src-uri"]),
        queue=value.get("src-queue"),
        exchange=value.get("src-exchange", ""),
        key=value.get("src-exchange-key", ""),
        queue_arguments=dict(value.get("src-queue-args", {})),
        consumer_arguments=dict(value.get("src-consumer-args", {})),
        prefetch=value.get("src-prefetch-count", value.get("prefetch-count", prefetch)),
        delete_after=value.get("src-delete-after", value.get("delete-after", "never")),
        predeclared=value.get("src-predeclared", False),
    )


def _destination(value: Mapping[str, Any]) -> Destination:
    return Destination(
        uris=listed(value["dest-uri"]),
        queue=value.get("dest-queue"),
        exchange=value.get("dest-exchange"),
        key=value.get("dest-exchange-key"),
        queue_arguments=dict(value.get("dest-queue-args", {})),
        forward_headers=value.get("dest-add-forward-headers", value.get("add-forward-headers", False)),
        timestamp_header=value.get("dest-add-timestamp-header", value.get("add-timestamp-header", False)),
        properties=dict(value.get("dest-publish-properties", value.get("publish-properties", {}))),
        predeclared=value.get("dest-predeclared", False),
    )


def local_vhosts(settings: ShovelSettings) -> set[str]:
    """The vhosts of the gateway itself that a shovel uses."""
    found: list[Uri] = [parse_uri(one) for one in (*settings.source.uris, *settings.destination.uris)]
    return {uri.vhost for uri in found if not uri.host}
