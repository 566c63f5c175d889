"""URIs of AMQP 0-9-1, as RabbitMQ has them.

    amqp://USER:PASSWORD@HOST:PORT/VHOST?heartbeat=10
    amqps://HOST?cacertfile=...&certfile=...&keyfile=...&verify=verify_peer&server_name_indication=NAME
    amqp:///VHOST                        the gateway itself

Source: rabbitmq.com/docs/uri-spec and uri-query-parameters.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.lazy_dataclass import dataclass

__all__ = ["MASK", "Uri", "UriError", "masked", "parse_uri"]

MASK: Final = "******"
"""In place of a password."""
_PARAMETERS: Final = frozenset(
    {
        "cacertfile",
        "certfile",
        "keyfile",
        "verify",
        "server_name_indication",
        "heartbeat",
        "connection_timeout",
        "auth_mechanism",
        "channel_max",
        "fail_if_no_peer_cert",
        "depth",
        "password",
        # Of AMQP 1.0 alone.
        "idle_time_out",
        "sasl",
    }
)
_PASSWORD: Final = re.compile(r"(?<=://)([^/?#@]*?):([^/?#]*)@")
_TIMEOUT_S: Final = 60.0
_PORTS: Final = {"amqp": 5672, "amqps": 5671, "penstock": 15690, "penstocks": 15691}
"""By scheme, the port where a URI has none."""


class UriError(ValueError):
    """A text is no URI of AMQP."""


@dataclass(frozen=True, slots=True)
class Uri:
    """Where a broker is, and who logs in there."""

    host: str = ""
    """ "" = the gateway itself."""
    port: int = 5672
    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    tls: bool = False
    native: bool = False
    """The native protocol is spoken there, and not AMQP."""
    parameters: dict[str, str] = field(default_factory=dict)
    heartbeat_s: int = 10
    timeout_s: float = _TIMEOUT_S
    """For the connection and the login."""


def parse_uri(text: str) -> Uri:
    """Read a URI. Raises UriError: the text is none; the message has no password."""
    scheme, colon, _ = text.partition("://")
    if not colon or scheme.lower() not in _PORTS:
        raise UriError(
            "it begins with amqp:// or amqps://, or of a penstock with penstock:// or penstocks://"
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UriError("its host or port cannot be read") from error
    tls = scheme.lower() in ("amqps", "penstocks")
    if parts.path.count("/") > 1:
        raise UriError("a vhost with a slash is written with %2F")
    vhost = unquote(parts.path[1:]) if len(parts.path) > 1 else "" if parts.path and parts.hostname else "/"
    if tls and not parts.hostname:
        raise UriError(f"{scheme}:// needs a host")
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(parameters) - _PARAMETERS):
        raise UriError(f"the parameter {unknown[0]} is unknown")
    verify = parameters.get("verify", "verify_peer")
    if verify not in ("verify_peer", "verify_none"):
        raise UriError("verify is verify_peer or verify_none")
    mechanism = parameters.get("auth_mechanism", "plain").lower()
    if mechanism not in ("plain", "external"):
        raise UriError("auth_mechanism is plain or external")
    return Uri(
        host=parts.hostname or "",
        port=port or _PORTS[scheme.lower()],
        native=scheme.lower().startswith("penstock"),
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        vhost=vhost,
        tls=tls,
        parameters=parameters,
        heartbeat_s=_number(parameters, "heartbeat", 10, 65535),
        timeout_s=_number(parameters, "connection_timeout", int(_TIMEOUT_S * 1000), 600_000) / 1000,
    )


def _number(parameters: dict[str, str], name: str, default: int, most: int) -> int:
    text = parameters.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise UriError(f"{name} is a number up to {most}")
    return int(text)


def masked(text: str) -> str:
    """A URI as it may be shown: without its password, and those of keys."""
    text = re.sub(r"([?&]password=)[^&]*", rf"\1{MASK}", text)
    return _PASSWORD.sub(rf"\1:{MASK}@", text)
