"""The expected result of the AMQP scanner, written for reading: the oracle of its property tests.

`scan` takes a whole stream of frames of one connection, with channels already open, and gives the messages
in the order in which they are complete, or stops at the first fault. It knows only publishes with their
content; any other method is given by its ids.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """A publish, complete."""

    channel: int
    key: bytes
    """Exchange and routing key, as two short strings."""
    bits: int
    properties: bytes
    body: bytes


@dataclass(frozen=True)
class Method:
    """A method that is not a publish."""

    channel: int
    index: tuple[int, int]
    arguments: bytes


@dataclass(frozen=True)
class Fault:
    """The stream breaks the rules here."""

    name: str


@dataclass
class _Content:
    key: bytes
    bits: int
    properties: bytes = b""
    size: int = -1
    body: bytes = b""


def scan(stream: bytes, frame_max: int = 131072) -> list[Message | Method | Fault]:
    found: list[Message | Method | Fault] = []
    under_way: dict[int, _Content] = {}
    at = 0
    while len(stream) - at >= 7:
        kind, channel, size = struct.unpack_from(">BHI", stream, at)
        if size > frame_max:
            return [*found, Fault("frame_too_large")]
        if len(stream) - at < size + 8:
            break
        payload = stream[at + 7 : at + 7 + size]
        if stream[at + 7 + size] != 0xCE:
            return [*found, Fault("invalid_frame_end_marker")]
        at += size + 8
        content = under_way.get(channel)
        if kind == 8:
            if channel:
                return [*found, Fault("heartbeat")]
        elif kind == 1:
            if size < 4:
                return [*found, Fault("unknown_frame")]
            if content is not None:
                return [*found, Fault("no_header" if content.size < 0 else "no_body")]
            index = struct.unpack_from(">HH", payload)
            if index == (60, 40):
                key, bits = payload[6:-1], payload[-1]
                under_way[channel] = _Content(key, bits)
            else:
                found.append(Method(channel, index, payload[4:]))
        elif kind == 2:
            if content is None:
                return [*found, Fault("no_method")]
            if content.size >= 0:
                return [*found, Fault("no_body")]
            if size < 14:
                return [*found, Fault("header")]
            class_id, _, content.size = struct.unpack_from(">HHQ", payload)
            if class_id != 60:
                return [*found, Fault("header_class")]
            content.properties = payload[12:]
        elif kind == 3:
            if content is None:
                return [*found, Fault("no_method")]
            if content.size < 0:
                return [*found, Fault("no_header")]
            if len(content.body) + size > content.size:
                return [*found, Fault("body_too_large")]
            content.body += payload
        else:
            return [*found, Fault("unknown_frame")]
        if content is not None and content.size == len(content.body):
            del under_way[channel]
            found.append(Message(channel, content.key, content.bits, content.properties, content.body))
    return found
