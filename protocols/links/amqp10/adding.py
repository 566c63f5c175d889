"""A shovel adds to messages of AMQP 1.0; every section without an addition keeps its bytes.

Delivery annotations end at the shovel: they are for the next node only.

Source: AMQP 1.0 part 3, section 3.2; rabbit_amqp10_shovel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.protocols.amqp10.codec._simple import section_places
from penstock.protocols.amqp10.codec.values import Symbol, Timestamp
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.links.amqp.settings import Destination

__all__ = ["addition"]

_CREATED: Final = s.PROPERTY_NAMES.index("creation-time")


def addition(destination: Destination, forwarded: Mapping[str, str]) -> Callable[[bytes], bytes]:
    """The function from a message to the message as it is sent.

    Args:
        destination: Its settings say what is added.
        forwarded: Application properties that say which shovel it was.

    """
    properties = {_place(name): _property(name, value) for name, value in destination.properties.items()}
    annotations = {Symbol(name): value for name, value in destination.annotations.items()}
    application = {**destination.application_properties, **forwarded}
    adds = bool(properties or annotations or application or destination.timestamp_header)

    def add(payload: bytes) -> bytes:
        if not adds:
            places = section_places(payload)
            if places is not None and s.DELIVERY_ANNOTATIONS not in places:
                return payload
        message = s.parse_message(payload)
        raw = message.raw
        if annotations:
            raw[s.ANNOTATIONS] = s.encode_section(s.ANNOTATIONS, message.annotations | annotations)
        changed = properties
        if destination.timestamp_header:
            changed = {**properties, _CREATED: Timestamp(time.time() * 1000)}
        if changed:
            fields = [*message.properties, *[None] * (len(s.PROPERTY_NAMES) - len(message.properties))]
            for at, value in changed.items():
                fields[at] = value
            raw[s.PROPERTIES] = s.encode_section(s.PROPERTIES, fields)
        if application:
            raw[s.APPLICATION_PROPERTIES] = s.encode_section(
                s.APPLICATION_PROPERTIES, message.application_properties | application
            )
        kept = (s.HEADER, s.ANNOTATIONS, s.PROPERTIES, s.APPLICATION_PROPERTIES)
        return b"".join([*(raw.get(code, b"") for code in kept), message.body, raw.get(s.FOOTER, b"")])

    return add


def _place(name: str) -> int:
    return s.PROPERTY_NAMES.index(name.replace("_", "-"))


def _property(name: str, value: str) -> Any:
    if name == "user_id":
        return value.encode()
    return Symbol(value) if name in ("content_type", "content_encoding") else value
