"""Reads mosquitto.db, the file in which Mosquitto 2.0 keeps messages and sessions (version 6 of the format).

Integers of the header and of lengths are big-endian. Numbers of messages and times are written as they are in
memory, here little-endian.

    +----------------------------+---------+-------------+
    | 00 B5 00 "mosquitto db"    | crc u32 | version u32 |
    +----------------------------+---------+-------------+
    then chunks: | kind u32 | size u32 | size bytes |

    1 settings      last number u64, clean u8, size of numbers u8, padding
    2 message       number u64, expires s64 (s since 1970, 0 = never), payload u32, packet id u16, client u16,
                    user u16, topic u16, port u16, qos u8, retain u8; client, user, topic, payload, properties
    3 in a session  number u64, packet id u16, client u16, qos u8, state u8, retain/dup u8, direction u8;
                    client
    4 retained      number u64
    5 subscription  identifier u32, client u16, topic u16, qos u8, options u8, padding; client, topic
    6 session       expires s64, expiry interval u32, packet id u16, client u16, port u16, user u16, padding;
                    client, user

Source: Mosquitto's own description of these structures (persist.h); checked against files of 2.0.11.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import field
from pathlib import Path
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.migrate.report import MigrationError

__all__ = ["Database", "Held", "Message", "Session", "Subscription", "read"]

_MAGIC: Final = b"\x00\xb5\x00mosquitto db"
_VERSION: Final = 6
_CHUNK: Final = struct.Struct(">II")
_NUMBER: Final = struct.Struct("<Q")
_TIME: Final = struct.Struct("<q")
_MESSAGE: Final = struct.Struct(">8s8sIHHHHHBB")
_HELD: Final = struct.Struct(">8sHHBBBB")
_SUBSCRIPTION: Final = struct.Struct(">IHHBB2x")
_SESSION: Final = struct.Struct(">8sIHHHH4x")


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message, once for all that hold it."""

    number: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    expires_at: int
    """Seconds since 1970; 0 = never."""
    properties: bytes
    """Of MQTT 5, with their length in front; b"" = none."""


@dataclass(frozen=True, slots=True)
class Held:
    """A message in a session."""

    number: int
    client_id: str
    state: int
    """Mosquitto's `mosquitto_msg_state`."""
    outgoing: bool
    """To the client; else from it, a message of QoS 2 that is not released yet."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of a session."""

    client_id: str
    topic: str
    qos: int
    options: int
    """The bits of MQTT 5's subscription options, without the QoS."""
    identifier: int


@dataclass(frozen=True, slots=True)
class Session:
    """A client that is remembered while it is away."""

    client_id: str
    username: str
    """"" = none."""
    expires_at: int
    """Seconds since 1970; 0 = it was connected, or does not expire."""
    expiry_s: int


@dataclass(slots=True)
class Database:
    """The content of one file."""

    digest: str
    """SHA-256 of the file."""
    messages: dict[int, Message] = field(default_factory=dict)
    """By number; Mosquitto numbers messages in the order in which they came."""
    retained: list[int] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    sessions: dict[str, Session] = field(default_factory=dict)
    subscriptions: list[Subscription] = field(default_factory=list)


def read(path: Path) -> Database:
    """Read a file.

    Raises:
        MigrationError: it cannot be read, has another version, or is damaged.

    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MigrationError(
            f"{path} cannot be read: {error.strerror}",
            remedy="stop Mosquitto, or send it SIGUSR1, so that it writes the file; read it as its user",
        ) from None
    head = len(_MAGIC) + 8
    if not content.startswith(_MAGIC) or len(content) < head:
        raise MigrationError(f"{path} is no database of Mosquitto", remedy="name its persistence_file")
    version = int.from_bytes(content[head - 4 : head], "big")
    if version != _VERSION:
        raise MigrationError(
            f"{path} has version {version} of the format, and {_VERSION} is read here",
            remedy="start Mosquitto 2.0 on it and stop it again",
        )
    found = Database(hashlib.sha256(content).hexdigest())
    at = head
    while at < len(content):
        try:
            kind, size = _CHUNK.unpack_from(content, at)
            body = content[at + _CHUNK.size : at + _CHUNK.size + size]
            if len(body) != size:
                raise ValueError("it ends too early")
            _take(found, kind, body)
        except (struct.error, ValueError) as error:
            raise MigrationError(
                f"{path} is damaged at byte {at}: {error}", remedy="use a file that Mosquitto wrote whole"
            ) from None
        at += _CHUNK.size + size
    missing = {*found.retained, *(held.number for held in found.held)} - found.messages.keys()
    if missing:
        raise MigrationError(
            f"{path} is damaged: it has no message {min(missing)}",
            remedy="use a file that Mosquitto wrote whole",
        )
    return found


def _take(found: Database, kind: int, body: bytes) -> None:
    match kind:
        case 2:
            message = _message(body)
            found.messages[message.number] = message
        case 3:
            number, _, client, _, state, _, direction = _HELD.unpack_from(body)
            (client_id,) = _texts(body, _HELD.size, client)
            found.held.append(Held(_number(number), client_id, state, direction == 1))
        case 4:
            found.retained.append(_number(body[:8]))
        case 5:
            identifier, client, topic, qos, options = _SUBSCRIPTION.unpack_from(body)
            client_id, name = _texts(body, _SUBSCRIPTION.size, client, topic)
            found.subscriptions.append(Subscription(client_id, name, qos, options, identifier))
        case 6:
            expires, expiry_s, _, client, _, user = _SESSION.unpack_from(body)
            client_id, username = _texts(body, _SESSION.size, client, user)
            expires_at = _TIME.unpack(expires)[0]
            found.sessions[client_id] = Session(client_id, username, expires_at, expiry_s)
        case 1:
            pass
        case _:
            raise ValueError(f"nobody knows chunks of kind {kind}")


def _message(body: bytes) -> Message:
    number, expires, payload, _, client, user, topic, _, qos, retain = _MESSAGE.unpack_from(body)
    _, _, name = _texts(body, _MESSAGE.size, client, user, topic)
    start = _MESSAGE.size + client + user + topic
    if len(body) < start + payload:
        raise ValueError("a payload ends too early")
    return Message(
        _number(number),
        name,
        body[start : start + payload],
        qos,
        bool(retain),
        _TIME.unpack(expires)[0],
        body[start + payload :],
    )


def _number(data: bytes) -> int:
    number: int = _NUMBER.unpack(data)[0]
    return number


def _texts(body: bytes, at: int, *sizes: int) -> list[str]:
    found: list[str] = []
    for size in sizes:
        if len(body) < at + size:
            raise ValueError("a text ends too early")
        found.append(body[at : at + size].decode())
        at += size
    return found
