"""Bodies from and to values of the user's own types: JSON by msgspec or pydantic, whichever the user has.

orders = penstock.Schema(Order)                # a msgspec Struct, a pydantic model, a dataclass ...
await producer.send(orders.encode(order), content_type=orders.content_type)
order = orders.decode(message)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from penstock.protocols.native._records import Record
from penstock.sdk.errors import BadBody, ClientError

__all__ = ["Schema"]

T = TypeVar("T")


class Schema(Generic[T]):
    """Encodes values of one type, and decodes and checks bodies."""

    content_type: Final = "application/json"

    def __init__(self, kind: type[T]) -> None:
        """`kind`: a pydantic model, or what msgspec knows; without msgspec, what pydantic knows.

        Raises:
            ClientError: neither msgspec nor pydantic is installed.

        """
        self.kind = kind
        self._encode, self._decode, self._errors = _functions(kind)

    def encode(self, value: T) -> bytes:
        """The body of a message with this value."""
        return self._encode(value)

    def decode(self, message: Record | bytes) -> T:
        """The value of a message or a body. Raises BadBody: it is none of this type."""
        body = message.body if isinstance(message, Record) else message
        try:
            found: T = self._decode(body)
        except self._errors as error:
            raise BadBody(
                f"the body is no {self.kind.__name__}: {error}",
                remedy="reject the message, or correct its sender",
            ) from error
        return found


def _functions(
    kind: Any,
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any], tuple[type[Exception], ...]]:
    """Of a type: encode, decode, and what decode raises."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not (isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)):
        try:
            import msgspec
        except ImportError:
            pass
        else:
            return msgspec.json.encode, msgspec.json.Decoder(kind).decode, (msgspec.DecodeError,)
    try:
        from pydantic import TypeAdapter, ValidationError
    except ImportError as error:
        raise ClientError(
            "a schema needs msgspec or pydantic", remedy="install one of them: pip install msgspec"
        ) from error
    adapter = TypeAdapter(kind)
    return adapter.dump_json, adapter.validate_json, (ValidationError,)
