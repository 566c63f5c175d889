"""Progress reports of tasks to the program that waits for them.

A task sends a datagram now and then to the program that made the session; nothing waits for it, and one that
is lost is made good by the next. So what is told is for people, and nothing depends on it.

    {"token": text, "kind": "plan", "read" or "sent", "key": number, "rows": number, "bytes": number}

`key` tells the parts of a work apart: one that is done again counts once. Bytes that are planned and read are
those of the log, bytes sent are those of payloads. The token keeps strangers out.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Literal, Self

from penstock.spark.errors import SparkOptionError

__all__ = ["Kind", "Listener", "Reporter", "check_address"]

Kind = Literal["plan", "read", "sent"]

_EACH_S: Final = 0.5
_DATAGRAM_MAX: Final = 1024


class Listener:
    """Takes what tasks say, as a context; `host` is where they reach this program."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind((host, 0))
        self._token = secrets.token_hex(8)
        self._told: dict[tuple[str, int], tuple[int, int]] = {}
        self.address = f"{host}:{self._socket.getsockname()[1]}/{self._token}"
        """The input of tasks."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def totals(self) -> Mapping[Kind, tuple[int, int]]:
        """Rows and bytes of each kind, as far as was told."""
        while True:
            try:
                data = self._socket.recv(_DATAGRAM_MAX)
            except BlockingIOError:
                break
            self._note(data)
        found: dict[Kind, tuple[int, int]] = {}
        for kind in ("plan", "read", "sent"):
            parts = [counts for (known, _), counts in self._told.items() if known == kind]
            found[kind] = sum(rows for rows, _ in parts), sum(nbytes for _, nbytes in parts)
        return found

    def _note(self, data: bytes) -> None:
        try:
            said = json.loads(data)
            fits = secrets.compare_digest(str(said["token"]), self._token)
            entry = (str(said["kind"]), int(said["key"])), (int(said["rows"]), int(said["bytes"]))
        except (ValueError, KeyError, TypeError):
            return  # of a stranger
        if fits:
            self._told[entry[0]] = max(entry[1], self._told.get(entry[0], (0, 0)))


class Reporter:
    """Tells how far one part of a work is; without an address, nothing."""

    def __init__(self, address: str, kind: Kind, key: int) -> None:
        self._socket: socket.socket | None = None
        self._rows = self._nbytes = 0
        self._due = 0.0
        if address:
            (host, port), token = check_address(address)
            self._told = {"token": token, "kind": kind, "key": key}
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.connect((host, port))

    def add(self, rows: int, nbytes: int) -> None:
        """So much more is done."""
        self._rows += rows
        self._nbytes += nbytes
        if self._socket is not None and (now := time.monotonic()) >= self._due:
            self._due = now + _EACH_S
            self._tell(self._socket)

    def close(self) -> None:
        """The part is done."""
        if self._socket is not None:
            self._tell(self._socket)
            self._socket.close()
            self._socket = None

    def _tell(self, to: socket.socket) -> None:
        try:
            to.send(json.dumps({**self._told, "rows": self._rows, "bytes": self._nbytes}).encode())
        except OSError:
            pass  # nobody listens any more, or the buffer is full: see above


def check_address(text: str) -> tuple[tuple[str, int], str]:
    """((host, port), token) of a listener's address. Raises SparkOptionError."""
    place, slash, token = text.partition("/")
    host, colon, port = place.rpartition(":")
    if not (slash and colon and host and port.isdecimal() and 0 < int(port) < 65536):
        raise SparkOptionError("report", text, "leave it out: penstock's own jobs set it")
    return (host, int(port)), token
