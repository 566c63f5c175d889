"""The sections of an AMQP 1.0 message, found without decoding what is only handed on.

    header | delivery annotations | message annotations | properties | application properties | body | footer

Each is a described value, at most once and in this order; a body is data sections, sequence sections, or one
value.

Source: AMQP 1.0 part 3, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.amqp10.codec._decoding import VALUES_MAX, decode_one
from penstock.protocols.amqp10.codec.encoding import encode
from penstock.protocols.amqp10.codec.errors import DecodeError
from penstock.protocols.amqp10.codec.values import Described, Symbol, ULong

__all__ = ["PROPERTY_NAMES", "Message", "encode_section", "parse_message", "read_sections"]

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
_NAMES: Final = {
    HEADER: "header:list",
    DELIVERY_ANNOTATIONS: "delivery-annotations:map",
    ANNOTATIONS: "message-annotations:map",
    PROPERTIES: "properties:list",
    APPLICATION_PROPERTIES: "application-properties:map",
    DATA: "data:binary",
    SEQUENCE: "amqp-sequence:list",
    VALUE: "amqp-value:*",
    FOOTER: "footer:map",
}
PROPERTY_NAMES: Final = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)
"""Fields of the properties section, in their order."""
_BY_NAME: Final = {f"amqp:{name}": code for code, name in _NAMES.items()}
_KINDS: Final = {
    HEADER: list,
    DELIVERY_ANNOTATIONS: dict,
    ANNOTATIONS: dict,
    PROPERTIES: list,
    APPLICATION_PROPERTIES: dict,
    DATA: bytes,
    SEQUENCE: list,
    FOOTER: dict,
}


@dataclass(slots=True)
class Message:
    """A message taken apart. `raw` has the bytes of its sections, by descriptor."""

    header: list[Any] = field(default_factory=list)
    annotations: dict[Any, Any] = field(default_factory=dict)
    properties: list[Any] = field(default_factory=list)
    application_properties: dict[Any, Any] = field(default_factory=dict)
    data: bytes | None = None
    """The body, when it is one data section, or when there is none."""
    raw: dict[int, bytes] = field(default_factory=dict)
    body: bytes = b""
    """The sections of the body as they came."""


def parse_message(payload: bytes, *, values: int = VALUES_MAX) -> Message:
    """The message of a delivery.

    Raises:
        DecodeError: no section, one at the wrong place, or one of the wrong type.

    """
    message = Message()
    last = 0
    bodies: list[bytes] = []
    for code, value, raw in read_sections(payload, values=values):
        many = code in (DATA, SEQUENCE) and code == last
        if (code <= last and not many) or (DATA <= last <= VALUE and code not in (FOOTER, last)):
            raise DecodeError(f"a section {_NAMES[code]} behind {_NAMES[last]}")
        if code == HEADER:
            message.header = value
        elif code == ANNOTATIONS:
            message.annotations = value
        elif code == PROPERTIES:
            message.properties = value
        elif code == APPLICATION_PROPERTIES:
            message.application_properties = value
        if DATA <= code <= VALUE:
            bodies.append(raw)
            if code == DATA:
                message.data = value
        else:
            message.raw[code] = raw
        last = code
    message.body = b"".join(bodies)
    if not bodies:
        message.data = b""
    elif len(bodies) > 1:
        message.data = None
    return message


def read_sections(payload: bytes, *, values: int = VALUES_MAX) -> Iterator[tuple[int, Any, bytes]]:
    """The sections of a message in the order they have: code, value, bytes. Raises DecodeError."""
    at = 0
    while at < len(payload):
        section, end = decode_one(payload, at, values=values)
        code = _code(section)
        kind = _KINDS.get(code)
        if kind is not None and type(section.value) is not kind:
            raise DecodeError(f"a section {_NAMES[code]} with another value")
        yield code, section.value, payload[at:end]
        at = end


def encode_section(code: int, value: Any) -> bytes:
    """The bytes of a section."""
    return b"\x00\x53" + bytes((code,)) + encode(value)


def _code(section: Any) -> int:
    if type(section) is Described:
        descriptor = section.descriptor
        if type(descriptor) is ULong and descriptor in _NAMES:
            return int(descriptor)
        if type(descriptor) is Symbol and descriptor in _BY_NAME:
            return _BY_NAME[descriptor]
    raise DecodeError("a value that is no section of a message")
