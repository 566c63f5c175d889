"""The data folder: names of files, and the head that each file begins with.

    LOCK                      flock + pid of the process that has the folder
    CLEAN                     present after a clean stop: the last LSN
    shard-000/MANIFEST        epoch, first and last segment, checkpoints
             /wal/NNNNNNNNNN.wal      segments, numbered without gaps, or links to them (`segment_folders`)
             /index/NNNNNNNNNN.fdx    feed index of a closed segment
                   /NNNNNNNNNN.tix    its sparse index by LSN and time
             /ckpt/LSN.ckpt           the tables as of LSN (16 hexadecimal digits)
             /history/FEED.his        a feed of the past (8 hexadecimal digits)
             /quarantine/             copies of damaged files

Every file but LOCK begins with a head of 88 bytes, little-endian, filled up to 96; in a WAL file to 4,096.

    0 magic "PENSTOCK"  8 version u16  10 kind u16  12 flags u32  16 log id 16  32 shard u32  36 epoch u32
    40 number u64  48 base_lsn u64  56 prev_lsn u64  64 created_ms i64  72 payload_len u64
    80 payload_crc u32  84 head_crc u32 (CRC-32C of bytes 0..84)

A segment is named by its number, not by its first LSN: it is made before that is known.
"""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._crc import crc32c
from penstock.log_core.errors import Damage, version_unknown
from penstock.log_core.files.files import Files

__all__ = [
    "CHECKPOINT",
    "CLEAN",
    "FEED_INDEX",
    "HEAD_BYTES",
    "HISTORY",
    "MANIFEST",
    "OLDEST_VERSION",
    "SALVAGED",
    "SEALED",
    "TIME_INDEX",
    "VERSION",
    "WAL",
    "WAL_HEAD_BYTES",
    "Folder",
    "Head",
    "read_sealed",
    "write_sealed",
]

VERSION: Final = 3
"""Of what is written. Version 1 had no blocks (`_blocks`), version 2 no partitions in a sparse index; both
are read, too."""
OLDEST_VERSION: Final = 1
WAL: Final = 1
CHECKPOINT: Final = 2
FEED_INDEX: Final = 3
TIME_INDEX: Final = 4
MANIFEST: Final = 5
CLEAN: Final = 6
HISTORY: Final = 7

SALVAGED: Final = 1
"""Flag of a WAL file: damaged batches were taken out, so LSNs are missing."""
SEALED: Final = 2
"""Flag of a WAL file: it was rewritten, and holds only what was still needed; so LSNs are missing."""

WAL_HEAD_BYTES: Final = 4096
HEAD_BYTES: Final = 96

_MAGIC: Final = b"PENSTOCK"
_HEAD: Final = struct.Struct("<8sHHI16sIIQQQqQII")
_CRC_AT: Final = 84
assert _HEAD.size == _CRC_AT + 4 <= HEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of one file; fields that a kind of file does not use are 0."""

    kind: int
    log_id: bytes
    epoch: int
    number: int = 0
    base_lsn: int = 0
    prev_lsn: int = 0
    """The last LSN before this file."""
    created_ms: int = 0
    flags: int = 0
    payload_len: int = 0
    payload_crc: int = 0

    def encode(self, size: int) -> bytes:
        """The head, filled up with zeros to `size` bytes."""
        raw = _HEAD.pack(
            _MAGIC,
            VERSION,
            self.kind,
            self.flags,
            self.log_id,
            0,
            self.epoch,
            self.number,
            self.base_lsn,
            self.prev_lsn,
            self.created_ms,
            self.payload_len,
            self.payload_crc,
            0,
        )[:_CRC_AT]
        return (raw + crc32c(raw).to_bytes(4, "little")).ljust(size, b"\0")

    @classmethod
    def decode(cls, raw: bytes, path: Path, kind: int) -> Self:
        """Take a head with its filling apart. Raises Damage, or StartError for another version."""
        if len(raw) < _HEAD.size:
            raise Damage(path, 0, f"the file ends in its head, after {len(raw)} bytes")
        if not raw.startswith(_MAGIC):
            raise Damage(path, 0, "no file of a penstock log")
        fields = _HEAD.unpack_from(raw)
        _, version, found_kind, flags, log_id, _, epoch, number, base, prev, created, length, crc, stored = (
            fields
        )
        found = crc32c(raw[:_CRC_AT])
        if found != stored:
            raise Damage(path, _CRC_AT, "head CRC", stored, found)
        if not OLDEST_VERSION <= version <= VERSION:
            raise version_unknown(path, version, OLDEST_VERSION, VERSION)
        if any(raw[_HEAD.size :]):
            raise Damage(path, _HEAD.size, "the rest of the head is not zero")
        if found_kind != kind:
            raise Damage(path, 10, f"a file of kind {found_kind} where kind {kind} belongs")
        return cls(
            kind=kind,
            log_id=log_id,
            epoch=epoch,
            number=number,
            base_lsn=base,
            prev_lsn=prev,
            created_ms=created,
            flags=flags,
            payload_len=length,
            payload_crc=crc,
        )


def write_sealed(files: Files, path: Path, head: Head, payload: bytes, step: str) -> None:
    """Replace the file at `path`, durably and at once: a new file, synced, renamed, its folder synced.

    `step` names the failpoints: STEP.written, STEP.synced, STEP.renamed, STEP.done.
    """
    head = replace(head, payload_len=len(payload), payload_crc=crc32c(payload))
    new = path.with_name(path.name + ".new")
    fd = files.create(new)
    try:
        files.write_all(fd, head.encode(HEAD_BYTES) + payload, 0)
        files.reached(f"{step}.written")
        files.fsync(fd)
    finally:
        os.close(fd)
    files.reached(f"{step}.synced")
    files.rename(new, path)
    files.reached(f"{step}.renamed")
    files.sync_folder(path.parent)
    files.reached(f"{step}.done")


def read_sealed(path: Path, kind: int) -> tuple[Head, bytes]:
    """Read a file made by `write_sealed` whole. Raises Damage, FileNotFoundError, StartError (version)."""
    raw = path.read_bytes()
    head = Head.decode(raw[:HEAD_BYTES], path, kind)
    payload = raw[HEAD_BYTES:]
    if len(payload) != head.payload_len:
        raise Damage(path, HEAD_BYTES, f"{len(payload)} bytes behind the head, not {head.payload_len}")
    found = crc32c(payload)
    if found != head.payload_crc:
        raise Damage(path, HEAD_BYTES, "payload CRC", head.payload_crc, found)
    return head, payload


class Folder:
    """The paths in one data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir
        self.lock = data_dir / "LOCK"
        self.clean = data_dir / "CLEAN"
        shard = data_dir / "shard-000"
        self.shard = shard
        self.manifest = shard / "MANIFEST"
        self.wal = shard / "wal"
        self.index = shard / "index"
        self.checkpoints = shard / "ckpt"
        self.histories = shard / "history"
        self.quarantine = shard / "quarantine"

    def make(self) -> None:
        """Make the folders that are missing; the data folder is for its owner alone, as what is in it is."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.wal, self.index, self.checkpoints, self.histories, self.quarantine):
            folder.mkdir(parents=True, exist_ok=True)

    def segment(self, number: int) -> Path:
        """The WAL file of a number."""
        return self.wal / f"{number:010}.wal"

    def feed_index(self, number: int) -> Path:
        """The feed index of a segment."""
        return self.index / f"{number:010}.fdx"

    def time_index(self, number: int) -> Path:
        """The sparse index of a segment."""
        return self.index / f"{number:010}.tix"

    def files_of(self, number: int) -> tuple[Path, Path, Path]:
        """All files of a segment, indexes last."""
        return self.segment(number), self.feed_index(number), self.time_index(number)

    def checkpoint(self, lsn: int) -> Path:
        """The checkpoint of an LSN."""
        return self.checkpoints / f"{lsn:016x}.ckpt"

    def history(self, feed_id: int) -> Path:
        """The entries of a feed of the past."""
        return self.histories / f"{feed_id:08x}.his"

    def segment_numbers(self) -> list[int]:
        """The numbers of the WAL files that are there, ascending."""
        return sorted(int(path.stem) for path in self.wal.glob("*.wal") if path.stem.isdecimal())
