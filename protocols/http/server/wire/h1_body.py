"""Finds the end of an HTTP/1.1 request's body: by its length, or chunk by chunk. Pure.

    chunked = *( size in hex [; extension] CRLF, that many bytes, CRLF ) 0 CRLF *( trailer CRLF ) CRLF

Extensions and trailers are dropped, and refused above 4 KiB.

Source: RFC 9112, sections 6 and 7.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["BadFraming", "Framing"]

_LINE_MAX: Final = 4096
"""Of a chunk's size line, and of all trailers together."""


class BadFraming(Exception):
    """Where the next request begins is not known any more."""


class _Line(Enum):
    SIZE = "the size of a chunk"
    END = "the end of a chunk"
    TRAILER = "a trailer, or the end"


class Framing:
    """One body."""

    def __init__(self, size: int, *, chunked: bool) -> None:
        """`size` bytes; 0 when it is `chunked`."""
        self._chunked = chunked
        self._next = _Line.SIZE
        self._trailers = 0
        self.left = size
        """Bytes of the body, or of the chunk, still to come."""
        self.ended = size == 0 and not chunked

    @property
    def known(self) -> bool:
        """Whether `left` is all there is still to come."""
        return not self._chunked

    def take(self, buffer: bytearray, at: int, size: int) -> tuple[int, int]:
        """Look at buffer[at:size], which is not empty.

        Returns:
            How many bytes of it are done with, 0 when a line is not complete; how many of these, from `at`
            on, are of the body.

        Raises:
            BadFraming: it cannot be told where the body ends.

        """
        if self._chunked and not self.left:
            return self._line(buffer, at, size), 0
        n = min(self.left, size - at)
        self.left -= n
        if not self.left:
            self._next = _Line.END
            self.ended = not self._chunked
        return n, n

    def _line(self, buffer: bytearray, at: int, size: int) -> int:
        end = buffer.find(b"\r\n", at, size)
        if end < 0:
            if size - at > _LINE_MAX:
                raise BadFraming("a chunk's size line is too long")
            return 0
        line = bytes(memoryview(buffer)[at:end])
        used = end + 2 - at
        if self._next is _Line.TRAILER:
            self._trailers += used
            if self._trailers > _LINE_MAX:
                raise BadFraming(f"trailers of more than {_LINE_MAX} bytes")
            self.ended = not line
        elif self._next is _Line.END:
            if line:
                raise BadFraming("a chunk longer than it said")
            self._next = _Line.SIZE
        else:
            digits = line.partition(b";")[0].rstrip(b" \t")
            wrong = digits.strip(b"0123456789abcdefABCDEF")
            if not digits or len(digits) > 12 or len(line) > _LINE_MAX or wrong:
                raise BadFraming("a chunk size that is no number")
            self.left = int(digits, 16)
            if not self.left:
                self._next = _Line.TRAILER
        return used
