"""A message as filters look at it: a section is decoded when one asks for it, and the body never."""

from __future__ import annotations

from typing import Any

from penstock.protocols.amqp10.codec._decoding import decode_one
from penstock.protocols.amqp10.codec._simple import section_places
from penstock.protocols.amqp10.codec.errors import Amqp10Error
from penstock.protocols.amqp10.messages import sections as s

__all__ = ["View"]


class View:
    """See the module. The fields have the names of those of `sections.Message`."""

    __slots__ = ("_found", "_payload", "_places")

    def __init__(self, payload: bytes) -> None:
        """Of the payload that a link is about to send."""
        self._payload = payload
        self._found: dict[int, Any] = {}
        places = section_places(payload)
        if places is None:
            places = {}
            self._found = _whole(payload)
        self._places = places

    @property
    def header(self) -> list[Any]:
        """The fields of the header."""
        found: list[Any] = self._section(s.HEADER, [])
        return found

    @property
    def annotations(self) -> dict[Any, Any]:
        """The message annotations."""
        found: dict[Any, Any] = self._section(s.ANNOTATIONS, {})
        return found

    @property
    def properties(self) -> list[Any]:
        """The fields of the properties section."""
        found: list[Any] = self._section(s.PROPERTIES, [])
        return found

    @property
    def application_properties(self) -> dict[Any, Any]:
        """The application properties."""
        found: dict[Any, Any] = self._section(s.APPLICATION_PROPERTIES, {})
        return found

    def _section(self, code: int, default: Any) -> Any:
        found = self._found.get(code)
        if found is None:
            at = self._places.get(code)
            found = default if at is None else decode_one(self._payload, at)[0]
            self._found[code] = found
        return found


def _whole(payload: bytes) -> dict[int, Any]:
    """The sections of a message whose descriptors are written in an unusual way."""
    try:
        message = s.parse_message(payload)
    except Amqp10Error:
        return {}
    return {
        s.HEADER: message.header,
        s.ANNOTATIONS: message.annotations,
        s.PROPERTIES: message.properties,
        s.APPLICATION_PROPERTIES: message.application_properties,
    }
