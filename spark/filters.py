"""Which messages are wanted, by exchange, topic and routing key: asked once per distinct key block.

A message has one subject in two spellings, as everywhere in penstock: an MQTT topic `a/b` is the routing key
`a.b` of the exchange `amq.topic`, and the other way round. Patterns are those of the protocols: `*` and `#`
between dots (amqp091:3.1.3.3), `+` and `#` between slashes (mqtt5:4.7.1, with 4.7.2 for `$`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["PROTOCOLS", "Wanted", "amqp_pattern", "mqtt_filter"]

PROTOCOLS: Final = {"amqp091": 1, "mqtt": 2, "native": 3}
"""Encoding of key and properties by the protocol's name in the table."""

_AMQP091: Final = 1
_MQTT_EXCHANGE: Final = b"amq.topic"


def amqp_pattern(pattern: str) -> re.Pattern[bytes]:
    """A topic exchange's binding key as an expression that matches the same routing keys."""
    # Words are joined by dots, and `#` stands for none of them too: then one dot beside it goes as well.
    parts: list[str] = []
    words = pattern.split(".")
    if set(words) == {"#"}:
        return re.compile(rb"(?s:.*)")
    need_dot = False
    for word in words:
        if word == "#":
            parts.append(r"(?:\.[^.]*)*" if need_dot else r"(?:[^.]*\.)*?")
        else:
            parts.append((r"\." if need_dot else "") + (r"[^.]*" if word == "*" else _literal(word)))
            need_dot = True
    return re.compile("".join(parts).encode("utf-8", "surrogateescape"), re.DOTALL)


def mqtt_filter(pattern: str) -> re.Pattern[bytes]:
    """A topic filter as an expression that matches the same topics."""
    levels = pattern.split("/")
    parts = [r"(?!\$)"] if levels[0] in ("+", "#") else []
    for index, level in enumerate(levels):
        slash = "/" if index else ""
        if level == "#":
            parts.append(rf"(?:{slash}.*)?")
            break
        parts.append(slash + (r"[^/]*" if level == "+" else _literal(level)))
    return re.compile("".join(parts).encode("utf-8", "surrogateescape"), re.DOTALL)


def _literal(word: str) -> str:
    return re.escape(word)


@dataclass(frozen=True)
class Wanted:
    """The values of each option; an empty one takes everything. All have to agree."""

    exchanges: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    """MQTT filters: messages of MQTT, and of the exchange `amq.topic`."""
    routing_keys: tuple[str, ...] = ()
    """AMQP patterns: of every exchange; MQTT topics with dots for slashes."""

    @property
    def everything(self) -> bool:
        """Nothing is left out."""
        return not (self.exchanges or self.topics or self.routing_keys)

    def matcher(self) -> Matcher:
        """The same, ready to be asked."""
        return Matcher(
            frozenset(name.encode("utf-8", "surrogateescape") for name in self.exchanges),
            [mqtt_filter(topic) for topic in self.topics],
            [amqp_pattern(key) for key in self.routing_keys],
        )


class Matcher:
    """`decide` of `_columns.Rows`."""

    def __init__(
        self,
        exchanges: frozenset[bytes],
        topics: Sequence[re.Pattern[bytes]],
        keys: Sequence[re.Pattern[bytes]],
    ) -> None:
        self._exchanges = exchanges
        self._topics = topics
        self._keys = keys

    def __call__(self, enc: int, block: bytes) -> bool:
        """Whether records with this key block are wanted."""
        if enc == _AMQP091:
            size = block[0] if block else 0
            exchange, key = block[1 : 1 + size], block[2 + size :]
            topic = key.replace(b".", b"/") if exchange == _MQTT_EXCHANGE else None
        else:
            exchange, key, topic = _MQTT_EXCHANGE, block.replace(b"/", b"."), block
        return self._wants(exchange, key, topic)

    def row(self, protocol: str, address: str, routing_key: str) -> bool:
        """The same of a row of the table."""
        key = routing_key.encode()
        if protocol == "mqtt":
            return self._wants(_MQTT_EXCHANGE, key.replace(b"/", b"."), key)
        exchange = address.encode()
        return self._wants(exchange, key, key.replace(b".", b"/") if exchange == _MQTT_EXCHANGE else None)

    def _wants(self, exchange: bytes, key: bytes, topic: bytes | None) -> bool:
        if self._exchanges and exchange not in self._exchanges:
            return False
        if self._topics and (topic is None or not any(p.fullmatch(topic) for p in self._topics)):
            return False
        return not self._keys or any(p.fullmatch(key) for p in self._keys)
