"""Frames: size u32 | data offset u8, in words | type u8 | channel u16 | extended header | body.

A body of an AMQP frame is a performative and, behind a transfer, a part of a message; an empty body is a
heartbeat. A body of a SASL frame is one performative.

Source: AMQP 1.0 part 2 section 2.3, part 5 section 5.3.1.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from penstock.protocols.amqp10.codec._decoding import VALUES_MAX, decode_one, decode_transfer
from penstock.protocols.amqp10.codec.errors import DecodeError, FramingError
from penstock.protocols.amqp10.codec.performatives import Transfer, composite, encode_composite
from penstock.protocols.amqp10.codec.values import Described

__all__ = [
    "AMQP",
    "FRAME_MIN",
    "HEADER",
    "HEARTBEAT",
    "SASL",
    "SASL_HEADER",
    "delivery_tag",
    "encode_frame",
    "encode_transfer",
    "read_frame",
]

HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
FRAME_MIN: Final = 512
"""Bytes that each peer takes in a frame."""
AMQP: Final = 0
SASL: Final = 1
HEARTBEAT: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
_HEAD: Final = struct.Struct(">IBBH")


def read_frame(
    data: bytes | bytearray | memoryview, at: int, end: int, frame_max: int, *, values: int = VALUES_MAX
) -> tuple[int, int, int, Any, bytes] | None:
    """The frame that begins at `at`: (index behind it, type, channel, performative, payload).

    The performative of a heartbeat is None. The result is None while data[at:end] has no whole frame.

    Raises:
        FramingError: an impossible header, or a frame longer than `frame_max`; it is raised before the rest
            of such a frame came.
        DecodeError, FieldError: a body that is no performative.

    """
    if end - at < _HEAD.size:
        return None
    size, offset, kind, channel = _HEAD.unpack_from(data, at)
    if size < _HEAD.size or offset < 2 or offset * 4 > size:
        raise FramingError(f"a frame of {size} bytes whose body begins at {offset * 4}")
    if size > frame_max:
        raise FramingError(f"a frame of {size} bytes; at most {frame_max} were agreed")
    if kind not in (AMQP, SASL):
        raise FramingError(f"a frame of type {kind}")
    if end - at < size:
        return None
    body = bytes(data[at + offset * 4 : at + size])
    if not body:
        if kind == SASL:
            raise FramingError("a SASL frame without a body")
        return at + size, kind, channel, None, b""
    if kind == AMQP and (short := decode_transfer(body)) is not None:
        return at + size, kind, channel, Transfer(*short[:6]), body[short[6] :]
    value, behind = decode_one(body, values=values)
    performative = composite(value)
    if type(performative) is Described:
        raise DecodeError("a frame whose performative is not known")
    if behind < len(body) and type(performative) is not Transfer:
        raise DecodeError(f"{len(body) - behind} bytes behind a {type(performative).__name__.lower()}")
    return at + size, kind, channel, performative, body[behind:]


def encode_transfer(
    channel: int,
    handle: int,
    number: int | None,
    settled: bool,
    more: bool,
    payload: bytes,
    series: int = 0,
) -> bytes:
    """The frame of a transfer: the first of a delivery with its number; or another, without one.

    The tag is the number, behind `series` unless that is 0.
    """
    if number is None:
        fields = b"\x70%b\x40\x40\x40\x40" % handle.to_bytes(4, "big")
    else:
        raw = number.to_bytes(4, "big")
        settles = b"\x41" if settled else b"\x42"
        tag = delivery_tag(series, number)
        fields = b"\x70%b\x70%b\xa0%c%b\x43%b" % (handle.to_bytes(4, "big"), raw, len(tag), tag, settles)
    body = b"\x00\x53\x14\xc0%c\x06%b%b" % (len(fields) + 2, fields, b"\x41" if more else b"\x42")
    return _HEAD.pack(_HEAD.size + len(body) + len(payload), 2, AMQP, channel) + body + payload


def delivery_tag(series: int, number: int) -> bytes:
    """The tag of our delivery of this number. Links that may be resumed have a series other than 0."""
    return (series.to_bytes(4, "big") if series else b"") + (number & 0xFFFFFFFF).to_bytes(4, "big")


def encode_frame(channel: int, performative: Any, payload: bytes = b"", *, kind: int = AMQP) -> bytes:
    """The frame of a performative, and what follows it."""
    body = encode_composite(performative)
    return _HEAD.pack(_HEAD.size + len(body) + len(payload), 2, kind, channel) + body + payload
