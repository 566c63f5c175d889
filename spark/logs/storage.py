"""Sources of the files of a log: the data folder itself, or a gateway that sends them as they are.

Both give the same bytes, so what reads them (`log_view`, `reading`) is the same. A storage is named by the
path of a folder or a URL such as penstock://user:password@host:port, is cheap to pickle, and connects when it
is used: one connection for each process and URL, shared by what runs there one after the other.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from penstock.log_core.batch._scan import Scanner
from penstock.log_core.files.layout import Folder
from penstock.sdk.errors import ClientError
from penstock.spark.credentials import with_password
from penstock.spark.errors import SparkError
from penstock.spark.retry import RETRY_WINDOW_S, RetryWindow

if TYPE_CHECKING:
    from penstock.sdk.log_client import LogClient

__all__ = [
    "LocalStorage",
    "RemoteStorage",
    "SegmentFile",
    "Storage",
    "close_clients",
    "log_client",
    "storage_of",
    "with_retry",
]


T = TypeVar("T")


class SegmentFile(Protocol):
    """One open segment. When it is deleted meanwhile, it may still be readable."""

    inode: int
    """Another one: the segment was rewritten."""
    size: int
    """When it was opened."""

    def read(self, offset: int, size: int) -> bytes:
        """At most so many bytes; fewer at the end. Raises OSError, ClientError."""

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """As many bytes as fit in; how many, fewer at the end. Raises OSError, ClientError."""

    def fill(self, scanner: Scanner, size: int, offset: int) -> int:
        """Put them into a scanner's buffer; how many there were."""

    def ahead(self, end: int) -> None:
        """It will be read in order, about up to this byte."""

    def close(self) -> None:
        """Let go of it."""


class Storage(Protocol):
    """See the module."""

    @property
    def folder(self) -> Folder:
        """Names of the files; small ones can be read there after `refresh`."""

    def refresh(self) -> None:
        """Look again. Raises SparkError, ClientError."""

    def close(self) -> None:
        """Remove what was put aside; it may be used again."""

    def path(self, number: int) -> Path:
        """The name of a segment in messages."""

    def segments(self) -> dict[int, int]:
        """The inodes of the segments by number, as of `refresh`."""

    def open(self, number: int) -> SegmentFile:
        """Open a segment. Raises FileNotFoundError."""

    def fetch_index(self, number: int) -> None:
        """Have the sparse index of a segment in `folder`. Raises FileNotFoundError."""

    def vhosts(self) -> dict[int, bytes] | None:
        """Names by log partition, when they are known without looking into the log."""


def storage_of(source: Path | str, retry_window_s: float = RETRY_WINDOW_S) -> Storage:
    """The storage of a data folder or a URL, which waits so long for a gateway that is gone."""
    text = str(source)
    if text.startswith(("penstock://", "penstocks://")):
        return RemoteStorage(text, retry_window_s)
    return LocalStorage(Path(text))


class LocalStorage:
    """The data folder."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)
        self._segments: dict[int, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (LocalStorage, (self.folder.root,))

    def __str__(self) -> str:
        return str(self.folder.root)

    def close(self) -> None:
        """Nothing was."""

    def path(self, number: int) -> Path:
        """See `Storage`."""
        return self.folder.segment(number)

    def refresh(self) -> None:
        """See `Storage`."""
        if not self.folder.wal.is_dir():
            raise SparkError(
                f"there is no log in {self}", remedy="give penstock's data folder (log.data_dir), or a URL"
            )
        found = {}
        for number in self.folder.segment_numbers():
            try:
                found[number] = self.folder.segment(number).stat().st_ino
            except FileNotFoundError:
                continue
        self._segments = found

    def segments(self) -> dict[int, int]:
        """See `Storage`."""
        return self._segments

    def open(self, number: int) -> SegmentFile:
        """See `Storage`."""
        return _LocalSegment(self.folder.segment(number))

    def fetch_index(self, number: int) -> None:
        """It is there, or it is not."""

    def vhosts(self) -> dict[int, bytes] | None:
        """They are in the log."""
        return None


class _LocalSegment:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        stat = os.fstat(self._fd)
        self.inode, self.size = stat.st_ino, stat.st_size

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        return os.preadv(self._fd, [buffer], offset)

    def fill(self, scanner: Scanner, size: int, offset: int) -> int:
        return scanner.read(self._fd, size, offset)

    def ahead(self, end: int) -> None:
        """The kernel reads ahead by itself."""

    def close(self) -> None:
        os.close(self._fd)


_CHUNK: Final = 1 << 20
_AHEAD: Final = 8

_clients: Final[dict[tuple[int, str], LogClient]] = {}


def log_client(url: str) -> LogClient:
    """This process's connection to a gateway, made anew when it was lost. Raises ClientError."""
    from penstock.sdk.log_client import LogClient  # with TLS: who reads files needs none of it

    key = (os.getpid(), url)  # Spark forks its workers
    client = _clients.get(key)
    if client is None or client.lost:
        client = _clients[key] = LogClient(with_password(url))
    return client


def with_retry(url: str, work: Callable[[LogClient], T], retry_window_s: float = RETRY_WINDOW_S) -> T:
    """Work over a connection to a gateway; it is done again over another one when that is lost.

    Raises ClientError, of the last attempt.
    """
    window = RetryWindow(retry_window_s)
    while True:
        try:
            return work(log_client(url))
        except ClientError as error:
            if not error.retryable:
                raise
            window.wait(error)


def close_clients() -> None:
    """End the connections of this process."""
    for client in _clients.values():
        client.close()
    _clients.clear()


class RemoteStorage:
    """A gateway, over the native protocol."""

    def __init__(self, url: str, retry_window_s: float = RETRY_WINDOW_S) -> None:
        self.url = url
        self._retry_window_s = retry_window_s
        self._temporary: Path | None = None
        self._segments: dict[int, tuple[int, int]] = {}
        self._vhosts: dict[int, bytes] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (RemoteStorage, (self.url,))

    def __str__(self) -> str:
        return f"the log of {self.url.rpartition('@')[2]}"

    @property
    def folder(self) -> Folder:
        """Has MANIFEST and what `fetch_index` brought."""
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
            self._remove = weakref.finalize(self, shutil.rmtree, self._temporary, True)
            Folder(self._temporary).make()
        return Folder(self._temporary)

    def close(self) -> None:
        """See `Storage`."""
        if self._temporary is not None:
            self._remove()
            self._temporary = None

    def path(self, number: int) -> Path:
        """See `Storage`."""
        return Folder(Path(str(self))).segment(number)

    def refresh(self) -> None:
        """See `Storage`."""
        found = with_retry(self.url, lambda client: client.listing(), self._retry_window_s)
        self.folder.manifest.write_bytes(found.manifest)
        self._segments = {number: (inode, size) for number, inode, size in found.segments}
        self._vhosts = found.vhosts

    def segments(self) -> dict[int, int]:
        """See `Storage`."""
        return {number: inode for number, (inode, _) in self._segments.items()}

    def open(self, number: int) -> SegmentFile:
        """See `Storage`."""
        if number not in self._segments:
            self.refresh()
        if number not in self._segments:
            raise FileNotFoundError(f"segment {number}")
        return _RemoteSegment(self.url, number, *self._segments[number])

    def fetch_index(self, number: int) -> None:
        """See `Storage`."""
        from penstock.sdk.log_client import READ_MAX

        def fetch(client: LogClient) -> bytes:
            parts: list[bytes] = []
            while not parts or len(parts[-1]) == READ_MAX:
                parts.append(client.take(client.ask(number, 0, len(parts) * READ_MAX, READ_MAX, "index")))
            return b"".join(parts)

        self.folder.time_index(number).write_bytes(with_retry(self.url, fetch, self._retry_window_s))

    def vhosts(self) -> dict[int, bytes] | None:
        """See `Storage`."""
        return self._vhosts


class _RemoteSegment:
    """Read in chunks, some of which are asked for ahead."""

    def __init__(self, url: str, number: int, inode: int, size: int) -> None:
        self._url = url
        self._client: LogClient | None = None
        """Whom the chunks under way were asked of."""
        self._number = number
        self.inode, self.size = inode, size
        self._end = 0
        self._asked: dict[int, int] = {}
        """Chunks that are under way, and the numbers they were asked for by."""
        self._last: tuple[int, bytes] | None = None
        """The chunk that was read last: the next read may begin in it."""

    def ahead(self, end: int) -> None:
        self._end = end

    def read(self, offset: int, size: int) -> bytes:
        data = bytearray(size)
        return bytes(data[: self.read_into(memoryview(data), offset)])

    def read_into(self, buffer: memoryview, offset: int) -> int:
        first, end = offset // _CHUNK, -(-(offset + len(buffer)) // _CHUNK)
        self._forget([index for index in self._asked if index < first])
        ahead = max(end, min(-(-self._end // _CHUNK), end + _AHEAD))
        filled = 0
        for index in range(first, end):
            data = self._take(index, min(index + _AHEAD, ahead))
            self._last = (index, data)
            at = max(offset - index * _CHUNK, 0)
            part = memoryview(data)[at : at + len(buffer) - filled]
            buffer[filled : filled + len(part)] = part
            filled += len(part)
            if len(data) < _CHUNK:
                break
        return filled

    def _take(self, index: int, ahead: int) -> bytes:
        """A chunk, with those before `ahead` asked for."""

        def take(client: LogClient) -> bytes:
            if client is not self._client:
                # Requests to the one before are not answered any more.
                self._client, self._asked = client, {}
            for later in range(index, ahead):
                if later not in self._asked and (self._last is None or self._last[0] != later):
                    self._asked[later] = client.ask(self._number, self.inode, later * _CHUNK, _CHUNK)
            if self._last is not None and self._last[0] == index:
                return self._last[1]
            return client.take(self._asked.pop(index))

        return with_retry(self._url, take)

    def _forget(self, indices: list[int]) -> None:
        for index in indices:
            asked = self._asked.pop(index)
            if self._client is not None:
                self._client.forget(asked)

    def fill(self, scanner: Scanner, size: int, offset: int) -> int:
        data = self.read(offset, size)
        fd = os.memfd_create("penstock")
        try:
            os.pwrite(fd, data, 0)
            return scanner.read(fd, len(data), 0)
        finally:
            os.close(fd)

    def close(self) -> None:
        self._forget(list(self._asked))
