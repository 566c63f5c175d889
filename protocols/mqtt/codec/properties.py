"""The property blocks of MQTT 5.0: one table, one decoder, one encoder.

A block is a variable byte integer with the length of what follows, then properties back to back, each an
identifier (a variable byte integer; all defined ones fit one byte) and a value whose type the identifier
gives:

    byte | u16 | u32 (big-endian) | varint | binary (u16 length + bytes) | text (u16 length + UTF-8)
    | pair (two texts)

A decoded block is a dict from the property's name to its value; the properties that may occur several times
(`user_properties`, and `subscription_ids` in a PUBLISH to a client) are lists.
PUBLISH from a client does not come through here: the kernel checks its block and keeps it as bytes.

Source: MQTT 5.0 section 2.2.2.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.protocols.mqtt.codec._pairs import read_pairs
from penstock.protocols.mqtt.codec.reasons import Malformed, Violation

__all__ = [
    "NO_PROPERTIES",
    "PROPERTIES",
    "Properties",
    "Property",
    "decode_binary",
    "decode_properties",
    "decode_text",
    "decode_varint",
    "encode_binary",
    "encode_block",
    "encode_properties",
    "encode_text",
    "encode_varint",
]

Properties = dict[str, Any]
"""Property name -> value; the value's type is that of the table."""

NO_PROPERTIES: Final[Properties] = {}
"""Those of a packet without any, for whoever does not change them."""


class Property(NamedTuple):
    """One line of the table in section 2.2.2.2."""

    name: str
    kind: str
    """byte, u16, u32, varint, binary, text or pair, as in the module's text."""
    packets: frozenset[str]
    """Packets that may carry it; "WILL" is the will's block in CONNECT."""
    repeats: bool = False
    low: int = 0
    """The lowest value allowed; a lower one is a protocol error."""
    high: int = 2**32 - 1


def _property(name: str, kind: str, packets: str, **extra: Any) -> Property:
    return Property(name, kind, frozenset(packets.split()), **extra)


_EVERY_ACK: Final = "CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH"

PROPERTIES: Final[dict[int, Property]] = {
    0x01: _property("payload_format", "byte", "PUBLISH WILL", high=1),
    0x02: _property("message_expiry_s", "u32", "PUBLISH WILL"),
    0x03: _property("content_type", "text", "PUBLISH WILL"),
    0x08: _property("response_topic", "text", "PUBLISH WILL", low=1),
    0x09: _property("correlation_data", "binary", "PUBLISH WILL"),
    0x0B: _property("subscription_ids", "varint", "PUBLISH SUBSCRIBE", low=1, repeats=True),
    0x11: _property("session_expiry_s", "u32", "CONNECT CONNACK DISCONNECT"),
    0x12: _property("assigned_client_id", "text", "CONNACK"),
    0x13: _property("server_keep_alive_s", "u16", "CONNACK"),
    0x15: _property("authentication_method", "text", "CONNECT CONNACK AUTH"),
    0x16: _property("authentication_data", "binary", "CONNECT CONNACK AUTH"),
    0x17: _property("request_problem_information", "byte", "CONNECT", high=1),
    0x18: _property("will_delay_s", "u32", "WILL"),
    0x19: _property("request_response_information", "byte", "CONNECT", high=1),
    0x1A: _property("response_information", "text", "CONNACK"),
    0x1C: _property("server_reference", "text", "CONNACK DISCONNECT"),
    0x1F: _property("reason_string", "text", _EVERY_ACK),
    0x21: _property("receive_maximum", "u16", "CONNECT CONNACK", low=1),
    0x22: _property("topic_alias_maximum", "u16", "CONNECT CONNACK"),
    0x23: _property("topic_alias", "u16", "PUBLISH", low=1),
    0x24: _property("maximum_qos", "byte", "CONNACK", high=1),
    0x25: _property("retain_available", "byte", "CONNACK", high=1),
    0x26: _property("user_properties", "pair", f"CONNECT PUBLISH WILL SUBSCRIBE UNSUBSCRIBE {_EVERY_ACK}",
    repeats=True), 0x27: _property("maximum_packet_size", "u32", "CONNECT CONNACK", low=1), 0x28:
    _property("wildcard_subscription_available", "byte", "CONNACK", high=1), 0x29:
    _property("subscription_ids_available", "byte", "CONNACK", high=1), 0x2A:
    _property("shared_subscription_available", "byte", "CONNACK", high=1),
}  # fmt: skip

_USER_PROPERTY: Final = 0x26
_PAIR_FAULTS: Final = {-1: "a user property is cut off", -2: "a user property is no text"}
_BY_NAME: Final = {entry.name: (identifier, entry) for identifier, entry in PROPERTIES.items()}


# Fields


def decode_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a variable byte integer at `at`; gives (value, position after it).

    Raises:
        Malformed: it does not end before `end`, has more than four bytes, or is longer than it need be
            (mqtt5:1.5.5-1).

    """
    value = shift = 0
    for position in range(at, min(end, at + 4)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and position > at:
                raise Malformed("a variable byte integer is longer than it need be")
            return value, position + 1
        shift += 7
    raise Malformed("a variable byte integer does not end")


def decode_binary(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Read a u16 length and that many bytes; gives (bytes, position after them)."""
    if end - at < 2:
        raise Malformed("the packet ends in a length")
    start = at + 2
    stop = start + (data[at] << 8 | data[at + 1])
    if stop > end:
        raise Malformed("a field is longer than its packet")
    return data[start:stop], stop


def decode_text(data: bytes, at: int, end: int) -> tuple[str, int]:
    """Read a UTF-8 string; gives (text, position after it).

    Raises:
        Malformed: ill-formed UTF-8, a surrogate, or U+0000 (mqtt5:1.5.4-1, mqtt5:1.5.4-2).

    """
    raw, stop = decode_binary(data, at, end)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None
    if "\0" in text:
        raise Malformed("a string contains U+0000")
    return text, stop


def encode_varint(value: int) -> bytes:
    """The variable byte integer of a value in [0, 268435455]."""
    if not 0 <= value <= 268_435_455:
        raise ValueError(f"{value} does not fit a variable byte integer")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_binary(value: bytes) -> bytes:
    """A u16 length and the bytes; at most 65,535 of them."""
    return len(value).to_bytes(2, "big") + value


def encode_text(value: str) -> bytes:
    """A u16 length and the text in UTF-8."""
    return encode_binary(value.encode())


# Blocks


def decode_properties(data: bytes, at: int, end: int, packet: str) -> tuple[Properties, int]:
    """Read the property block of a `packet` (a name of the table) at `at`.

    Returns:
        The properties by name, and the position after the block.

    Raises:
        Malformed: the block does not fit its packet, or has an identifier that this packet may not carry,
            or a broken value.
        Violation: a property that occurs twice, or whose value is not allowed.

    """
    length, at = decode_varint(data, at, end)
    if at + length > end:
        raise Malformed("a property block is longer than its packet")
    end = at + length
    found: Properties = {}
    while at < end:
        if data[at] == _USER_PROPERTY and packet in PROPERTIES[_USER_PROPERTY].packets:
            at = read_pairs(data, at, end, found.setdefault("user_properties", []))
            if at < 0:
                raise Malformed(_PAIR_FAULTS[at])
            continue
        identifier, at = decode_varint(data, at, end)
        entry = PROPERTIES.get(identifier)
        if entry is None:
            raise Malformed(f"unknown property 0x{identifier:02x}")
        if packet not in entry.packets:
            raise Malformed(f"property {entry.name} in {packet}")  # mqtt5:2.2.2.2
        value, at = _decode_value(data, at, end, entry)
        if entry.repeats:
            found.setdefault(entry.name, []).append(value)
        elif entry.name in found:
            raise Violation(f"property {entry.name} twice")
        else:
            found[entry.name] = value
    return found, at


def _decode_value(data: bytes, at: int, end: int, entry: Property) -> tuple[Any, int]:
    kind = entry.kind
    if kind == "text":
        text, at = decode_text(data, at, end)
        if len(text) < entry.low:
            raise Violation(f"property {entry.name} is empty")
        return text, at
    if kind == "binary":
        return decode_binary(data, at, end)
    if kind == "varint":
        number, at = decode_varint(data, at, end)
    else:
        width = {"byte": 1, "u16": 2, "u32": 4}[kind]
        if end - at < width:
            raise Malformed(f"property {entry.name} is cut off")
        number = int.from_bytes(data[at : at + width], "big")
        at += width
    if not entry.low <= number <= entry.high:
        raise Violation(f"property {entry.name} is {number}")
    return number, at


def encode_properties(properties: Properties) -> bytes:
    """A property block with its length, in the order of the dict."""
    block = encode_block(properties)
    return encode_varint(len(block)) + block


def encode_block(properties: Properties) -> bytes:
    """The same without the length: what a record keeps."""
    body = bytearray()
    for name, value in properties.items():
        identifier, entry = _BY_NAME[name]
        for item in value if entry.repeats else (value,):
            body.append(identifier)
            body += _encode_value(entry.kind, item)
    return bytes(body)


def _encode_value(kind: str, value: Any) -> bytes:
    if kind == "text":
        return encode_text(value)
    if kind == "binary":
        return encode_binary(value)
    if kind == "pair":
        return encode_text(value[0]) + encode_text(value[1])
    if kind == "varint":
        return encode_varint(value)
    width = {"byte": 1, "u16": 2, "u32": 4}[kind]
    return int(value).to_bytes(width, "big")
