"""The frames of JSON: their fields, each with its type and bounds; see docs/reference/native.md."""

from __future__ import annotations

from typing import Any, Final

import orjson

from penstock.protocols.native.codec.errors import RequestError
from penstock.protocols.native.options import CONTROL_MAX

__all__ = ["NAMES", "Fields", "decode", "encode"]

NAMES: Final = {
    0x01: "HELLO",
    0x03: "LOGIN",
    0x05: "REQUEST",
    0x07: "PING",
    0x08: "PONG",
    0x10: "PRODUCE",
    0x11: "PRODUCE_AT",
    0x14: "TRANSACT",
    0x15: "PREPARE",
    0x20: "CREDIT",
    0x22: "ACK",
    0x23: "NACK",
    0x24: "PULL",
}
"""Kinds of frames that a client sends."""


def encode(value: dict[str, Any]) -> bytes:
    """The payload of a frame of JSON."""
    return orjson.dumps(value)


class Fields:
    """The fields of a JSON object, each asked for with its type; what is left over is a mistake."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._left = value

    def text(self, name: str, default: str | None = None, *, most: int = 255) -> str:
        """A text of at most `most` bytes. Raises RequestError, as all here."""
        value = self._left.pop(name, default)
        if not isinstance(value, str) or len(value.encode("utf-8", "surrogatepass")) > most:
            raise _bad(name, value, f"a text of at most {most} bytes")
        return value

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = 2**63 - 1) -> int:
        """A whole number in [least, most]."""
        value = self._left.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _bad(name, value, f"a whole number from {least} to {most}")
        return value

    def switch(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self._left.pop(name, default)
        if not isinstance(value, bool):
            raise _bad(name, value, "true or false")
        return value

    def any(self, name: str, default: Any = None) -> Any:
        """A frame of any kind."""
        return self._left.pop(name, default)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of `choices`."""
        value = self._left.pop(name, default)
        if value not in choices:
            raise _bad(name, value, f"one of {', '.join(choices)}")
        return str(value)

    def has(self, name: str) -> bool:
        """Whether it is there and not null."""
        return self._left.get(name) is not None

    def done(self) -> None:
        """Nothing else may be there."""
        if self._left:
            name = sorted(self._left)[0]
            raise RequestError("bad_field", f"there is no field {name[:100]!r} here", remedy="leave it out")


def _bad(name: str, value: object, wanted: str) -> RequestError:
    found = "missing" if value is None else repr(str(value)[:100])
    return RequestError("bad_field", f"the field {name!r} is {found}", remedy=f"{wanted} is wanted")


def decode(payload: bytes, most: int = CONTROL_MAX) -> Fields:
    """The fields of a frame of JSON.

    Raises:
        RequestError: it is too large, no JSON, or no object.

    """
    if len(payload) > most:
        raise RequestError(
            "too_large",
            f"a frame of JSON has at most {most} bytes, not {len(payload)}",
            remedy="ask for less at once",
        )
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise RequestError("malformed", f"not JSON: {error}", remedy="send one JSON object") from error
    if not isinstance(value, dict):
        raise RequestError("malformed", "JSON, but no object", remedy="send one JSON object")
    return Fields(value)
