"""The value of a parameter `shovel`, checked as RabbitMQ checks it.

Source: rabbitmq.com/docs/shovel-dynamic; rabbit_shovel_parameters. `src-protocol` and `dest-protocol` are
amqp091 only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from penstock.protocols.links.amqp.uri import MASK, Uri, UriError, masked, parse_uri

__all__ = [
    "AckMode",
    "Destination",
    "ShovelSettings",
    "Source",
    "local_vhosts",
    "shovel_settings",
    "shown",
    "unmasked",
]

AckMode = Literal["on-confirm", "on-publish", "no-ack"]
"""When a message is settled at its source."""
_URIS: Final = ("src-uri", "dest-uri")
_PREFETCH: Final = 1000
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
    ack_mode: AckMode = "on-confirm"
    reconnect_delay_s: float = _RECONNECT_S
    """The first pause after a fault; 0 = it stays down."""


def _any_of(*words: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        return "" if value in words else f"should be one of {', '.join(words)}"

    return check


def _text(value: Any) -> str:
    return "" if isinstance(value, str) else "should be a string"


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "should be boolean"


def _table(value: Any) -> str:
    return "" if isinstance(value, dict) or value == [] else "should be an object"


def _number(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**31
    return "" if is_number else "should be a number, 0 or more"


def _prefetch(value: Any) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 65535
    return "" if is_number else "should be a number from 1 to 65535"


def _delete_after(value: Any) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return (
        "" if value in ("never", "queue-length") or is_number else "should be never, queue-length or a number"
    )


def _protocol(value: Any) -> str:
    if value in ("amqp10", "local"):
        return f"{value} is not supported by shovels here: use amqp091"
    return "" if value == "amqp091" else "should be amqp091"


def _uri(value: Any) -> str:
    if not isinstance(value, str):
        return "should be a URI"
    if f":{MASK}@" in value:
        return "has a password that was hidden: give the password"
    try:
        parse_uri(value)
    except UriError as error:
        return f"not a valid URI: {error}"
    return ""


def _uris(value: Any) -> str:
    if isinstance(value, list) and value:
        return next(filter(None, map(_uri, value)), "")
    return _uri(value)


def _properties(value: Any) -> str:
    if problem := _table(value):
        return problem
    for name, one in dict(value).items():
        kind = _PROPERTIES.get(name)
        if kind is None:
            return f"has {name}, which is no property"
        if not isinstance(one, kind) or isinstance(one, bool):
            return f"has {name}, which should be a {kind.__name__}"
    return ""


_TERMS: Final[dict[str, Callable[[Any], str]]] = {
    "src-protocol": _protocol,
    "src-uri": _uris,
    "src-queue": _text,
    "src-queue-args": _table,
    "src-consumer-args": _table,
    "src-exchange": _text,
    "src-exchange-key": _text,
    "src-prefetch-count": _prefetch,
    "src-delete-after": _delete_after,
    "src-predeclared": _flag,
    "dest-protocol": _protocol,
    "dest-uri": _uris,
    "dest-queue": _text,
    "dest-queue-args": _table,
    "dest-exchange": _text,
    "dest-exchange-key": _text,
    "dest-add-forward-headers": _flag,
    "dest-add-timestamp-header": _flag,
    "dest-publish-properties": _properties,
    "dest-predeclared": _flag,
    "ack-mode": _any_of("on-confirm", "on-publish", "no-ack"),
    "reconnect-delay": _number,
    # As RabbitMQ 3.6 had them.
    "prefetch-count": _prefetch,
    "delete-after": _delete_after,
    "add-forward-headers": _flag,
    "add-timestamp-header": _flag,
    "publish-properties": _properties,
}


def shovel_settings(value: Mapping[str, Any]) -> ShovelSettings:
    """Read the value of a parameter.

    Raises:
        ValueError: with a line for each mistake; no password is in it.

    """
    mistakes = []
    if unknown := sorted(set(value) - set(_TERMS)):
        mistakes.append(f'Unrecognised terms [{", ".join(unknown)}] in <<"shovel">>')
    for name, check in _TERMS.items():
        if name in value and (problem := check(value[name])):
            mistakes.append(f"{name} {problem}")
    mistakes += [f'Key "{name}" not found in <<"shovel">>' for name in _URIS if name not in value]
    if "src-queue" in value and "src-exchange" in value:
        mistakes.append("Cannot specify 'src-exchange' and 'src-queue'")
    if "src-queue" not in value and "src-exchange" not in value:
        mistakes.append("Must specify 'src-exchange' or 'src-queue'")
    if "dest-queue" in value and "dest-exchange" in value:
        mistakes.append("Cannot specify 'dest-exchange' and 'dest-queue'")
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return ShovelSettings(
        source=_source(value),
        destination=_destination(value),
        ack_mode=cast("AckMode", value.get("ack-mode", "on-confirm")),
        reconnect_delay_s=float(value.get("reconnect-delay", _RECONNECT_S)),
    )


def _source(value: Mapping[str, Any]) -> Source:
    return Source(
        uris=_listed(value["src-uri"]),
        queue=value.get("src-queue"),
        exchange=value.get("src-exchange", ""),
        key=value.get("src-exchange-key", ""),
        queue_arguments=dict(value.get("src-queue-args", {})),
        consumer_arguments=dict(value.get("src-consumer-args", {})),
        prefetch=value.get("src-prefetch-count", value.get("prefetch-count", _PREFETCH)),
        delete_after=value.get("src-delete-after", value.get("delete-after", "never")),
        predeclared=value.get("src-predeclared", False),
    )


def _destination(value: Mapping[str, Any]) -> Destination:
    return Destination(
        uris=_listed(value["dest-uri"]),
        queue=value.get("dest-queue"),
        exchange=value.get("dest-exchange"),
        key=value.get("dest-exchange-key"),
        queue_arguments=dict(value.get("dest-queue-args", {})),
        forward_headers=value.get("dest-add-forward-headers", value.get("add-forward-headers", False)),
        timestamp_header=value.get("dest-add-timestamp-header", value.get("add-timestamp-header", False)),
        properties=dict(value.get("dest-publish-properties", value.get("publish-properties", {}))),
        predeclared=value.get("dest-predeclared", False),
    )


def _listed(uris: str | list[str]) -> tuple[str, ...]:
    return (uris,) if isinstance(uris, str) else tuple(uris)


def local_vhosts(settings: ShovelSettings) -> set[str]:
    """The vhosts of the gateway itself that a shovel uses."""
    uris: list[Uri] = [parse_uri(text) for text in (*settings.source.uris, *settings.destination.uris)]
    return {uri.vhost for uri in uris if not uri.host}


def shown(value: Mapping[str, Any]) -> dict[str, Any]:
    """A value as it may be shown: without passwords."""
    return {name: _masked(one) if name in _URIS else one for name, one in value.items()}


def _masked(uris: Any) -> Any:
    return [masked(str(uri)) for uri in uris] if isinstance(uris, list) else masked(str(uris))


def unmasked(value: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A value with the passwords that it was shown without; `known` is what was shown."""
    found = dict(value)
    for name in _URIS:
        if name in known and found.get(name) == _masked(known[name]):
            found[name] = known[name]
    return found
