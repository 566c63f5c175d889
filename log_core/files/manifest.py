"""MANIFEST and CLEAN: the two small files that say where the log begins and ends.

MANIFEST payload: | first live segment u64 | checkpoints u32 | last segment u32 |
                  | LSN u64 of each checkpoint, newest first | last end u64 |
          flag 1 of its head: it names the segments; older versions have 0 for the last one
          flag 2: it has the last end
A segment is named before anything in it may be confirmed, and no longer named before its file is removed.
CLEAN payload:    | end of the last segment u64 |   its head: number = last segment, base_lsn = last LSN
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.errors import Damage
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import CLEAN, MANIFEST, Head, read_sealed, write_sealed

__all__ = ["CleanMark", "Manifest"]

_FIXED: Final = struct.Struct("<QII")
_END: Final = struct.Struct("<Q")
_NAMES_SEGMENTS: Final = 1
_HAS_END: Final = 2


@dataclass(slots=True)
class Manifest:
    """The contents of MANIFEST. The threads of a log use its methods `name_...`, which raise OSError."""

    log_id: bytes
    epoch: int
    """Raised durably by each start."""
    first_segment: int
    """Files with a lower number are leftovers of a deletion."""
    checkpoints: list[int]
    """LSNs, newest first; at most two, so that one may be lost."""
    last_segment: int = 0
    """The newest segment whose file must be there, if only prepared; 0 = none."""
    last_end: int = 0
    """Bytes in use of the last segment as of a start or a stop, which may cut it there; 0 = unknown."""
    names_segments: bool = True
    """False: an older version wrote it, whose `first_segment` may be lower than any file."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def write(self, files: Files, path: Path) -> None:
        """Replace the file."""
        payload = _FIXED.pack(self.first_segment, len(self.checkpoints), self.last_segment)
        payload += struct.pack(f"<{len(self.checkpoints)}Q", *self.checkpoints) + _END.pack(self.last_end)
        head = Head(kind=MANIFEST, log_id=self.log_id, epoch=self.epoch, flags=_NAMES_SEGMENTS | _HAS_END)
        write_sealed(files, path, head, payload, "manifest")

    def name_last(self, files: Files, path: Path, number: int, end: int = 0) -> None:
        """The newest segment is another one, or has this `last_end`."""
        self._change(files, path, last_segment=number, last_end=end)

    def name_first(self, files: Files, path: Path, number: int) -> None:
        """The oldest segment is another one."""
        self._change(files, path, first_segment=number)

    def name_checkpoints(self, files: Files, path: Path, lsns: list[int]) -> None:
        """There are other checkpoints, newest first."""
        self._change(files, path, checkpoints=lsns)

    def _change(self, files: Files, path: Path, **fields: Any) -> None:
        with self._lock:
            replace(self, **fields).write(files, path)
            for name, value in fields.items():
                setattr(self, name, value)

    def absent(self, numbers: Sequence[int]) -> list[int]:
        """The segments that must be there and are not among `numbers`, which are in order."""
        live = [number for number in numbers if number >= self.first_segment]
        first = self.first_segment if self.names_segments else min(live, default=self.last_segment + 1)
        return sorted({*range(first, max([self.last_segment, *live[-1:]]) + 1)} - {*live})

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Raises FileNotFoundError, Damage, StartError (version)."""
        head, payload = read_sealed(path, MANIFEST)
        if len(payload) < _FIXED.size:
            raise Damage(path, 0, "a manifest too short")
        first, count, last = _FIXED.unpack_from(payload)
        end_at = _FIXED.size + 8 * count
        has_end = bool(head.flags & _HAS_END)
        if len(payload) != end_at + has_end * _END.size:
            raise Damage(path, 0, f"a manifest of {len(payload)} bytes for {count} checkpoints")
        lsns = struct.unpack_from(f"<{count}Q", payload, _FIXED.size)
        end = _END.unpack_from(payload, end_at)[0] if has_end else 0
        return cls(head.log_id, head.epoch, first, list(lsns), last, end, bool(head.flags & _NAMES_SEGMENTS))


@dataclass(frozen=True, slots=True)
class CleanMark:
    """The contents of CLEAN."""

    log_id: bytes
    epoch: int
    segment: int
    """Number of the last segment; 0 = there is none."""
    lsn: int
    """The last LSN, synced and in the newest checkpoint."""
    end: int
    """Bytes of the last segment in use."""

    def write(self, files: Files, path: Path) -> None:
        """Replace the file: the last thing a stop does."""
        head = Head(kind=CLEAN, log_id=self.log_id, epoch=self.epoch, number=self.segment, base_lsn=self.lsn)
        write_sealed(files, path, head, self.end.to_bytes(8, "little"), "clean")

    @classmethod
    def read(cls, path: Path) -> CleanMark:
        """Raises FileNotFoundError, Damage, StartError (version)."""
        head, payload = read_sealed(path, CLEAN)
        return cls(head.log_id, head.epoch, head.number, head.base_lsn, int.from_bytes(payload, "little"))
