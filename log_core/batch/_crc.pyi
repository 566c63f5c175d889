"""CRC-32C of a buffer, by the processor's instruction where it has one (see crc32c.h)."""

from typing_extensions import Buffer

def crc32c(buffer: Buffer, crc: int = 0) -> int:
    """The CRC-32C (Castagnoli) of `buffer`, a contiguous buffer of bytes.

    `crc` continues an earlier one: crc32c(b, crc32c(a)) == crc32c(a + b). The result is in [0, 2**32).
    """

def crc32c_portable(buffer: Buffer, crc: int = 0) -> int:
    """The same by tables, which machines without the instruction use; for tests."""
