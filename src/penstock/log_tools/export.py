"""`penstock log export`: everything in a data folder in one portable file (`portable`).

The content of an export is fixed when it begins: the rows as of the last position, and the records up to it.
Until it is complete the file is called FILE.part; the same command goes on where an interrupted one ended.
The gateway may run; what it deletes meanwhile because nobody needs it any more is not in the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from penstock.errors import StartError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import DELAYED_RECORDS, RECORDS, Batch
from penstock.log_core.errors import Damage
from penstock.log_core.files.files import Files
from penstock.log_core.files.layout import Folder
from penstock.log_core.files.manifest import Manifest
from penstock.log_tools.portable import VERSION, Writer, members, text_of
from penstock.log_tools.reading import Span, batches, read_manifest, read_tables, segments

__all__ = ["Exported", "export"]


@dataclass(slots=True)
class Exported:
    """The contents of the file."""

    file: str
    records: int = 0
    rows: int = 0
    end: int = 0
    """The last position in it."""
    resumed_at: int = 0
    """Records up to this position were in the file already; 0: it began anew."""


def export(
    folder: Folder,
    file: Path,
    told: Callable[[object], object],
    progress: Callable[[int], object] = lambda nbytes: None,
) -> Exported:
    """Write the file. `told` hears of what cannot be exported; `progress` of bytes of the log done.

    Raises StartError: the file exists, cannot be written, or an interrupted one is of another log.
    """
    if file.exists():
        raise StartError(f"{file} exists", remedy="name a file that does not")
    part = file.with_name(file.name + ".part")
    try:
        with part.open("r+b" if part.exists() else "w+b") as out:
            done = _Run(folder, out, part, told, progress).run()
            out.flush()
            os.fsync(out.fileno())
        files = Files()
        files.rename(part, file)
        files.sync_folder(file.absolute().parent)
    except OSError as error:
        raise StartError(f"{part} cannot be written: {error.strerror or error}") from error
    done.file = str(file)
    return done


class _Run:
    def __init__(
        self,
        folder: Folder,
        out: BinaryIO,
        part: Path,
        told: Callable[[object], object],
        progress: Callable[[int], object],
    ) -> None:
        self._folder = folder
        self._out = out
        self._part = part
        self._told = told
        self._progress = progress
        self._done = Exported("")

    def run(self) -> Exported:
        manifest = read_manifest(self._folder)
        if not isinstance(manifest, Manifest):
            self._told(manifest or f"{self._folder.manifest} is missing")
            manifest = Manifest(b"", 0, 1, [])
        begun = self._resume(manifest.log_id.hex())
        writer = Writer(self._out)
        if not begun:
            self._begin(writer, manifest)
        self._records(writer)
        for path in self._folder.histories.glob("*.his"):
            self._told(f"{path} is not exported: what a queue got by a backfill and has not taken yet")
        writer.write({"end": True, "records": self._done.records, "rows": self._done.rows})
        writer.end_member()
        return self._done

    def _resume(self, log_id: str) -> bool:
        """Go behind the last whole member of an interrupted export; False: there is nothing of it."""
        done = self._done
        good = 0
        for place, lines in members(self._out, self._part):
            for line in lines:
                if "penstock_export" in line:
                    if line["log_id"] != log_id or line["penstock_export"] != VERSION:
                        raise StartError(
                            f"{self._part} is the beginning of an export of another log", remedy="remove it"
                        )
                    done.end = line["end"]
                elif "table" in line:
                    done.rows += 1
                elif "position" in line:
                    done.records += 1
                    done.resumed_at = line["position"]
            good = place
        # Without any record it is not known whether all rows are there.
        if not done.resumed_at:
            good = done.rows = 0
        self._out.seek(good)
        self._out.truncate()
        return good > 0

    def _begin(self, writer: Writer, manifest: Manifest) -> None:
        tables, end, damages = read_tables(self._folder)
        for damage in damages:
            self._told(damage)
        self._done.end = end
        writer.write(
            {
                "penstock_export": VERSION,
                "log_id": manifest.log_id.hex(),
                "epoch": manifest.epoch,
                "end": end,
            }
        )
        for table, content in tables.snapshot().items():
            for key, value in content:
                writer.write({"table": table, "key": text_of(key), "value": text_of(value)})
                self._done.rows += 1
        writer.end_member()

    def _records(self, writer: Writer) -> None:
        done = self._done
        span = Span(first=done.resumed_at + 1, last=done.end)
        for segment in segments(self._folder):
            if isinstance(segment, Damage):
                self._told(segment)
                continue
            for found in batches(segment, span):
                if isinstance(found, Damage):
                    self._told(found)
                    continue
                batch = found.batch
                self._progress(found.size)
                if batch.kind not in (RECORDS, DELAYED_RECORDS):
                    continue
                for index in range(batch.count):
                    if span.first <= batch.base_lsn + index <= span.last:
                        writer.write(_line(batch, index))
                        done.records += 1


def _line(batch: Batch, index: int) -> dict[str, Any]:
    record = batch.record(index)
    line: dict[str, Any] = {
        "position": record.lsn,
        "time_ms": record.ts,
        "feeds": record.feeds,
        "flags": record.flags,
        "priority": record.priority,
        "encoding": record.enc,
        "ttl_ms": record.ttl,
        "origin": record.origin,
        "key": text_of(record.key),
        "properties": text_of(record.props),
        "body": text_of(record.body),
    }
    delay = batch.delay_of(index)
    if delay is not None:
        line["due_ms"], line["place"] = delay
    return line
