"""TCP links that a test can cut, stall one way or both ways, and reset: one thread runs all of them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from tests.support.brokers import free_port
from tests.support.loop_thread import LoopThread

__all__ = ["Link", "Links"]

_CHUNK = 1 << 16
_LOOK_S = 0.25


class Link:
    """Listens on `port` of `host` and passes bytes on to the first of its targets, in turn, that accepts."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        targets: Sequence[int],
        silent_s: float,
        place: tuple[str, int] | None = None,
    ) -> None:
        self.host, self.port = place or ("127.0.0.1", free_port())
        self._loop = loop
        self._targets = targets
        self._turns = itertools.count()
        self._silent_s = silent_s
        self._refuses = False
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._there.set()
        self._back.set()

    # Faults; from any thread

    def cut(self) -> None:
        """End all connections, and accept no further ones."""
        self._do(self._cut)

    def refuse(self) -> None:
        """End all connections, and listen no more, as the system does for a process that ended."""
        self._do(self._server.close)
        self.reset()

    def reset(self) -> None:
        """End all connections; further ones are accepted."""
        self._do(self._abort)

    def stall(self, *, there: bool = True, back: bool = True) -> None:
        """Pass no more bytes to the target (`there`), from it (`back`); connections stay."""
        for stalls, flows in ((there, self._there), (back, self._back)):
            if stalls:
                self._do(flows.clear)

    def heal(self) -> None:
        """Pass everything again, also what was held back."""
        self._do(self._heal)
        if not self._server.is_serving():
            asyncio.run_coroutine_threadsafe(self.open(), self._loop).result(60)

    def _do(self, what: Callable[[], object]) -> None:
        async def do() -> None:
            what()

        asyncio.run_coroutine_threadsafe(do(), self._loop).result(60)

    def _heal(self) -> None:
        self._refuses = False
        self._there.set()
        self._back.set()

    def _cut(self) -> None:
        self._refuses = True
        self._abort()

    def _abort(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    # On the loop

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, self.host, self.port)

    def close(self) -> None:
        """End."""
        self._server.close()
        self._cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # all links end; asyncio would tell it with a traceback
            await self._pass_on(reader, writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self._writers.add(writer)
        try:
            if self._refuses:
                return
            back, onward = await self._reach()
            ends.append(onward)
            self._writers.add(onward)
            asked = _Asked(self._silent_s)
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, onward, self._there, asked.asks))
                group.create_task(_copy(back, writer, self._back, asked.answered))
                if self._silent_s:
                    group.create_task(asked.watch())
        except* (OSError, _OverError):
            pass
        finally:
            for end in ends:
                self._writers.discard(end)
                end.transport.abort()

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        first = next(self._turns)
        for number in range(len(self._targets)):
            port = self._targets[(first + number) % len(self._targets)]
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        raise ConnectionRefusedError


class _OverError(Exception):
    """One of the two ends is gone."""


class _Asked:
    """Since when a client waits for an answer: one that looks after itself would go elsewhere."""

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._since: float | None = None

    def asks(self) -> None:
        if self._since is None:
            self._since = time.monotonic()

    def answered(self) -> None:
        self._since = None

    async def watch(self) -> None:
        while self._since is None or time.monotonic() - self._since < self._silent_s:
            await asyncio.sleep(_LOOK_S)
        raise _OverError


async def _copy(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, flows: asyncio.Event, tell: Callable[[], None]
) -> None:
    while data := await source.read(_CHUNK):
        tell()
        await flows.wait()
        target.write(data)
        await target.drain()
    await flows.wait()
    raise _OverError


class Links:
    """Makes links, and ends them all."""

    def __init__(self) -> None:
        self._made: list[Link] = []
        self._thread = LoopThread("links")

    def add(self, *targets: int, silent_s: float = 0.0, place: tuple[str, int] | None = None) -> Link:
        """A link to these ports of 127.0.0.1 in turn.

        `silent_s`: connections without an answer for so long are ended. `place`: host and port to listen on.
        """
        link = Link(self._thread.loop, targets, silent_s, place)
        self._made.append(link)
        self._thread.run(link.open())
        return link

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        def close() -> None:
            for link in self._made:
                link.close()

        self._thread.end(close)
