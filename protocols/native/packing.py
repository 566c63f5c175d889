"""Compression of batches on the wire, for both sides: raw size u32, big-endian | one zstd frame.

What the log keeps it compresses for itself (docs/adr/0010-compression.md): this saves network, not disk.
"""

from __future__ import annotations

import struct
import sys
from functools import cache
from typing import Any, Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["pack", "unpack"]

_SIZE: Final = struct.Struct(">I")
_LEVEL: Final = 1
_WINDOW_LOG_MAX: Final = 24
"""Of frames that are taken: who decodes needs so much memory, here 16 MiB."""


def pack(data: bytes) -> bytes:
    """Compress."""
    return _SIZE.pack(len(data)) + zstd.compress(data, _LEVEL)


@cache
def _options() -> dict[Any, int]:
    return {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}


def unpack(packed: bytes, most: int) -> bytes:
    """What was packed, of at most `most` bytes. Raises ValueError: it is larger, or not what `pack` makes."""
    if len(packed) < _SIZE.size:
        raise ValueError("compressed data that is cut short")
    (size,) = _SIZE.unpack_from(packed)
    if size > most:
        raise ValueError(f"compressed data of {size} bytes; at most {most} are taken")
    decoder = zstd.ZstdDecompressor(options=_options())
    try:
        # One byte more than there may be, so that more is noticed without being made.
        data: bytes = decoder.decompress(packed[_SIZE.size :], max_length=size + 1)
    except zstd.ZstdError as error:
        raise ValueError(f"no zstd frame: {error}") from error
    if len(data) != size or not decoder.eof or decoder.unused_data:
        raise ValueError(f"compressed data that is not the {size} bytes it says")
    return data
