"""Replication of shared state (`router.shared_state`) from worker 0 to the other workers.

A worker asks worker 0 for it through a door (`kind` "follow") and keeps that connection: all rows first,
then each change as it happens, in order. It acknowledges the changes that it has made, so that
worker 0 can answer a change only when it holds everywhere. A worker that is down holds up nobody: it
gets all rows when it is back.

    frame: | size u32 LE | JSON |
    to the worker  {"seq", "rows": [[table, key, value or null] ...], "whole"}, keys and values hexadecimal;
                   {"seq", "clear": vhost}
    from it        {"seq"}
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from penstock.errors import PenstockError
from penstock.logs import fields
from penstock.router.shared_state import Change, Mirror, Said, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.protocols.workers.handover import HandoverSockets
    from penstock.router.broker import Broker
    from penstock.router.rows import Tables

__all__ = ["Follower", "Leader", "WorkerDown"]

logger: Final = logging.getLogger("penstock.workers")

_SIZE: Final = struct.Struct("<I")
_AGAIN_S: Final = 0.2


class WorkerDown(PenstockError):
    """A request to a worker cannot be done while it is down."""

    def __init__(self, worker: int) -> None:
        super().__init__(f"worker {worker} is being started again", remedy="try again in a few seconds")


def _encoded(frame: dict[str, Any]) -> bytes:
    data = orjson.dumps(frame)
    return _SIZE.pack(len(data)) + data


def _rows(changes: Iterable[Change]) -> list[Any]:
    return [(table, key.hex(), None if value is None else value.hex()) for table, key, value in changes]


def _changes(rows: list[Any]) -> list[Change]:
    return [
        (t, bytes.fromhex(key), None if value is None else bytes.fromhex(value)) for t, key, value in rows
    ]


async def _read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next frame. Raises IncompleteReadError, OSError."""
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    frame: dict[str, Any] = orjson.loads(await reader.readexactly(size))
    return frame


class _Behind:
    """A worker as worker 0 sees it."""

    def __init__(self, worker: int, writer: asyncio.StreamWriter) -> None:
        self.worker = worker
        self.writer = writer
        self.seq = 0
        self.waiting: dict[int, asyncio.Future[None]] = {}

    def send(self, frame: dict[str, Any]) -> asyncio.Future[None]:
        """Done when it is acknowledged, or with WorkerDown."""
        self.seq += 1
        done = self.waiting[self.seq] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda one: one.cancelled() or one.exception())  # it need not be awaited
        self.writer.write(_encoded({"seq": self.seq, **frame}))
        return done

    def lost(self) -> None:
        for done in self.waiting.values():
            if not done.done():
                done.set_exception(WorkerDown(self.worker))
        self.waiting.clear()


class Durable(Protocol):
    """The part of worker 0's log that is needed."""

    synced_lsn: int

    @property
    def tables(self) -> Tables: ...
    def when_synced(self, lsn: int, callback: Callable[[bool], object]) -> None: ...


class Leader:
    """Worker 0's side. A change is told when it is durable: before that a crash may undo it."""

    def __init__(self, handover: HandoverSockets, log: Durable) -> None:
        self.tables: Final = Said(log.tables, self._changed)
        self._log = log
        self._behind: dict[int, _Behind] = {}
        self._changes: list[tuple[int, Change]] = []
        self._last: dict[int, asyncio.Future[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._handover = handover

    def start(self) -> None:
        """A worker that follows gets what there is from now on."""
        self._handover.take("follow", self._follow)

    def _changed(self, change: Change, lsn: int) -> None:
        if not self._changes:
            self._log.when_synced(lsn, self._send)
        self._changes.append((lsn, change))

    def _send(self, ok: bool) -> None:
        durable = [change for lsn, change in self._changes if lsn <= self._log.synced_lsn]
        del self._changes[: len(durable)]
        if self._changes and ok:
            self._log.when_synced(self._changes[0][0], self._send)
        if durable and ok:
            rows = _rows(durable)
            for one in self._behind.values():
                self._last[one.worker] = one.send({"rows": rows, "whole": False})

    async def settled(self) -> None:
        """Wait until every worker that runs has made all durable changes its own."""
        for done in list(self._last.values()):
            with contextlib.suppress(WorkerDown):
                await asyncio.shield(done)

    async def clear(self, worker: int, vhost: str) -> None:
        """Have a worker remove a vhost of its own with all that is in it. Raises WorkerDown."""
        behind = self._behind.get(worker)
        if behind is None:
            raise WorkerDown(worker)
        await behind.send({"clear": vhost})

    def close(self) -> None:
        """Let all go."""
        for task in self._tasks:
            task.cancel()

    def _follow(self, record: dict[str, Any], data: bytes, given: socket.socket) -> None:
        task = self._loop.create_task(self._serve(int(record["worker"]), given))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, worker: int, given: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=given)
        one = _Behind(worker, writer)
        self._behind[worker] = one
        self._last[worker] = one.send({"rows": _rows(self.tables.all()), "whole": True})
        try:
            while True:
                seq = (await _read(reader))["seq"]
                done = one.waiting.pop(seq, None)
                if done is not None and not done.done():
                    done.set_result(None)
        except (asyncio.IncompleteReadError, OSError):
            logger.info("a worker is gone", extra=fields(worker=worker))
        finally:
            if self._behind.get(worker) is one:
                del self._behind[worker]
                self._last.pop(worker, None)
            one.lost()
            writer.close()


class Follower:
    """The side of each other worker."""

    def __init__(self, handover: HandoverSockets) -> None:
        self.mirror: Mirror
        """After `begin`."""
        self._handover = handover
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Wait for worker 0, and take all rows from it."""
        while True:
            try:
                frame = await self._connect()
            except (asyncio.IncompleteReadError, OSError):
                await asyncio.sleep(_AGAIN_S)
            else:
                self.mirror = Mirror(_changes(frame["rows"]))
                self._done(frame)
                return

    async def _connect(self) -> dict[str, Any]:
        record = {"kind": "follow", "worker": self._handover.me}
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._handover.pair(0, record))
        return await _read(self._reader)

    def _done(self, frame: dict[str, Any]) -> None:
        self._writer.write(_encoded({"seq": frame["seq"]}))

    def start(self, broker: Broker) -> None:
        """Make every change hold in `broker` from now on, until `close`."""
        self._task = asyncio.get_running_loop().create_task(self._run(broker))

    def close(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
        self._writer.close()

    async def _run(self, broker: Broker) -> None:
        while True:
            try:
                while True:
                    await self._apply(broker, await _read(self._reader))
            except (asyncio.IncompleteReadError, OSError):
                logger.warning("worker 0 is gone: users and permissions stay as they are until it is back")
            self._writer.close()
            while True:
                try:
                    await self._apply(broker, await self._connect())
                    break
                except (asyncio.IncompleteReadError, OSError):
                    await asyncio.sleep(_AGAIN_S)
            logger.info("worker 0 is back")

    async def _apply(self, broker: Broker, frame: dict[str, Any]) -> None:
        try:
            if "clear" in frame:
                await self._clear(broker, frame["clear"])
            else:
                changes = _changes(frame["rows"])
                for change in self.mirror.changes_to(changes) if frame["whole"] else changes:
                    apply(broker, self.mirror, change)
        except Exception:
            # One row that cannot hold must not stop those behind it, nor this worker.
            logger.exception("what worker 0 said could not be done")
        self._done(frame)

    async def _clear(self, broker: Broker, vhost: str) -> None:
        if vhost not in broker.vhosts:
            return
        lsn = broker.administration.delete_vhost(vhost)
        kept = asyncio.Event()
        broker.log.when_synced(lsn, lambda ok: kept.set())
        broker.tick.schedule()
        await kept.wait()
