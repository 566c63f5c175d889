"""Packets of MQTT as a bridge needs them: made, cut out of a stream, and changed from one version to another.

    +-----------------+------------------+------------------------------------+
    | kind 4 flags 4  | size varint 1..4 | body                               |
    +-----------------+------------------+------------------------------------+
    PUBLISH body      | topic size u16, topic | id u16 (QoS 1, 2) | properties (5.0) | payload |
    PUBACK and so on  | id u16 | reason u8 (5.0, may be missing) | properties (5.0) |

Source: MQTT 3.1.1 and 5.0, chapters 2 and 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.links.errors import LinkError
from penstock.protocols.mqtt.codec import packets as kinds
from penstock.protocols.mqtt.codec import reasons
from penstock.protocols.mqtt.codec.properties import (
    Properties,
    decode_properties,
    decode_varint,
    encode_binary,
    encode_properties,
    encode_text,
    encode_varint,
)
from penstock.protocols.mqtt.codec.reasons import MqttError

__all__ = [
    "DISCONNECT",
    "PINGREQ",
    "Connack",
    "VersionRefused",
    "connect",
    "decode_connack",
    "packet",
    "retained",
    "split",
    "subscribe",
]

PINGREQ: Final = bytes((kinds.PINGREQ << 4, 0))
DISCONNECT: Final = bytes((kinds.DISCONNECT << 4, 0))

_REFUSALS: Final = {
    2: "it refuses the client id",
    3: "it is not available",
    4: "user name or password is wrong",
    5: "not authorised",
    reasons.CLIENT_ID_NOT_VALID: "it refuses the client id",
    reasons.BAD_USER_NAME_OR_PASSWORD: "user name or password is wrong",
    reasons.NOT_AUTHORIZED: "not authorised",
}


class VersionRefused(LinkError):
    """A broker does not know the level in CONNECT: one that knows no bridges refuses that of a bridge."""


def _size_at(data: bytes, at: int) -> tuple[int, int]:
    """(number, where it ends); (-1, at) when it is not complete. Raises LinkError."""
    if not any(one < 0x80 for one in data[at : at + 4]) and len(data) - at < 4:
        return -1, at
    try:
        return decode_varint(data, at, len(data))
    except MqttError as error:
        raise _broken(error) from None


def _broken(error: MqttError) -> LinkError:
    return LinkError(f"it sent no packet of MQTT: {error.message}")


def split(buffer: bytes) -> tuple[list[bytes], int]:
    """The whole packets in a buffer, and how many bytes they have. Raises LinkError: they are none."""
    found, at = [], 0
    while at < len(buffer):
        size, start = _size_at(buffer, at + 1)
        if size < 0 or start + size > len(buffer):
            break
        found.append(buffer[at : start + size])
        at = start + size
    return found, at


def packet(head: int, body: bytes) -> bytes:
    """A packet; `head` is its first byte."""
    return bytes([head]) + encode_varint(len(body)) + body


def _body(data: bytes) -> bytes:
    return data[_size_at(data, 1)[1] :]


def connect(
    level: int,
    client_id: str,
    *,
    user: str,
    password: str,
    clean: bool,
    keepalive_s: int,
    receive_maximum: int,
    will: tuple[str, bytes] | None,
) -> bytes:
    """A CONNECT.

    Args:
        level: 3, 4 or 5; with 0x80 a bridge of MQTT 3 says that it is one.
        client_id: Its own.
        user: "" = none.
        password: "" = none.
        clean: Whether the session begins anew, and with 3.1.1 ends with the connection.
        keepalive_s: The interval.
        receive_maximum: For MQTT 5.
        will: Topic and payload of a retained will with QoS 1.

    """
    is_5 = level == 5
    name = "MQIsdp" if level & 0x7F == 3 else "MQTT"
    flags = 0x02 if clean else 0
    payload = encode_text(client_id)
    if will is not None:
        flags |= 0x04 | 0x08 | 0x20
        payload += (b"\x00" if is_5 else b"") + encode_text(will[0]) + encode_binary(will[1])
    if user:
        flags |= 0x80
        payload += encode_text(user)
    if password:
        flags |= 0x40
        payload += encode_text(password)
    properties = b""
    if is_5:
        expiry_s = 0 if clean else 0xFFFFFFFF
        properties = encode_properties({"session_expiry_s": expiry_s, "receive_maximum": receive_maximum})
    head = encode_text(name) + bytes([level, flags]) + keepalive_s.to_bytes(2, "big")
    return packet(kinds.CONNECT << 4, head + properties + payload)


def subscribe(packet_id: int, filters: Sequence[tuple[str, int]], *, is_5: bool) -> bytes:
    """A SUBSCRIBE; filters have their options (in MQTT 3 the QoS)."""
    body = packet_id.to_bytes(2, "big") + (b"\x00" if is_5 else b"")
    body += b"".join(encode_text(one) + bytes([options]) for one, options in filters)
    return packet(kinds.SUBSCRIBE << 4 | 2, body)


@dataclass(frozen=True, slots=True)
class Connack:
    """The answer to CONNECT, when it is good."""

    session_present: bool
    receive_maximum: int = 65535
    maximum_qos: int = 2
    retain_available: bool = True
    maximum_packet_size: int = 1 << 32
    keepalive_s: int | None = None


def decode_connack(data: bytes, *, is_5: bool) -> Connack:
    """Read a CONNACK. Raises LinkError: it refuses."""
    body = _body(data)
    if len(body) < 2:
        raise LinkError("it sent no packet of MQTT")
    reason = body[1]
    if reason in (1, reasons.UNSUPPORTED_VERSION):
        raise VersionRefused("it does not speak this version of MQTT")
    if reason:
        raise LinkError(f"it refuses the connection: {_REFUSALS.get(reason, f'reason {reason:#04x}')}")
    found: Properties = {}
    if is_5:
        try:
            found, _ = decode_properties(body, 2, len(body), "CONNACK")
        except MqttError as error:
            raise _broken(error) from None
    return Connack(
        bool(body[0] & 1),
        found.get("receive_maximum", 65535),
        found.get("maximum_qos", 2),
        bool(found.get("retain_available", 1)),
        found.get("maximum_packet_size", 1 << 32),
        found.get("server_keep_alive_s"),
    )


def retained(topic: str, payload: bytes, *, is_5: bool) -> bytes:
    """A PUBLISH of QoS 0 that is retained."""
    return packet(kinds.PUBLISH << 4 | 1, encode_text(topic) + (b"\x00" if is_5 else b"") + payload)
