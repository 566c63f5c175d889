"""The portable file of `penstock log export` and `import`: lines of JSON in gzip, readable without penstock.

    {"penstock_export": 1, "log_id": ..., "epoch": ..., "end": POSITION}   what it is of
    {"table": NAME, "key": BASE64, "value": BASE64}                        each row of each table, as of `end`
    {"position": ..., "time_ms": ..., "feeds": [...], "flags": ..., ...}   each record up to `end`, ascending
    {"end": true, "records": COUNT, "rows": COUNT}                         nothing is missing

`key`, `properties` and `body` of a record are base64 of what the log has; docs/reference/format.md describes
them. The lines are in gzip members of about 1 MiB, each complete by itself: `zcat FILE` gives them all, and
a file that was cut off is good up to its last whole member. So a writer that was interrupted goes on there.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import orjson

from penstock.errors import StartError
from penstock.log_tools.rendering import json_line

__all__ = ["VERSION", "Writer", "bytes_of", "members", "text_of"]

VERSION: Final = 1
_MEMBER: Final = 1024 * 1024
_GZIP: Final = 31
_READ: Final = 1024 * 1024
_LEVEL: Final = 1  # bodies are mostly compressed already, or small


def text_of(data: bytes) -> str:
    """Bytes as they stand in a line."""
    return base64.b64encode(data).decode("ascii")


def bytes_of(text: str) -> bytes:
    """`text_of` undone. Raises ValueError."""
    return base64.b64decode(text, validate=True)


class Writer:
    """Writes lines in members; what is not in a whole member yet is written by `close`."""

    def __init__(self, file: BinaryIO) -> None:
        """`file` stands where the next member belongs."""
        self._file = file
        self._lines: list[bytes] = []
        self._size = 0

    def write(self, line: dict[str, Any]) -> None:
        """Write one line."""
        raw = json_line(line)
        self._lines.append(raw)
        self._size += len(raw)
        if self._size >= _MEMBER:
            self.end_member()

    def end_member(self) -> None:
        """Have all lines so far in whole members, in the file."""
        if self._lines:
            packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
            self._file.write(packer.compress(b"".join(self._lines)) + packer.flush())
            self._file.flush()
            self._lines.clear()
            self._size = 0


def members(file: BinaryIO, name: object) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The whole members from the file's place on: where each ends in the file, and its lines.

    A record that is cut off at the end is left out. Raises StartError: a member is damaged, or this is no
    such file.
    """
    place = file.tell()
    raw = b""
    while True:
        unpacker = zlib.decompressobj(_GZIP)
        parts: list[bytes] = []
        while not unpacker.eof:
            if not raw:
                raw = file.read(_READ)
                if not raw:
                    return
            try:
                parts.append(unpacker.decompress(raw))
            except zlib.error as error:
                raise StartError(
                    f"{name} is damaged behind byte {place}: {error}", remedy="make the export again"
                ) from None
            place += len(raw) - len(unpacker.unused_data)
            raw = unpacker.unused_data
        try:
            yield place, [orjson.loads(line) for line in b"".join(parts).splitlines()]
        except orjson.JSONDecodeError as error:
            raise StartError(f"{name} is no export of penstock: {error}") from None
