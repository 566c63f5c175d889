"""One entry of the journal: its header, the name of the file that it changes, and the bytes.

    0 magic u16  2 version u8  3 kind u8  4 crc u32  8 claim u64  16 index u64
    24 offset u64  32 total u64  40 length of the name u16, the name (ASCII), the payload

Little-endian. The CRC-32C is of everything but itself. Later versions keep the first 8 bytes as they are.
Names are relative to the data folder. Kinds:

    CLAIM    the node of the payload (JSON) owns the journal from here on; claim and index are 0
    WRITE    the payload lies at `offset` of the file
    FILE     a part of a whole new file of `total` bytes; it replaces the file when its last part is there
    SIZE     the file is `total` bytes long, and is made if it is missing; new bytes are zeros
    DROP     the file is removed
    BEAT     the owner lives; the payload says who it is, as that of its CLAIM, and names the next owner
    RELEASE  the owner of `claim` serves no more: another node may claim at once. A hint, without an index
    ASK      a request while `claim` owns the log, in JSON: an administrator's {"ask": "handover", "to": NODE
             or ""} or {"ask": "rebuild", "to": NODE}; a standby's {"ask": "alive"} of an owner that it
             suspects: it reads what lies before it. A hint, too
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from functools import lru_cache
from typing import Final

from penstock.errors import LogError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._crc import crc32c

__all__ = ["PAYLOAD_MAX", "VERSION", "Entry", "EntryDamaged", "EntryNewer", "Kind", "decode", "encode"]

VERSION: Final = 1
PAYLOAD_MAX: Final = 900 * 1024
"""Bytes of one payload: an entry fits into Kafka's default `max.message.bytes` of 1 MiB."""

_MAGIC: Final = 0x5053
_HEADER: Final = struct.Struct("<HBBIQQQQH")
_CRC_AT: Final = 4
_CRC_END: Final = 8
_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*\Z")
_NAME_MAX: Final = 255


class EntryDamaged(LogError):
    """The bytes of an entry are not what an owner appended."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"an entry of the journal is damaged: {reason}",
            remedy="nobody but penstock's nodes may write to the topic; rebuild from a node that is well",
        )


class EntryNewer(LogError):
    """A node with a newer penstock wrote it. An older one may not follow it, nor claim behind it."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the owner of the log writes entries of version {version}, and this penstock knows {VERSION}",
            remedy="upgrade this node: install the owner's version of penstock",
        )


class Kind(IntEnum):
    """The change that an entry describes; see the module."""

    CLAIM = 1
    WRITE = 2
    FILE = 3
    SIZE = 4
    DROP = 5
    BEAT = 6
    RELEASE = 7
    ASK = 8


_KINDS: Final = {int(kind): kind for kind in Kind}
_NAMED: Final = frozenset({Kind.WRITE, Kind.FILE, Kind.SIZE, Kind.DROP})


@dataclass(slots=True)
class Entry:
    """One entry. Nobody changes it; a frozen class takes three times as long to make."""

    kind: Kind
    claim: int = 0
    """Offset of the CLAIM of the owner that appended it."""
    index: int = 0
    """Entries of one owner are counted from 1, without gaps."""
    name: str = ""
    offset: int = 0
    total: int = 0
    payload: bytes | memoryview = b""
    """A view of what `decode` was given."""


def encode(
    kind: Kind,
    claim: int,
    index: int,
    *,
    name: str = "",
    offset: int = 0,
    total: int = 0,
    payload: bytes | memoryview = b"",
) -> bytes:
    """The bytes of an entry; `payload` has at most PAYLOAD_MAX bytes and is copied."""
    named = name.encode("ascii")
    header = _HEADER.pack(_MAGIC, VERSION, kind, 0, claim, index, offset, total, len(named))
    crc = crc32c(payload, crc32c(named, crc32c(header[_CRC_END:], crc32c(header[:_CRC_AT]))))
    return b"".join((header[:_CRC_AT], crc.to_bytes(4, "little"), header[_CRC_END:], named, payload))


@lru_cache(maxsize=16)
def _name(raw: bytes) -> str:
    """The name of a file; empty: of none. Raises EntryDamaged."""
    name = raw.decode("latin-1")
    if name and (len(name) > _NAME_MAX or not _NAME.match(name)):
        raise EntryDamaged(f"{name!r} is no name of a file")
    return name


def decode(raw: bytes) -> Entry:
    """An entry from its bytes, of this version or an earlier one. Raises EntryDamaged, EntryNewer."""
    if len(raw) < _HEADER.size:
        raise EntryDamaged(f"{len(raw)} bytes are too few")
    magic, version, kind, crc, claim, index, offset, total, length = _HEADER.unpack_from(raw)
    if magic != _MAGIC:
        raise EntryDamaged("it has another magic number")
    view = memoryview(raw)
    if crc32c(view[_CRC_END:], crc32c(view[:_CRC_AT])) != crc:
        raise EntryDamaged("its CRC is wrong")
    if version > VERSION:
        raise EntryNewer(version)
    begin = _HEADER.size + length
    it = _KINDS.get(kind)
    if it is None:
        raise EntryDamaged(f"its kind {kind} is unknown")
    name = _name(raw[_HEADER.size : begin])
    if bool(name) != (it in _NAMED):
        raise EntryDamaged(f"{name!r} is no name of a file for kind {it.name}")
    return Entry(it, claim, index, name, offset, total, view[begin:])
