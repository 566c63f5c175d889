"""Detects the protocol of a client at the wrong listener by its first bytes, so that errors name the right
one.

Looked at once, when a connection is refused already. A guess that is wrong costs a hint, nothing else.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TLS_RECORD", "hint", "stranger"]

_NO_PROXY: Final = "the PROXY protocol, as a proxy that is not trusted"
_HTTP: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PRI * ")
_BEGINNINGS: Final[tuple[tuple[bytes, str, str], ...]] = (
    (b"PENSTOCK", "penstock's native protocol", "it is spoken at native.listen"),
    (b"PROXY ", _NO_PROXY, "name its network in server.proxy_networks"),
    (b"\r\n\r\n\0\r\nQUIT\n", _NO_PROXY, "name its network in server.proxy_networks"),
    (b"AMQP\0\0\x09\x01", "AMQP 0-9-1", "it is spoken at amqp.listen"),
    (b"AMQP\0\1\0\0", "AMQP 1.0", "it is spoken at amqp.listen"),
    (b"AMQP\3\1\0\0", "AMQP 1.0", "it is spoken at amqp.listen"),
    (b"AMQP", "AMQP, but neither 0-9-1 nor 1.0", "use a client of one of these, at amqp.listen"),
    *((method, "HTTP", "it is spoken at http.listen and management.listen") for method in _HTTP),
)
TLS_RECORD: Final = b"\x16\x03"
"""A handshake, of any version (RFC 8446, section 5.1)."""


def hint(first: bytes) -> str:
    """A hint about a client whose first bytes are these, to go behind the rest of the error; or ""."""
    known = stranger(first)
    return "" if known is None else f"; the client speaks {known[0]}: {known[1]}"


def stranger(first: bytes) -> tuple[str, str] | None:
    """(what it speaks, what to do) of a client whose first bytes are these; None: nobody knows."""
    for beginning, what, remedy in _BEGINNINGS:
        if first.startswith(beginning):
            return what, remedy
    if first.startswith(TLS_RECORD):
        return "TLS", "connect without TLS here, or to the tls_listen of this protocol"
    if _is_mqtt(first):
        return "MQTT", "it is spoken at mqtt.listen"
    if _is_kafka(first):
        return "Kafka's protocol", "it is not spoken here: use penstock's own client, AMQP, MQTT or HTTP"
    return None


def _is_mqtt(first: bytes) -> bool:
    """A CONNECT: its type, a length of at most two bytes, and the name of the protocol."""
    return first[:1] == b"\x10" and any(name in first[2:12] for name in (b"\0\4MQTT", b"\0\6MQIsdp"))


def _is_kafka(first: bytes) -> bool:
    """size i32 | api key i16 = 18, ApiVersions | version i16: what its clients begin with."""
    return len(first) >= 8 and first[:2] == b"\0\0" and first[4:7] == b"\0\x12\0"
