"""The handshake before a connection runs: server properties, credentials, limits.

Source: AMQP 0-9-1 class connection; RabbitMQ's rabbit_reader, rabbit_auth_mechanism_plain and _amqplain.
"""

from __future__ import annotations

from typing import Final

from penstock.protocols.amqp.codec.errors import hard
from penstock.protocols.amqp.codec.methods import TuneOk
from penstock.protocols.amqp.options import FRAME_MIN, AmqpOptions
from penstock.protocols.properties._tables import decode_table
from penstock.protocols.properties.values import Table
from penstock.router.names import text, wire

__all__ = [
    "ANONYMOUS",
    "EXTERNAL",
    "HEADER",
    "HEADERS",
    "LOCALES",
    "check_tune",
    "credentials",
    "mechanisms_for",
    "server_properties",
]

HEADER: Final = b"AMQP\x00\x00\x09\x01"
"""The protocol header of 0-9-1: what a client of another version is answered."""

HEADERS: Final = frozenset({HEADER, b"AMQP\x01\x01\x00\x09"})
"""Accepted: 0-9-1, and 0-9, which clients of its time mean by it."""

EXTERNAL: Final = "EXTERNAL"
"""The SASL mechanism of peers whom TLS has identified."""

ANONYMOUS: Final = "ANONYMOUS"
"""The SASL mechanism of peers without a name, as far as they are let in. Its response is not read."""

LOCALES: Final = b"en_US"

_CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)
"""The capabilities of this server."""


def server_properties(version: str, cluster_name: str) -> Table:
    """The table of connection.start; `version` is penstock's."""
    # kombu decides by product and version which qos it uses: global, which is supported, for RabbitMQ 3.13.
    return {
        "product": "RabbitMQ",
        "version": "3.13.7",
        "penstock": version,
        "platform": f"penstock {version}",
        "copyright": "",
        "information": "penstock speaks AMQP 0-9-1 as RabbitMQ 3.13 does",
        "cluster_name": cluster_name,
        "capabilities": dict.fromkeys(_CAPABILITIES, True),
    }


def mechanisms_for(certificate_user: str | None, *, anonymous: bool) -> bytes:
    """The SASL mechanisms offered; EXTERNAL to a peer whose certificate names a user."""
    # Many clients take the first one they know.
    external = b"" if certificate_user is None else b" EXTERNAL"
    return b"PLAIN AMQPLAIN" + external + (b" ANONYMOUS" if anonymous else b"")


def credentials(mechanism: str, response: bytes) -> tuple[str, bytes]:
    """User name and password in the response of a SASL mechanism.

    Raises:
        AmqpError: the mechanism is unknown (503), or the response is malformed (502).
        TableError: an AMQPLAIN response that is no table.

    """
    if mechanism == "PLAIN":
        parts = response.split(b"\0")
        if len(parts) != 3:
            raise hard(502, "a PLAIN response is: NUL, user, NUL, password")
        return text(parts[1]), parts[2]
    if mechanism == "AMQPLAIN":
        # A table without its size.
        table = decode_table(len(response).to_bytes(4, "big") + response, entries=16)
        name, secret = table.get("LOGIN"), table.get("PASSWORD")
        if not isinstance(name, str | bytes) or not isinstance(secret, str | bytes):
            raise hard(502, "an AMQPLAIN response has LOGIN and PASSWORD")
        username = name if isinstance(name, str) else text(name)
        return username, secret if isinstance(secret, bytes) else wire(secret)
    raise hard(503, f"unknown authentication mechanism '{mechanism}'")


def check_tune(method: TuneOk, options: AmqpOptions) -> None:
    """The client may lower what was offered.

    Raises:
        AmqpError: it asks for more, for no limit, or for frames too small for AMQP (530).

    """
    _check("channel_max", method.channel_max, 0, options.channel_max)
    _check("frame_max", method.frame_max, FRAME_MIN, options.frame_max)


def _check(name: str, value: int, least: int, most: int) -> None:
    if value and value < least:
        raise hard(530, f"negotiated {name} = {value} is lower than the minimum allowed value ({least})")
    if value == 0 or value > most:
        raise hard(530, f"negotiated {name} = {value} is higher than the maximum allowed value ({most})")
