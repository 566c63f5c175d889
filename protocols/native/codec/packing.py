"""Compression of batches on the wire, for both sides: raw size u32, big-endian | one zstd or LZ4 frame.

Which it is, its first bytes say. zstd makes less of a batch, LZ4 takes half the CPU to pack it and less to
unpack it; it is there where the package `lz4` is installed. The log compresses its own records
(docs/adr/0009-compression.md): this saves network, not disk.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from penstock.protocols.native.codec.kinds import LZ4, ZSTD

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["available", "code_of", "pack", "unpack"]

_SIZE: Final = struct.Struct(">I")
_LEVEL: Final = 1
_WINDOW_LOG_MAX: Final = 24
"""Of frames that are taken: who decodes needs so much memory, here 16 MiB."""
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_CODES: Final = {ZSTD: 1, LZ4: 2}


@cache
def _lz4() -> Any:
    """The package, or None."""
    try:
        import lz4.frame
    except ImportError:
        return None
    return lz4.frame


def available() -> tuple[str, ...]:
    """The compressions there are, by their capabilities."""
    return (ZSTD,) if _lz4() is None else (ZSTD, LZ4)


def code_of(compression: str) -> int:
    """Its number in the head of a batch."""
    return _CODES[compression]


def pack(data: bytes, compression: str = ZSTD) -> bytes:
    """Compress by one of those that are `available`."""
    packed = zstd.compress(data, _LEVEL) if compression == ZSTD else _lz4().compress(data)
    return _SIZE.pack(len(data)) + packed


@cache
def _options() -> dict[Any, int]:
    return {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}


def unpack(packed: bytes, most: int) -> bytes:
    """The unpacked bytes, at most `most`. Raises ValueError: it is larger, or not what `pack` makes."""
    if len(packed) < _SIZE.size:
        raise ValueError("compressed data that is cut short")
    (size,) = _SIZE.unpack_from(packed)
    if size > most:
        raise ValueError(f"compressed data of {size} bytes; at most {most} are taken")
    frame = packed[_SIZE.size :]
    decode = _from_lz4 if frame.startswith(_LZ4_MAGIC) else _from_zstd
    # One byte more than there may be, so that more is noticed without being made.
    data, whole = decode(frame, size + 1)
    if len(data) != size or not whole:
        raise ValueError(f"compressed data that is not the {size} bytes it says")
    return data


_Decode = Callable[[bytes, int], tuple[bytes, bool]]
"""(data of at most so many bytes, whether that was one whole frame and no more). Raises ValueError."""


def _from_zstd(frame: bytes, most: int) -> tuple[bytes, bool]:
    decoder = zstd.ZstdDecompressor(options=_options())
    try:
        data: bytes = decoder.decompress(frame, max_length=most)
    except zstd.ZstdError as error:
        raise ValueError(f"no zstd frame: {error}") from error
    return data, decoder.eof and not decoder.unused_data


def _from_lz4(frame: bytes, most: int) -> tuple[bytes, bool]:
    if _lz4() is None:
        raise ValueError("an LZ4 frame, but the gateway does not have the package lz4")
    decoder = _lz4().LZ4FrameDecompressor()
    try:
        data: bytes = decoder.decompress(frame, max_length=most)
    except RuntimeError as error:
        raise ValueError(f"no LZ4 frame: {error}") from error
    return data, decoder.eof and not decoder.unused_data
