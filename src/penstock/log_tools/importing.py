"""`penstock log import`: a data folder made of an exported file (`portable`), with the same positions.

So cursors, offsets and what producers are known by hold, and a gateway that starts on the folder goes on
where the exported one stood. The records go into segments with flag SEALED, since positions of what is not in
the file are missing in them; the rows are a checkpoint. Indexes are made by the first start, which finds the
log as after a crash. The folder is complete when it has a MANIFEST, which is written last: until then the
same command goes on behind the last segment that is there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._appender import Appender, Target
from penstock.log_core.batch._batch import LIST, UNROUTED, Batch
from penstock.log_core.errors import Damage
from penstock.log_core.feeds._feed import Feed
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import SEALED, WAL, WAL_HEAD_BYTES, Folder, Head
from penstock.log_core.files.lock import Lock
from penstock.log_core.files.manifest import Manifest
from penstock.log_core.recovery.checkpoint import Checkpoint, write_checkpoint
from penstock.log_core.recovery.salvage import note_of
from penstock.log_core.replication.position import refuse_replicated
from penstock.log_tools.portable import VERSION, bytes_of, members
from penstock.log_tools.reading import batches, segments

__all__ = ["Imported", "import_file"]

_SEGMENT: Final = 16 * 1024 * 1024
_BATCH_MOST: Final = 1024
Line = dict[str, Any]


@dataclass(slots=True)
class Imported:
    """The contents of the folder."""

    folder: str
    records: int = 0
    rows: int = 0
    end: int = 0
    resumed_at: int = 0
    """Records up to this position were in the folder already; 0: it began anew."""


def import_file(
    file: Path, data_dir: Path, progress: Callable[[int], object] = lambda nbytes: None
) -> Imported:
    """Make the folder; `progress` hears of bytes of the file done.

    Raises StartError: the folder holds a log; the file is no export, damaged, cut off or of another version.
    """
    folder = Folder(data_dir)
    if folder.manifest.exists():
        raise StartError(f"there is a log in {data_dir}", remedy="name a folder that is new or empty")
    refuse_replicated(data_dir)
    try:
        folder.make()
        lock = Lock(folder.lock)
        try:
            return _Run(file, folder, progress).run()
        finally:
            lock.release()
    except OSError as error:
        raise StartError.data_unusable(str(data_dir), error) from error


class _Run:
    def __init__(self, file: Path, folder: Folder, progress: Callable[[int], object]) -> None:
        self._file = file
        self._folder = folder
        self._progress = progress
        self._files = Files("")
        self._done = Imported(str(folder.root.absolute()))
        self._rows: dict[str, dict[bytes, bytes]] = {}
        self._log_id = secrets.token_bytes(16)
        self._epoch = 0
        self._number = 0
        self._next = 1
        """The position behind the last one in a segment."""
        self._parts: list[bytes] = []
        self._size = 0
        self._feeds: dict[int, Feed] = {}
        self._complete = False

    def run(self) -> Imported:
        self._resume()
        group: list[Line] = []
        for line in self._lines():
            if "position" not in line:
                self._other(line)
            elif line["position"] >= self._next:
                if group and not _belongs(group[-1], line, len(group)):
                    self._append(group)
                    group = []
                group.append(line)
        if group:
            self._append(group)
        if not self._complete:
            raise StartError(
                f"{self._file} is not complete", remedy="run the export again; it continues where it ended"
            )
        return self._finish()

    def _resume(self) -> None:
        for segment in segments(self._folder):
            if isinstance(segment, Damage):
                raise segment
            self._number, self._log_id = segment.number, segment.head.log_id
            for found in batches(segment):
                if isinstance(found, Damage):
                    raise found
                self._next = found.batch.base_lsn + found.batch.count
                self._done.records += found.batch.count
        self._done.resumed_at = self._next - 1

    def _lines(self) -> Iterator[Line]:
        with self._file.open("rb") as file:
            done = 0
            for place, lines in members(file, self._file):
                yield from lines
                self._progress(place - done)
                done = place

    def _other(self, line: Line) -> None:
        if "penstock_export" in line:
            if line["penstock_export"] != VERSION:
                raise StartError(
                    f"{self._file} is in version {line['penstock_export']} of exports; this penstock knows "
                    f"version {VERSION}",
                    remedy="import it with the penstock that wrote it",
                )
            self._epoch, self._done.end = line["epoch"], line["end"]
        elif "table" in line:
            self._rows.setdefault(line["table"], {})[bytes_of(line["key"])] = bytes_of(line["value"])
            self._done.rows += 1
        elif line.get("end") is True:
            self._complete = True
        if not self._epoch:
            raise StartError(f"{self._file} is no export of penstock")

    def _append(self, lines: list[Line]) -> None:
        first = lines[0]
        out = Appender(lambda: int(first["time_ms"]), first["position"], self._epoch)
        for line in lines:
            flags = line["flags"] & ~(LIST | UNROUTED)
            parts = bytes_of(line["key"]), bytes_of(line["properties"]), bytes_of(line["body"])
            more = line["priority"], line["encoding"], line["ttl_ms"]
            if "due_ms" in line:
                out.append_delayed(line["due_ms"], line["place"], *parts, flags, *more)
            else:
                feeds = [self._feeds.setdefault(feed, Feed(feed)) for feed in line["feeds"]]
                out.append_record(0, Target(feeds), *parts, flags, *more, line["origin"])
        for batch in out.take_closed():
            self._add(batch)
        self._done.records += len(lines)
        if self._size >= _SEGMENT:
            self._end_segment(lines[-1]["position"] + 1)

    def _add(self, batch: Batch) -> None:
        raw = bytes(batch)
        self._parts.append(raw)
        self._size += len(raw)

    def _end_segment(self, follows: int) -> None:
        self._number += 1
        head = Head(
            kind=WAL,
            log_id=self._log_id,
            epoch=self._epoch,
            number=self._number,
            base_lsn=self._next,
            prev_lsn=self._next - 1,
            flags=SEALED,
        )
        content = [head.encode(WAL_HEAD_BYTES), *self._parts, note_of(follows, self._epoch, 0)]
        self._files.replace(self._folder.segment(self._number), b"".join(content))
        self._next = follows
        self._parts.clear()
        self._feeds.clear()
        self._size = 0

    def _finish(self) -> Imported:
        end = max(self._done.end, self._next - 1)
        self._end_segment(end + 1)
        rows = {table: content.items() for table, content in self._rows.items()}
        where = Checkpoint(end, self._number)
        write_checkpoint(self._files, self._folder, where, rows, log_id=self._log_id, epoch=self._epoch)
        Manifest(self._log_id, self._epoch, 1, [end]).write(self._files, self._folder.manifest)
        return self._done


def _belongs(last: Line, line: Line, count: int) -> bool:
    """Whether a record can be in one batch with the one before."""
    return (
        line["position"] == last["position"] + 1
        and line["time_ms"] == last["time_ms"]
        and ("due_ms" in line) == ("due_ms" in last)
        and count < _BATCH_MOST
    )
