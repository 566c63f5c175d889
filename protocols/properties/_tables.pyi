"""Field tables and argument lists of methods: decoded linearly, bounded in depth and count; encoded.

See `_tables.pyx` for the layouts and the field types.
"""

from penstock.errors import CodecError
from penstock.protocols.properties.values import Value

class TableError(CodecError):
    """Bytes that are no table or no argument list, or one beyond the limits."""

class Timestamp(int):
    """A T field: seconds since 1970, unsigned. An int that stays a timestamp when it is encoded again."""

class Byte(int):
    """A b field. Integers remember what they came as: errors name it, and they are encoded as it again."""

class UnsignedByte(int):
    """A B field."""

class Short(int):
    """An s field."""

class UnsignedShort(int):
    """A u field."""

class UnsignedInt(int):
    """An i field."""

class Long(int):
    """An l field, however small it is."""

class ByteArray(bytes):
    """An x field: bytes that are not text even when they look like it."""

def check_table(data: bytes) -> bool:
    """Whether `data` is exactly one well-formed table of at most 16 levels; makes no object."""

def decode_table(data: bytes, *, entries: int = 1024) -> dict[str, Value]:
    """The table that `data` is (size word included).

    Args:
        data: All bytes of the table and nothing else.
        entries: The most entries of it and of all tables and arrays in it together.

    Raises:
        TableError: malformed, cut short, deeper than 16 levels, or more than `entries`.

    """

def read_text_header(block: bytes, name: bytes) -> str | bytes | None:
    """The first header of this name that is text or bytes, as `decode_fields` has it; None: none is.

    `block`: a message's properties, AMQP's content header from the flags on. Nothing else of it is looked at.
    """

def encode_table(table: dict[str, Value]) -> bytes:
    """The bytes of `table`, size word included. Plain integers become I, or l when they need 64 bits.

    Raises:
        ValueError: a key longer than 255 bytes, nesting deeper than 16 levels, or a number that is too large.

    """

def decode_fields(spec: str, data: bytes, *, entries: int = 1024) -> tuple[Value, ...]:
    """The arguments of a method: one letter of `spec` per field (o h l L b s S t; see `_tables.pyx`).

    Short strings that are no UTF-8 come with surrogate escapes.
    Long strings (S) come as bytes. All of `data` must be used up.

    Raises:
        TableError: cut short, bytes left over, or a bad table.

    """

def encode_fields(spec: str, values: tuple[Value, ...]) -> bytes:
    """The twin of `decode_fields`."""
