"""Bodies from and to values of the user's own types: JSON by msgspec or pydantic, whichever the user has.

async with client.producer("orders", schema=Order) as producer:      # a msgspec Struct, a pydantic model,
    await producer.send(Order("an apple"))                           # a dataclass ...
async with client.subscribe("orders", "billing", schema=Order) as billing:
    async for message in billing:
        message.value                                                # an Order; BadBody when it is none

Another encoding is an object with `content_type`, `encode` and `decode`: a `Codec`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.protocols.native.codec._records import Record
from penstock.sdk.errors import BadBody, ClientError

__all__ = ["Codec", "Schema", "body_of", "codec_of"]

T = TypeVar("T")


class Codec(Protocol[T]):
    """How values of one type are bodies."""

    @property
    def content_type(self) -> str:
        """Of messages that are sent with it; "": none."""

    def encode(self, value: T, /) -> bytes:
        """The body of a message with this value."""

    def decode(self, body: bytes, /) -> T:
        """The value of a body. `Message.value` raises what it raises."""


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

    def encode(self, value: T, /) -> bytes:
        """The body of a message with this value."""
        return self._encode(value)

    def decode(self, message: Record | bytes, /) -> T:
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


def codec_of(schema: type[T] | Codec[T] | None) -> Codec[T] | None:
    """The codec of what is given as `schema`. Raises ClientError, TypeError."""
    if schema is None:
        return None
    if isinstance(schema, type):
        return Schema(schema)
    if not (hasattr(schema, "encode") and hasattr(schema, "decode") and hasattr(schema, "content_type")):
        raise TypeError(
            f"schema is a type, or has content_type, encode and decode; {schema!r} is neither: for a type "
            "such as list[Order] write penstock.Schema(list[Order])"
        )
    return schema


def body_of(body: object) -> bytes:
    """The bytes of a body without a schema. Raises TypeError: it is neither bytes nor text."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(
        f"a body is bytes or text, not {type(body).__name__}; encode it, or give the producer a schema: "
        f"schema={type(body).__name__}"
    )


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
            return (
                _checked(kind, msgspec.json.encode),
                msgspec.json.Decoder(kind).decode,
                # Not of its own are those of text that is no UTF-8, and of JSON that is too deep.
                (msgspec.DecodeError, UnicodeDecodeError, RecursionError),
            )
    try:
        from pydantic import TypeAdapter, ValidationError
    except ImportError as error:
        raise ClientError(
            "a schema needs msgspec or pydantic", remedy="install one of them: pip install msgspec"
        ) from error
    adapter = TypeAdapter(kind)
    return _checked(kind, adapter.dump_json), adapter.validate_json, (ValidationError,)


def _checked(kind: Any, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """`encode`, for values of this type only: the libraries would encode others without a word."""
    if not isinstance(kind, type):
        return encode

    def checked(value: Any) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"the schema's values are {kind.__name__}, not {type(value).__name__}")
        return encode(value)

    return checked
