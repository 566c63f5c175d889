"""Reads AMQP 1.0 values: linear in the bytes, bounded in depth and in the number of values.

Each value costs one of `values`, also one without bytes: an array of 2^32 nulls has 13 bytes and is refused.
A compound value is as long as its size says; bytes that its items leave over are an error. The classes are
those of `values`.

Source: AMQP 1.0 part 1, sections 1.2 and 1.6.
"""

from typing import Any, Final

DEPTH_MAX: Final = 16
"""Levels of lists, maps, arrays and descriptors in one another."""

VALUES_MAX: Final = 4096
"""Values that one call reads, compound ones and their items together."""

def decode(data: bytes, *, values: int = VALUES_MAX) -> Any:
    """The value that `data` is, all of it.

    Raises:
        DecodeError: no value, bytes left over, deeper than DEPTH_MAX, or more than `values`.

    """

def decode_one(data: bytes, at: int = 0, *, values: int = VALUES_MAX) -> tuple[Any, int]:
    """The value that begins at `at`, and the index behind it. Raises as `decode`."""

def decode_transfer(
    body: bytes,
) -> tuple[int, int | None, bytes | None, int | None, bool | None, bool, int] | None:
    """The first six fields of a transfer (handle, delivery-id, tag, format, settled, more), and its end.

    None: `body` is no transfer in the short form, or has more fields; `decode_one` says what it is.

    Raises:
        DecodeError: a field that is no value.

    """
