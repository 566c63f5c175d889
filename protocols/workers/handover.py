"""Handover sockets: one unix socket per worker, through which connections are handed over.

A worker gives another one an open socket (SCM_RIGHTS) and says in a record what it is; what was read of
it already comes along. The socket may be a client's, which from then on is served there as if it had been
accepted there, or one end of a pair whose other end the giver keeps: for a client behind TLS, for a
request by HTTP, for what workers have to tell one another.

    hand-over, one per connection to a door:
    +----------------+--------------+--------+------+
    | record size u32 | data size u32 | record | data |     little-endian; the record is a JSON object
    +----------------+--------------+--------+------+     the descriptor comes with the first byte

The sockets are in a folder that only their user may enter; who gets through is trusted. The supervisor makes
them, so they outlive their worker: connections that come while it is down wait for it.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.logs import fields

__all__ = ["HandoverSockets"]

logger: Final = logging.getLogger("penstock.workers")

_HEAD: Final = struct.Struct("<II")
_READ: Final = 256 * 1024
_RECORD_MAX: Final = 64 * 1024
_DATA_MAX: Final = 1 << 20

Record = dict[str, Any]


class HandoverSockets:
    """The door of this worker, and the ways to those of the others."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, me: int, mine: socket.socket, paths: Sequence[Path]
    ) -> None:
        """`mine` listens at `paths[me]`; it is owned from now on."""
        self.me: Final = me
        self._takers: dict[str, Callable[[Record, bytes, socket.socket], object]] = {}
        self._taken = asyncio.Event()
        self._loop = loop
        self._mine = mine
        self._paths = paths
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def others(self) -> list[int]:
        """The numbers of the other workers."""
        return [number for number in range(len(self._paths)) if number != self.me]

    def take(self, kind: str, taker: Callable[[Record, bytes, socket.socket], object]) -> None:
        """Hand what comes with this `kind` in its record to `taker`, whose the socket is then; until somebody
        takes it, it waits."""
        self._takers[kind] = taker
        self._taken.set()
        self._taken = asyncio.Event()

    def open(self) -> None:
        """Take what comes from now on."""
        self._mine.setblocking(False)
        self._loop.add_reader(self._mine.fileno(), self._accept)

    def close(self) -> None:
        """Take no more."""
        self._loop.remove_reader(self._mine.fileno())
        self._mine.close()
        for task in self._tasks:
            task.cancel()

    def give(self, worker: int, record: Record, given: socket.socket, data: bytes = b"") -> None:
        """Have a worker go on with a socket, which is closed here as soon as it is given."""
        self._begin(self._give(worker, record, data, given))

    def pair(self, worker: int, record: Record, data: bytes = b"") -> socket.socket:
        """A connection to a worker: one end of a pair, non-blocking; the other one is given."""
        kept, given = socket.socketpair()
        kept.setblocking(False)
        given.setblocking(False)
        self.give(worker, record, given, data)
        return kept

    # Giving

    def _begin(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give(self, worker: int, record: Record, data: bytes, given: socket.socket) -> None:
        encoded = orjson.dumps(record)
        whole = _HEAD.pack(len(encoded), len(data)) + encoded + data
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [given.fileno()]))]
        with given, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
            way.setblocking(False)
            try:
                await self._loop.sock_connect(way, str(self._paths[worker]))
                sent = way.sendmsg([whole], rights)  # nothing is in its buffer yet
                await self._loop.sock_sendall(way, whole[sent:])
            except OSError as error:
                logger.warning(
                    "a connection could not be handed over and is closed",
                    extra=fields(worker=worker, kind=record.get("kind"), error=str(error)),
                )

    # Taking

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._mine.accept()
            except (BlockingIOError, InterruptedError):
                return
            accepted.setblocking(False)
            self._begin(self._take(accepted))

    async def _take(self, way: socket.socket) -> None:
        given: socket.socket | None = None
        try:
            with way:
                given, record, data = await self._read(way)
            given.setblocking(False)
            while (taker := self._takers.get(record.get("kind", ""))) is None:
                await self._taken.wait()
            taker(record, data, given)
        except (OSError, ValueError) as error:
            logger.warning("a connection that was handed over is closed", extra=fields(error=str(error)))
            if given is not None:
                given.close()
        except asyncio.CancelledError:
            if given is not None:
                given.close()
            raise

    async def _read(self, way: socket.socket) -> tuple[socket.socket, Record, bytes]:
        """The messages of a connection to the door. Raises ValueError, OSError."""
        given: socket.socket | None = None
        got = bytearray()
        whole = _HEAD.size
        try:
            while len(got) < whole:
                await self._readable(way)
                with contextlib.suppress(BlockingIOError, InterruptedError):
                    piece, rights, _, _ = way.recvmsg(_READ, socket.CMSG_SPACE(4))
                    for level, kind, value in rights:
                        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and given is None:
                            given = socket.socket(fileno=array.array("i", value)[0])
                    if not piece:
                        raise ValueError("the giver ended in the middle")
                    got += piece
                if len(got) >= _HEAD.size:
                    sizes = _HEAD.unpack_from(got)
                    if sizes[0] > _RECORD_MAX or sizes[1] > _DATA_MAX:
                        raise ValueError(f"a record of {sizes[0]} bytes with {sizes[1]} bytes of data")
                    whole = _HEAD.size + sum(sizes)
            if given is None:
                raise ValueError("it came without a descriptor")
        except BaseException:
            if given is not None:
                given.close()
            raise
        start = _HEAD.size + _HEAD.unpack_from(got)[0]
        return given, orjson.loads(got[_HEAD.size : start]), bytes(got[start:])

    async def _readable(self, way: socket.socket) -> None:
        ready = self._loop.create_future()
        self._loop.add_reader(way.fileno(), _set, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(way.fileno())


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
