"""The value of a parameter `shovel`, read, and checked as RabbitMQ checks it.

Its terms are in `links/terms`. `src-protocol` and `dest-protocol` are amqp091 or amqp10, or both penstock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, cast

from penstock.lazy_dataclass import dataclass
from penstock.protocols.links.amqp.parameters import listed, mistakes_of
from penstock.protocols.links.amqp.uri import Uri, parse_uri
from penstock.protocols.links.terms import AMQP, AMQP10, NATIVE, NATIVE_TERMS, terms_of, whole

__all__ = [
    "AckMode",
    "Destination",
    "ShovelSettings",
    "Source",
    "local_vhosts",
    "shovel_settings",
]

AckMode = Literal["on-confirm", "on-publish", "no-ack"]
"""When a message is settled at its source."""
_URIS: Final = ("src-uri", "dest-uri")
_PREFETCH: Final = 20_000
"""RabbitMQ's is 1,000: then each thousand waits for a sync of the disk."""
_NATIVE_PREFETCH: Final = 50_000
"""It repeats nothing after a fault."""
_RECONNECT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The end that messages come from: a queue, or an exchange with a queue of the shovel's."""

    uris: tuple[str, ...]
    protocol: str = AMQP
    address: str = ""
    """By AMQP 1.0 it is all there is."""
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
    protocol: str = AMQP
    address: str = ""
    """By AMQP 1.0, instead of a queue or an exchange."""
    queue: str | None = None
    exchange: str | None = None
    key: str | None = None
    """None: each message keeps its own."""
    queue_arguments: Mapping[str, Any] = field(default_factory=dict)
    forward_headers: bool = False
    timestamp_header: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict)
    """They take the place of those of messages; so do the next ones, by AMQP 1.0."""
    application_properties: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
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


def shovel_settings(value: Mapping[str, Any]) -> ShovelSettings:
    """Read the value of a parameter.

    Raises:
        ValueError: with a line for each mistake; no password is in it.

    """
    protocols = _protocols(value)
    needed = [*_URIS, *(f"{end}-address" for end, one in protocols.items() if one == AMQP10)]
    mistakes = mistakes_of(value, terms_of(*protocols.values()), needed, "shovel")
    if protocols["src"] != AMQP10:
        if "src-queue" in value and "src-exchange" in value:
            mistakes.append("Cannot specify 'src-exchange' and 'src-queue'")
        if "src-queue" not in value and "src-exchange" not in value:
            mistakes.append("Must specify 'src-exchange' or 'src-queue'")
    if protocols["dest"] != AMQP10:
        if "dest-queue" in value and "dest-exchange" in value:
            mistakes.append("Cannot specify 'dest-exchange' and 'dest-queue'")
        if protocols["src"] == AMQP10 and "dest-queue" not in value and "dest-exchange" not in value:
            mistakes.append("Must specify 'dest-exchange' or 'dest-queue'")
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


def _protocols(value: Any) -> dict[str, Any]:
    """Of both ends."""
    given = value if isinstance(value, Mapping) else {}
    found = {end: given.get(f"{end}-protocol", AMQP) for end in ("src", "dest")}
    return {end: one if isinstance(one, str) else AMQP for end, one in found.items()}


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
    if is_native and (others := sorted(set(value) - NATIVE_TERMS)):
        mistakes.append(f"{', '.join(others)}: not with the protocol {NATIVE}")
    if is_native and not ("dest-queue" in value or {"dest-exchange", "dest-exchange-key"} <= set(value)):
        mistakes.append("Must specify 'dest-queue', or 'dest-exchange' and 'dest-exchange-key'")
    return mistakes


def _source(value: Mapping[str, Any]) -> Source:
    prefetch = _NATIVE_PREFETCH if value.get("src-protocol") == NATIVE else _PREFETCH
    after: Any = value.get("src-delete-after", value.get("delete-after", "never"))
    return Source(
        uris=listed(value["src-uri"]),
        protocol=value.get("src-protocol", AMQP),
        address=value.get("src-address", ""),
        queue=value.get("src-queue"),
        exchange=value.get("src-exchange", ""),
        key=value.get("src-exchange-key", ""),
        queue_arguments=dict(value.get("src-queue-args", {})),
        consumer_arguments=dict(value.get("src-consumer-args", {})),
        prefetch=int(value.get("src-prefetch-count", value.get("prefetch-count", prefetch))),
        delete_after=int(after) if isinstance(after, float) else after,
        predeclared=value.get("src-predeclared", False),
    )


def _destination(value: Mapping[str, Any]) -> Destination:
    is_10 = value.get("dest-protocol") == AMQP10
    properties = value.get("dest-publish-properties", value.get("publish-properties", {}))
    return Destination(
        uris=listed(value["dest-uri"]),
        protocol=value.get("dest-protocol", AMQP),
        address=value.get("dest-address", ""),
        queue=value.get("dest-queue"),
        exchange=value.get("dest-exchange"),
        key=value.get("dest-exchange-key"),
        queue_arguments=dict(value.get("dest-queue-args", {})),
        forward_headers=value.get("dest-add-forward-headers", value.get("add-forward-headers", False)),
        timestamp_header=value.get("dest-add-timestamp-header", value.get("add-timestamp-header", False)),
        properties=dict(value.get("dest-properties", {})) if is_10 else whole(dict(properties)),
        application_properties=dict(value.get("dest-application-properties", {})),
        annotations=dict(value.get("dest-message-annotations", {})),
        predeclared=value.get("dest-predeclared", False),
    )


def local_vhosts(settings: ShovelSettings) -> set[str]:
    """The vhosts of the gateway itself that a shovel uses."""
    found: list[Uri] = [parse_uri(one) for one in (*settings.source.uris, *settings.destination.uris)]
    return {uri.vhost for uri in found if not uri.host}
