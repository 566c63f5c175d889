"""A shovel adds to messages of AMQP 1.0; every section without an addition keeps its bytes.

Delivery annotations end at the shovel: they are for the next node only.

Source: AMQP 1.0 part 3, section 3.2; rabbit_amqp10_shovel.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from penstock.protocols.amqp10.codec.values import Symbol, Timestamp
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.links.amqp.settings import Destination

__all__ = ["Addition"]

_CREATED: Final = s.PROPERTY_NAMES.index("creation-time")


class Addition:
    """From a message to the message as it is sent."""

    def __init__(self, destination: Destination, forwarded: Mapping[str, str]) -> None:
        """An addition of what the settings say.

        Args:
            destination: Its settings say what is added.
            forwarded: Application properties that say which shovel it was.

        """
        self._properties = {
            _place(name): _property(name, value) for name, value in destination.properties.items()
        }
        self._annotations = {Symbol(name): value for name, value in destination.annotations.items()}
        self._application = {**destination.application_properties, **forwarded}
        self._has_time = destination.timestamp_header
        self.adds = bool(self._properties or self._annotations or self._application or self._has_time)
        """Whether it adds anything; without, delivery annotations go all the same."""

    def __call__(self, payload: bytes) -> bytes:
        """Raises Amqp10Error: it is no message."""
        message = s.parse_message(payload)
        raw = message.raw
        if self._annotations:
            raw[s.ANNOTATIONS] = s.encode_section(s.ANNOTATIONS, message.annotations | self._annotations)
        changed = self._properties
        if self._has_time:
            changed = {**changed, _CREATED: Timestamp(time.time() * 1000)}
        if changed:
            fields = [*message.properties, *[None] * (len(s.PROPERTY_NAMES) - len(message.properties))]
            for at, value in changed.items():
                fields[at] = value
            raw[s.PROPERTIES] = s.encode_section(s.PROPERTIES, fields)
        if self._application:
            raw[s.APPLICATION_PROPERTIES] = s.encode_section(
                s.APPLICATION_PROPERTIES, message.application_properties | self._application
            )
        kept = (s.HEADER, s.ANNOTATIONS, s.PROPERTIES, s.APPLICATION_PROPERTIES)
        return b"".join([*(raw.get(code, b"") for code in kept), message.body, raw.get(s.FOOTER, b"")])


def _place(name: str) -> int:
    return s.PROPERTY_NAMES.index(name.replace("_", "-"))


def _property(name: str, value: str) -> Any:
    if name == "user_id":
        return value.encode()
    return Symbol(value) if name in ("content_type", "content_encoding") else value
