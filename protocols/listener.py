"""A listening socket and its connections: accept, bound, look after, stop. Knows no protocol.

Accepting survives a lack of file descriptors or memory: it is logged, accepting pauses for a second and goes
on; connections that are open stay open. Connections above the limit are accepted and closed at once, so that
the peer sees a refusal and not a queue.

Owns: the socket, the set of connections, one timer per second that calls each connection's `check`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.errors import StartError
from penstock.logs import fields
from penstock.protocols.connection import Connection, Wiring

__all__ = ["Listener", "listening_socket"]

_BACKLOG: Final = 1024
_ACCEPTS_PER_TURN: Final = 64
"""Connections accepted before the loop does something else."""
_PAUSE_S: Final = 1.0
_SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def listening_socket(section: str, host: str, port: int) -> socket.socket:
    """A non-blocking listening socket; `section` is the configuration's, for the error.

    Raises:
        StartError: the address is taken, forbidden or no address of this machine.

    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, proto)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and not host:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listening.bind(address)
            listening.listen(_BACKLOG)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise StartError.listening(section, f"{host}:{port}", error) from error
    return listening


def _same(connection: Connection) -> Connection:
    return connection


class Listener:
    """Accepts connections made by `factory` until `stop_accepting`; `drain` ends them."""

    def __init__(
        self,
        listening: socket.socket,
        factory: Callable[[], Connection],
        wiring: Wiring,
        *,
        max_connections: int = 0,
    ) -> None:
        """Start accepting on `listening` (owned from now on); `max_connections` 0 = no limit."""
        self.connections: Final[set[Connection]] = set()
        """Every connection that is not lost yet."""
        self.refused = 0
        """Connections closed at once because of the limit."""
        self._socket: socket.socket | None = listening
        name = listening.getsockname()
        self.address: Final = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
        """HOST:PORT that is really listened on."""
        self.port: Final[int] = name[1]
        self._factory = factory
        self._wiring = wiring
        self._loop = wiring.loop
        self._max = max_connections
        self._opening: set[asyncio.Task[object]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._pressure = False
        self._timer = self._loop.call_later(1.0, self._check)
        self._loop.add_reader(listening.fileno(), self._accept)

    # Accepting

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if self._socket is None:
                return
            try:
                accepted, _peer = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in _SCARCE:
                    raise
                self._wiring.logger.error(
                    "cannot accept connections for now: raise the limit of open files (ulimit -n)",
                    extra=fields(
                        address=self.address, error=error.strerror, connections=len(self.connections)
                    ),
                )
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(_PAUSE_S, self._accept_again)
                return
            if self._max and len(self.connections) + len(self._opening) >= self._max:
                accepted.close()
                self._refuse()
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self._made()
            task: asyncio.Task[object] = self._loop.create_task(
                self._loop.connect_accepted_socket(partial(_same, connection), accepted)
            )
            self._opening.add(task)
            task.add_done_callback(partial(self._opened, connection))

    def _refuse(self) -> None:
        self.refused += 1
        # 1, 2, 4, 8 ...: one line per doubling is enough under a flood.
        if self.refused & (self.refused - 1) == 0:
            self._wiring.logger.warning(
                "connection refused: server.max_connections is reached",
                extra=fields(address=self.address, limit=self._max, refused=self.refused),
            )

    def _accept_again(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _made(self) -> Connection:
        connection = self._factory()
        connection.on_close = self._lost
        self.connections.add(connection)
        self._empty.clear()
        if self._pressure:
            connection.on_pressure(True)
        return connection

    def _opened(self, connection: Connection, task: asyncio.Task[object]) -> None:
        self._opening.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._wiring.logger.debug("connection lost while it was opened: %s", error)
        if connection.transport is None:
            # The peer was gone before the transport was there: nobody will call connection_lost.
            self._lost(connection)

    def _lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    # Looking after

    def _check(self) -> None:
        # First of all the next one: an error of one connection must not end the looking after all others.
        self._timer = self._loop.call_later(1.0, self._check)
        now = self._loop.time()
        for connection in list(self.connections):
            connection.check(now)

    def pressure(self, paused: bool) -> None:
        """The log's call to pause or resume publishers, passed on to every connection."""
        self._pressure = paused
        for connection in list(self.connections):
            connection.on_pressure(paused)

    # Stopping

    def stop_accepting(self) -> None:
        """Close the listening socket; open connections stay."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    async def drain(self, timeout: float) -> None:
        """End every connection in its protocol's words; cut those that are not gone in `timeout` seconds."""
        self.stop_accepting()
        if self._opening:
            await asyncio.wait(self._opening, timeout=timeout)
        for connection in list(self.connections):
            connection.on_shutdown()
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort("the gateway stopped and the client did not close in time")
        # Losing a connection takes a turn of the loop after the abort.
        while self.connections:
            await asyncio.sleep(0)
        self._timer.cancel()
