"""Packets of MQTT as a bridge needs them: made, cut out of a stream, and changed from one version to another.

    +-----------------+------------------+------------------------------------+
    | kind 4 flags 4  | size varint 1..4 | body                               |
    +-----------------+------------------+------------------------------------+
    PUBLISH body      | topic size u16, topic | id u16 (QoS 1, 2) | properties (5.0) | payload |
    PUBACK and so on  | id u16 | reason u8 (5.0, may be missing) | properties (5.0) |

Source: MQTT 3.1.1 and 5.0, chapters 2 and 3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.links.errors import LinkError

__all__ = [
    "CONNACK",
    "DISCONNECT",
    "PINGREQ",
    "PUBACK",
    "PUBCOMP",
    "PUBLISH",
    "PUBREC",
    "PUBREL",
    "SUBACK",
    "Connack",
    "Publish",
    "VersionRefused",
    "acknowledged",
    "connect",
    "decode_connack",
    "decode_publish",
    "encode_publish",
    "packet",
    "reason_of",
    "split",
    "subscribe",
    "translated",
]

CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBACK: Final = 9
PINGREQ: Final = b"\xc0\x00"
DISCONNECT: Final = b"\xe0\x00"

_U16: Final = struct.Struct(">H")
_PROPERTY_SIZES: Final[Mapping[int, int]] = {
    # Of those that CONNACK may have; 0 = a text, -1 = two texts.
    0x11: 4,
    0x12: 0,
    0x13: 2,
    0x15: 0,
    0x16: 0,
    0x1A: 0,
    0x1C: 0,
    0x1F: 0,
    0x21: 2,
    0x22: 2,
    0x24: 1,
    0x25: 1,
    0x26: -1,
    0x27: 4,
    0x28: 1,
    0x29: 1,
    0x2A: 1,
}
_REFUSALS: Final = {
    2: "it refuses the client id",
    3: "it is not available",
    4: "user name or password is wrong",
    5: "not authorised",
    0x85: "it refuses the client id",
    0x86: "user name or password is wrong",
    0x87: "not authorised",
}


class VersionRefused(LinkError):
    """A broker does not know the level in CONNECT: one that knows no bridges refuses that of a bridge."""


def _varint(number: int) -> bytes:
    made = bytearray()
    while True:
        number, low = divmod(number, 128)
        made.append(low | (0x80 if number else 0))
        if not number:
            return bytes(made)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, where it ends); (-1, at) when it is not complete. Raises LinkError."""
    number = shift = 0
    for index in range(at, min(at + 4, len(data))):
        number |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return number, index + 1
        shift += 7
    if len(data) - at >= 4:
        raise LinkError("it sent no packet of MQTT")
    return -1, at


def split(buffer: bytes) -> tuple[list[bytes], bytes]:
    """The whole packets in a buffer, and what is left. Raises LinkError: they are none."""
    found, at = [], 0
    while at < len(buffer):
        size, start = _read_varint(buffer, at + 1)
        if size < 0 or start + size > len(buffer):
            break
        found.append(buffer[at : start + size])
        at = start + size
    return found, buffer[at:]


def packet(head: int, body: bytes) -> bytes:
    """A packet; `head` is its first byte."""
    return bytes([head]) + _varint(len(body)) + body


def _body(data: bytes) -> bytes:
    return data[_read_varint(data, 1)[1] :]


def _text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return _U16.pack(len(data)) + data


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
    payload = _text(client_id)
    if will is not None:
        flags |= 0x04 | 0x08 | 0x20
        payload += (b"\x00" if is_5 else b"") + _text(will[0]) + _text(will[1])
    if user:
        flags |= 0x80
        payload += _text(user)
    if password:
        flags |= 0x40
        payload += _text(password)
    properties = b""
    if is_5:
        expiry = 0 if clean else 0xFFFFFFFF
        properties = b"\x11" + struct.pack(">I", expiry) + b"\x21" + _U16.pack(receive_maximum)
        properties = _varint(len(properties)) + properties
    return packet(0x10, _text(name) + bytes([level, flags]) + _U16.pack(keepalive_s) + properties + payload)


def subscribe(packet_id: int, filters: Sequence[tuple[str, int]], *, is_5: bool) -> bytes:
    """A SUBSCRIBE; filters have their options (in MQTT 3 the QoS)."""
    body = _U16.pack(packet_id) + (b"\x00" if is_5 else b"")
    return packet(0x82, body + b"".join(_text(one) + bytes([options]) for one, options in filters))


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
    if reason in (1, 0x84):
        raise VersionRefused("it does not speak this version of MQTT")
    if reason:
        raise LinkError(f"it refuses the connection: {_REFUSALS.get(reason, f'reason {reason:#04x}')}")
    found = _properties(body, 2) if is_5 else {}
    return Connack(
        bool(body[0] & 1),
        found.get(0x21, 65535),
        found.get(0x24, 2),
        bool(found.get(0x25, 1)),
        found.get(0x27, 1 << 32),
        found.get(0x13),
    )


def _properties(body: bytes, at: int) -> dict[int, Any]:
    """Numbers among the properties of a CONNACK."""
    size, at = _read_varint(body, at)
    end, found = at + size, {}
    while at < end:
        key, width = body[at], _PROPERTY_SIZES.get(body[at])
        at += 1
        if width is None:
            raise LinkError("it sent an unknown property in CONNACK")
        if width <= 0:
            for _ in range(2 if width else 1):
                at += 2 + int.from_bytes(body[at : at + 2], "big")
            continue
        found[key] = int.from_bytes(body[at : at + width], "big")
        at += width
    return found


@dataclass(slots=True)
class Publish:
    """A PUBLISH."""

    flags: int
    """Of the first byte: DUP 8, QoS 6, RETAIN 1."""
    topic: str
    packet_id: bytes
    """Two bytes; none with QoS 0."""
    properties: bytes
    """With their size in front, as they came; of MQTT 3 none: a size of 0."""
    payload: bytes

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3


def decode_publish(data: bytes, *, is_5: bool) -> Publish:
    """Read a PUBLISH. Raises LinkError: it is damaged."""
    at = _read_varint(data, 1)[1]
    size = int.from_bytes(data[at : at + 2], "big")
    end = at + 2 + size
    flags = data[0] & 0x0F
    id_end = end + (2 if flags & 6 else 0)
    properties_end = id_end
    properties = b"\x00"
    if is_5:
        length, properties_end = _read_varint(data, id_end)
        properties_end += length
        properties = data[id_end:properties_end]
    if properties_end > len(data):
        raise LinkError("it sent no packet of MQTT")
    try:
        topic = data[at + 2 : end].decode()
    except UnicodeDecodeError:
        raise LinkError("it sent a topic that is not UTF-8") from None
    return Publish(flags, topic, data[end:id_end], properties, data[properties_end:])


def encode_publish(publish: Publish, *, is_5: bool) -> bytes:
    """The packet of it."""
    properties = publish.properties if is_5 else b""
    return packet(
        PUBLISH << 4 | publish.flags, _text(publish.topic) + publish.packet_id + properties + publish.payload
    )


def acknowledged(kind: int, packet_id: bytes) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP without a reason."""
    return packet(kind << 4 | (2 if kind == PUBREL else 0), packet_id)


def reason_of(data: bytes, *, is_5: bool) -> int:
    """The reason in a PUBACK or PUBREC; 0x80 and more refuse the message."""
    body = _body(data)
    return body[2] if is_5 and len(body) > 2 else 0


def translated(data: bytes, *, from_5: bool, to_5: bool) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP as the other side takes it; MQTT 3 has no reasons."""
    if from_5 and not to_5:
        return packet(data[0], _body(data)[:2])
    return data
