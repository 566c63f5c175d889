"""Checkpoints: all tables as of one LSN, in one file.

    ckpt/LSN.ckpt: a head of 96 bytes (number = the segment being written at that LSN, base_lsn = the LSN),
    then state batches numbered from 1; the last record is the trailer: table "", key "end", value = rows u64.

Written off the loop from shallow copies, a slice of rows at a time so that the loop gets its turn. It becomes
valid with its name: new file, synced, renamed, folder synced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, ItemsView, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._appender import Appender
from penstock.log_core.batch._scan import Scanner
from penstock.log_core.errors import Damage
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import CHECKPOINT, HEAD_BYTES, Folder, Head
from penstock.log_core.state.tables import join_key

__all__ = ["Checkpoint", "read_checkpoint", "write_checkpoint"]

Rows = Mapping[str, ItemsView[bytes, bytes]]

_TRAILER: Final = join_key("", b"end")
_SLICE_ROWS: Final = 256
_WRITE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a checkpoint stands in the log."""

    lsn: int
    segment: int
    """The segment that was being written: recovery reads from its beginning."""


def write_checkpoint(
    files: Files, folder: Folder, where: Checkpoint, rows: Rows, *, log_id: bytes, epoch: int
) -> None:
    """Write it durably. Raises OSError."""
    path = folder.checkpoint(where.lsn)
    new = path.with_name(path.name + ".new")
    out = Appender(lambda: 1, 1, epoch)
    files.reached("checkpoint.before")
    fd = files.create(new)
    try:
        end = HEAD_BYTES
        count = 0
        for table, content in rows.items():
            prefix = join_key(table, b"")
            items = iter(content)
            while part := list(islice(items, _SLICE_ROWS)):
                for key, value in part:
                    out.append_state(prefix + key, value)
                count += len(part)
                time.sleep(0)
                if out.appended_bytes - (end - HEAD_BYTES) > _WRITE_BYTES:
                    end = _write(files, fd, out, end)
        out.append_state(_TRAILER, count.to_bytes(8, "little"))
        end = _write(files, fd, out, end)
        head = Head(
            kind=CHECKPOINT,
            log_id=log_id,
            epoch=epoch,
            number=where.segment,
            base_lsn=where.lsn,
            payload_len=end - HEAD_BYTES,
        )
        files.write_all(fd, head.encode(HEAD_BYTES), 0)
        files.reached("checkpoint.written")
        files.fsync(fd)
    finally:
        os.close(fd)
    files.reached("checkpoint.synced")
    files.rename(new, path)
    files.reached("checkpoint.renamed")
    files.sync_folder(folder.checkpoints)
    files.reached("checkpoint.done")


def _write(files: Files, fd: int, out: Appender, end: int) -> int:
    batches = out.take_closed()
    size = sum(batch.nbytes for batch in batches)
    done = 0
    while done < size:
        done += files.write_batches(fd, batches, end + done, done)
    return end + size


def read_checkpoint(path: Path, on_row: Callable[[bytes, bytes], object]) -> Checkpoint:
    """Read one, giving `on_row` each row as (key block, value).

    Rows that were given before damage is found are the caller's to throw away. Raises Damage,
    FileNotFoundError, StartError (version).
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        scanner = Scanner()
        scanner.read(fd, size)
    finally:
        os.close(fd)
    head = Head.decode(scanner.bytes_at(0, min(scanner.size, HEAD_BYTES)), path, CHECKPOINT)
    if size != HEAD_BYTES + head.payload_len:
        raise Damage(path, 0, f"a checkpoint of {size} bytes, not {HEAD_BYTES + head.payload_len}")
    rows = 0
    trailer: int | None = None

    def on_state(block: bytes, value: bytes | None) -> None:
        nonlocal rows, trailer
        if value is None or trailer is not None:
            raise Damage(path, 0, "a checkpoint with something behind its trailer or a deletion")
        if block == _TRAILER:
            trailer = int.from_bytes(value, "little")
        else:
            rows += 1
            on_row(block, value)

    found = scanner.scan(HEAD_BYTES, 1, head.epoch, base=1, on_state=on_state, push=False)
    if found.end != size:
        raise Damage(path, found.end, found.reason or "ends early", found.crc_expected, found.crc_found)
    if trailer != rows:
        raise Damage(path, size, f"a checkpoint of {rows} rows with a trailer for {trailer}")
    return Checkpoint(head.base_lsn, head.number)
