"""The demands of a search beside time and place: headers, ids, text in the body.

A search asks the log for byte strings (`clauses`), and looks at what it finds once more (`is_met`).
"""

from __future__ import annotations

import struct
from typing import Any, Final

import orjson

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.messages import HttpError, dumps
from penstock.protocols.http.shared.fields import check_fields

__all__ = ["IDS", "Query"]

IDS: Final = ("message_id", "correlation_id")
_NAME_MAX: Final = 255
_VALUE_MAX: Final = 65535
_USER_PROPERTY: Final = 0x26
"""MQTT 5.0 section 2.2.2.2."""


@dataclass(frozen=True, slots=True)
class Query:
    """See the module."""

    headers: dict[str, str | None]
    """Text that a header must have; None: whichever."""
    ids: dict[str, str]
    contains: bytes

    @classmethod
    def read(cls, body: dict[str, Any]) -> Query:
        """Raises HttpError 400."""
        headers, contains = body.get("headers", {}), body.get("body", {})
        if not isinstance(headers, dict):
            raise HttpError(400, "bad_field", "headers: an object of names with their values, null: any")
        texts = {}
        for name, value in headers.items():
            if not 0 < len(name.encode()) <= _NAME_MAX or isinstance(value, dict | list):
                raise HttpError(
                    400, "bad_field", f"headers: {name[:50]}: text, a number, true, false or null"
                )
            texts[name] = None if value is None else _text_of(value)
        if not isinstance(contains, dict) or not isinstance(contains.get("contains", ""), str):
            raise HttpError(400, "bad_field", 'body: {"contains": TEXT}')
        check_fields(contains, ("contains",))
        ids: dict[str, Any] = {name: body[name] for name in IDS if name in body}
        for name, value in ids.items():
            if not isinstance(value, str) or not 0 < len(value.encode()) <= _NAME_MAX:
                raise HttpError(400, "bad_field", f"{name}: text of at most {_NAME_MAX} bytes")
        return cls(texts, ids, contains.get("contains", "").encode())

    @property
    def is_exact(self) -> bool:
        """Whether a message that has its byte strings meets it."""
        return not (self.headers or self.ids)

    def clauses(self) -> list[list[bytes]]:
        """Byte strings that are in the properties block of who meets it, in one encoding or another."""
        found = [_header_bytes(name, value) for name, value in self.headers.items()]
        # MQTT has an id with two bytes of size in front, of which the second is that of AMQP.
        found += [[bytes((len(encoded),)) + encoded] for encoded in map(str.encode, self.ids.values())]
        return found

    def is_met(self, item: dict[str, Any]) -> bool:
        """Whether a message as it is shown has all of it."""
        headers = item["headers"]
        for name, wanted in self.headers.items():
            if name not in headers or (wanted is not None and wanted not in _texts_of(headers[name])):
                return False
        return all(item.get(name) == wanted for name, wanted in self.ids.items())


def _header_bytes(name: str, value: str | None) -> list[bytes]:
    key = name.encode()
    short, long = bytes((len(key),)) + key, struct.pack(">BH", _USER_PROPERTY, len(key)) + key
    if value is None:
        return [short, long]
    encoded = value.encode()
    if len(encoded) > _VALUE_MAX:
        return [short]
    as_mqtt = long + struct.pack(">H", len(encoded)) + encoded
    try:
        orjson.loads(value)
    except ValueError:
        # Or an array, in which it is somewhere.
        return [short + b"S" + struct.pack(">I", len(encoded)) + encoded, short + b"A", as_mqtt]
    return [short, as_mqtt]  # it may be a number, which AMQP has in several encodings


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else dumps(value).decode()


def _texts_of(value: object) -> list[str]:
    """The texts that a header stands for: one, or those of an array."""
    return [_text_of(one) for one in value] if isinstance(value, list) else [_text_of(value)]
