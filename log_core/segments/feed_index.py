"""The feed index of a closed segment: for each feed, which of the segment's records are in it.

    index/NNNNNNNNNN.fdx payload, little-endian:
    | rows u32 | CRC-32C of the directory u32 | 0 u64 | directory 32 * rows | entries u32[] |
    a row: | feed u32 | first entry u32 | entries u32 | persistent entries u32 | first persistent record u32 |
           | last persistent record u32 | CRC-32C of the entries u32 | bytes u32 |   sorted by feed
    bytes: of the records, for feeds that keep everything (at most 2^32 - 1); else 0
    an entry: record number in the segment (LSN - base LSN); high bit: the record is not persistent

A restart reads directories only; the entries of one feed are read when somebody needs them.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from penstock.log_core.batch._crc import crc32c
from penstock.log_core.batch._scan import encode_feeds
from penstock.log_core.errors import Damage
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import FEED_INDEX, HEAD_BYTES, Folder, Head, write_sealed
from penstock.log_core.segments.segment import Segment

__all__ = ["ROW_BYTES", "kept_bytes", "read_directory", "read_entries", "verify_entries", "write_feed_index"]

_FIXED: Final = struct.Struct("<IIQ")
_ROW: Final = struct.Struct("<8I")
ROW_BYTES: Final = _ROW.size


def write_feed_index(files: Files, folder: Folder, segment: Segment, log_id: bytes) -> int:
    """Make the .fdx file from the feeds' chunks in memory; the bytes of entries."""
    body, rows, segment.kept_bytes = encode_feeds(segment.feeds, segment.base_lsn)
    directory = rows * ROW_BYTES
    payload = _FIXED.pack(rows, crc32c(memoryview(body)[:directory]), 0) + body
    head = Head(
        kind=FEED_INDEX, log_id=log_id, epoch=segment.epoch, number=segment.number, base_lsn=segment.base_lsn
    )
    write_sealed(files, folder.feed_index(segment.number), head, payload, "fdx")
    return len(body) - directory


def _read_fixed(fd: int, path: Path, base_lsn: int) -> int:
    """Check head and sizes; the number of rows."""
    raw = os.pread(fd, HEAD_BYTES + _FIXED.size, 0)
    head = Head.decode(raw[:HEAD_BYTES], path, FEED_INDEX)
    if len(raw) < HEAD_BYTES + _FIXED.size or os.fstat(fd).st_size != HEAD_BYTES + head.payload_len:
        raise Damage(path, HEAD_BYTES, "a feed index of another length")
    rows: int
    rows, _, zero = _FIXED.unpack_from(raw, HEAD_BYTES)
    needed = _FIXED.size + rows * ROW_BYTES
    # Without rows there are no entries: a payload of zeros, which has the right CRC of no row, is none.
    fits = needed < head.payload_len if rows else needed == head.payload_len
    if zero or not fits or head.base_lsn != base_lsn:
        raise Damage(path, HEAD_BYTES, "not the feed index of its segment")
    return rows


def read_directory(path: Path, base_lsn: int) -> bytes:
    """The directory, checked. Raises OSError, Damage, StartError (version)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        rows = _read_fixed(fd, path, base_lsn)
        stored = _FIXED.unpack(os.pread(fd, _FIXED.size, HEAD_BYTES))[1]
        directory = os.pread(fd, rows * ROW_BYTES, HEAD_BYTES + _FIXED.size)
    finally:
        os.close(fd)
    found = crc32c(directory)
    if found != stored:
        raise Damage(path, HEAD_BYTES + _FIXED.size, "directory CRC", stored, found)
    return directory


def kept_bytes(directory: bytes, segment: Segment) -> dict[int, int]:
    """Bytes, by the directory, of those of the segment's feeds that keep everything."""
    keeping = {feed.id for feed in segment.feeds if feed.keeps}
    if not keeping:
        return {}
    return {row[0]: row[7] for row in _ROW.iter_unpack(directory) if row[0] in keeping}


def read_entries(path: Path, base_lsn: int, feed_id: int) -> bytes:
    """The entries of one feed, checked; empty when it has none. Raises as `read_directory`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        rows = _read_fixed(fd, path, base_lsn)
        directory = HEAD_BYTES + _FIXED.size
        low, high = 0, rows
        while low < high:
            middle = (low + high) // 2
            row = _ROW.unpack(os.pread(fd, ROW_BYTES, directory + middle * ROW_BYTES))
            if row[0] == feed_id:
                start = directory + rows * ROW_BYTES + 4 * row[1]
                entries = os.pread(fd, 4 * row[2], start)
                found = crc32c(entries)
                if len(entries) != 4 * row[2] or found != row[6]:
                    raise Damage(path, start, f"CRC of the entries of feed {feed_id}", row[6], found)
                return entries
            if row[0] < feed_id:
                low = middle + 1
            else:
                high = middle
        return b""
    finally:
        os.close(fd)


def verify_entries(path: Path, rows: int) -> None:
    """Check the entries of all feeds. Raises OSError, Damage."""
    with path.open("rb") as file:
        file.seek(HEAD_BYTES + _FIXED.size)
        directory = file.read(rows * ROW_BYTES)
        start = HEAD_BYTES + _FIXED.size + rows * ROW_BYTES
        end = start
        for feed, first, count, _, _, _, stored, _ in _ROW.iter_unpack(directory):
            file.seek(start + 4 * first)
            entries = file.read(4 * count)
            found = crc32c(entries)
            end = max(end, start + 4 * (first + count))
            if len(entries) != 4 * count or found != stored:
                raise Damage(path, start + 4 * first, f"CRC of the entries of feed {feed}", stored, found)
        file.seek(end)
        if file.read(1):
            raise Damage(path, end, "something behind the last entry")
