"""pyiceberg's files, synced: what it writes on a file system is on the disk when it is closed.

pyiceberg syncs nothing, but a catalog in SQLite is durable with each commit: after a power cut it could name
metadata that is not there.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from pyarrow.fs import LocalFileSystem
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.spark.locations import sync

__all__ = ["SyncedFileIO"]


class SyncedFileIO(PyArrowFileIO):
    """As pyiceberg's own, but for what is written; given to catalogs by name (py-io-impl)."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write."""
        plain = super().new_output(location)
        if not isinstance(plain._filesystem, LocalFileSystem):
            return plain
        return _SyncedFile(location, plain._path, plain._filesystem, plain._buffer_size)


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        return _SyncedStream(super().create(overwrite), Path(self._path))


class _SyncedStream:
    def __init__(self, stream: Any, path: Path) -> None:
        self._stream = stream
        self._path = path

    def write(self, data: bytes) -> int:
        written: int = self._stream.write(data)
        return written

    def tell(self) -> int:
        at: int = self._stream.tell()
        return at

    def close(self) -> None:
        if not self._stream.closed:
            self._stream.close()
            sync(self._path)
            sync(self._path.parent)

    def __enter__(self) -> _SyncedStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
