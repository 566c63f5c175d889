"""Names and keys: text against bytes, key blocks, topics against routing keys, reserved and made-up names.

A key block is what a record carries in front of its properties, and what a route table is asked with:

    AMQP 0-9-1 (enc 1)   size u8 | exchange | size u8 | routing key
    MQTT 5     (enc 2)   topic, exactly as published

Names are text inside Python; bytes of a peer that are no UTF-8 travel as surrogate escapes and come out as
they were. A topic and a routing key stand for one another by `/` against `.`, both ways textual.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable
from typing import Final

__all__ = [
    "ENC_AMQP091",
    "ENC_MQTT5",
    "RESERVED_PREFIX",
    "binding_key",
    "clean_name",
    "dotted",
    "filter_of_binding",
    "join_key_block",
    "key_blocks_at",
    "server_name",
    "slashed",
    "split_key_block",
    "text",
    "wildcards_are_alone",
    "wire",
]

ENC_AMQP091: Final = 1
ENC_MQTT5: Final = 2
RESERVED_PREFIX: Final = "amq."

_STRIPPED: Final = str.maketrans("", "", "\r\n")


def text(data: bytes) -> str:
    """Bytes of a peer as text; `wire` turns them back."""
    return data.decode("utf-8", "surrogateescape")


def wire(name: str) -> bytes:
    """Text as the bytes it came from."""
    return name.encode("utf-8", "surrogateescape")


def clean_name(name: str) -> str:
    """A name as RabbitMQ keeps it: without carriage returns and line feeds."""
    return name.translate(_STRIPPED)


def server_name(prefix: str) -> str:
    """A name nobody has: the prefix and 22 characters of base64url over 128 random bits."""
    return prefix + base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode("ascii")


def dotted(topic: bytes) -> bytes:
    """The routing key that stands for a topic."""
    return topic.replace(b"/", b".")


def binding_key(topic_filter: bytes) -> bytes:
    """The binding key that stands for a topic filter, as RabbitMQ has it: `.` for `/`, `*` for `+`."""
    return topic_filter.replace(b"/", b".").replace(b"+", b"*")


def wildcards_are_alone(topic_filter: str) -> bool:
    """Whether `+` is alone in its level, and `#` alone in the last one (mqtt5:4.7.1-1, mqtt5:4.7.1-2)."""
    if "#" not in topic_filter and "+" not in topic_filter:
        return True
    *levels, last = topic_filter.split("/")
    return (last == "#" or _is_level(last)) and all(map(_is_level, levels))


def _is_level(level: str) -> bool:
    return level == "+" or not ("#" in level or "+" in level)


def filter_of_binding(key: bytes) -> bytes:
    """The narrowest topic filter that matches all that a binding key does, or a routing key stands for.

    Levels behind a `#` are left out: a filter has it at the end only.
    """
    levels = []
    for word in key.split(b"."):
        levels.append(b"+" if word == b"*" else word)
        if word == b"#":
            break
    return b"/".join(levels)


def slashed(key: bytes) -> bytes:
    """The topic that stands for a routing key."""
    return key.replace(b".", b"/")


def join_key_block(exchange: str, key: str) -> bytes:
    """The AMQP key block.

    Raises:
        ValueError: one of the two has more than 255 bytes.

    """
    parts = wire(exchange), wire(key)
    return b"".join(bytes((len(part),)) + part for part in parts)


def key_blocks_at(exchanges: Iterable[str], keys: Iterable[bytes]) -> tuple[bytes, ...]:
    """The routing keys of these AMQP key blocks at each of `exchanges`, as key blocks, each once."""
    routing_keys = [text(key[2 + key[0] :]) for key in keys]
    return tuple(dict.fromkeys(join_key_block(name, key) for name in exchanges for key in routing_keys))


def split_key_block(block: bytes) -> tuple[str, bytes] | None:
    """Exchange and routing key of an AMQP key block; None when its sizes do not fit its length."""
    if not block:
        return None
    at = 1 + block[0]
    if at >= len(block) or at + 1 + block[at] != len(block):
        return None
    return text(block[1:at]), block[at + 1 :]
