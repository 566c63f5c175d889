"""A listening socket and its connections: accept, bound, look after, stop. Knows no protocol.

All who wait are accepted at once, since the backlog of a listening socket is short: in a storm, whoever finds
it full comes again only after seconds, and its first bytes even later. They are served in order, some in each
turn of the loop.

Accepting survives a lack of file descriptors or memory: it is logged, accepting pauses for a second and goes
on; connections that are open stay open. Connections above a limit are accepted and closed at once, so that
the peer sees a refusal and not a queue. A peer in a trusted proxy's network first names its client in a PROXY
header; from then on the address of that client counts.

Owns: the socket, the set of connections, one timer per second that calls each
connection's `check`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import math
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.config import Address
from penstock.errors import StartError
from penstock.logs import fields
from penstock.protocols.listening._acceptor import TAKEN_PER_TURN, Acceptor
from penstock.protocols.listening.proxy import ProxyError, read_header
from penstock.protocols.listening.tcp import do_not_pace
from penstock.protocols.listening.websocket_rules import WebSocketRules
from penstock.protocols.net._lifecycle import is_here
from penstock.protocols.net._socket import SocketTransport, accept
from penstock.protocols.net.admitting._login_timeout import LATE_S
from penstock.protocols.net.admitting.admission import MAX_CONNECTIONS
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_context import ConnectionContext
from penstock.protocols.net.layers.tls_transport import TlsTransport
from penstock.protocols.tls.contexts import Layer
from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from penstock.protocols.listening.websocket import WebSocketTransport
    from penstock.router.authorization.identity import Identity

__all__ = ["Listener", "listening_socket"]

_BACKLOG: Final = 4096
"""Connections that wait to be accepted; the system may allow fewer. One beyond it takes seconds longer."""
_ACCEPTS_PER_TURN: Final = _BACKLOG
"""Connections accepted before the loop does something else: in a storm, all that wait. It takes a few
microseconds for each; while one is served, many more would come and find the backlog full."""
_UNSERVED_MAX: Final = 16384
"""Those accepted that nothing was begun with; with so many, no more are accepted."""
_CHECKS_AT_ONCE: Final = 256
"""Connections looked after before the loop does something else."""
_PAUSE_S: Final = 1.0
_SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def listening_socket(
    section: str, host: str, port: int, *, option: str = "listen", shared: bool = False, listen: bool = True
) -> socket.socket:
    """A non-blocking listening socket; `section` and `option` are the configuration's, for the error.

    With `shared` other processes of this user may listen there, too: each gets a part of the connections.
    Without `listen` it is only bound.

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
            if shared:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6 and not host:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            # Accepted sockets have these options of its listening socket.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listening.bind(address)
            do_not_pace(listening)
            if listen:
                listening.listen(_BACKLOG)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise StartError.listening(section, f"{host}:{port}", error, option=option) from error
    return listening


class Listener(Acceptor):
    """Accepts connections made by `factory` until `stop_accepting`; `drain` ends them."""

    def __init__(
        self,
        listening: socket.socket,
        factory: Callable[[], Connection],
        context: ConnectionContext,
        *,
        max_connections: int = 0,
        tls: Layer | None = None,
        websocket: WebSocketRules | None = None,
        place: tuple[str, str] = ("", ""),
    ) -> None:
        """Start accepting on `listening`, which is owned from now on.

        Args:
            listening: From `listening_socket` or `unix_socket`.
            factory: Makes one connection.
            wiring: The connections'.
            max_connections: Open at once; 0 = no limit.
            tls: From `Tls.layer`; None = plain TCP.
            websocket: Bytes come in WebSocket frames, from whom these rules let in; None = as they are.
            place: Names of the front end and of the listener, by which other workers find it.

        """
        self.refused: Final = Counter[str]()
        """Connections closed at once because of a limit, by its option."""
        self._socket: socket.socket | None = listening
        name = listening.getsockname()
        self._path: Final[str | None] = name if listening.family == socket.AF_UNIX else None
        host, port = (name[0], name[1]) if self._path is None else ("unix", 0)
        self.address: Final[str] = f"unix:{name}" if self._path else str(Address(host, port))
        """HOST:PORT that is really listened on, or unix:PATH."""
        self.port: Final[int] = port
        everywhere = self._path is not None or host in ("", "0.0.0.0", "::")
        super().__init__(
            context.loop,
            context.admission,
            factory,
            place,
            None if everywhere else (host, port),
            None if tls is None and websocket is None else self._layered,
        )
        self._context = context
        self._loop = context.loop
        self._max = max_connections
        self._tls = tls
        self._websocket = websocket
        self._announced: set[asyncio.Task[None]] = set()
        """Connections whose proxy has not yet said for whom they are."""
        self._empty = asyncio.Event()
        self._empty.set()
        self._timer = self._check_later()
        self._loop.add_reader(listening.fileno(), self._accept)

    # Accepting

    def _accept(self) -> None:
        if self._socket is None or len(self._came) >= _UNSERVED_MAX:
            return
        try:
            came = accept(self._socket.fileno(), self._room())
        except OSError as error:
            if error.errno not in _SCARCE:
                raise
            self._context.logger.error(
                "cannot accept connections for now: raise the limit of open files (ulimit -n)",
                extra=fields(address=self.address, error=error.strerror, connections=len(self.connections)),
            )
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later(_PAUSE_S, self._accept_again)
            return
        is_idle = not self._came
        self._came.extend(came)
        if is_idle and came:
            self.take_some()

    def _room(self) -> int:
        """As many may be accepted at once. Those above the limit hold descriptors until they are refused."""
        if not self._max:
            return _ACCEPTS_PER_TURN
        left = self._max - len(self.connections) - len(self._announced) - len(self._came)
        return min(max(left, TAKEN_PER_TURN), _ACCEPTS_PER_TURN)

    def welcome(self, clients: Iterable[socket.socket]) -> None:
        """Go on with clients that were accepted before this listener was made, which owns them now."""
        for client in clients:
            try:
                host, port = client.getpeername()[:2]
            except OSError:  # it is gone
                client.close()
            else:
                self.take(client.detach(), host, port)

    def take(self, fd: int, host: str, port: int) -> None:
        """Go on with a socket that was accepted."""
        if self._max and len(self.connections) + len(self._announced) >= self._max:
            self.refuse(fd, MAX_CONNECTIONS)
        elif self._admission.is_proxy(host):
            given = socket.socket(fileno=fd)
            task = self._loop.create_task(self._from_proxy(given, host, port))
            self._announced.add(task)
            task.add_done_callback(self._announced.discard)
        else:
            self.let_in(fd, host, port)

    async def _from_proxy(self, accepted: socket.socket, host: str, port: int) -> None:
        """Read for whom a trusted proxy speaks, then go on as if that one had come."""
        try:
            source = await read_header(accepted, self._context.limits.greeting_timeout_s)
        except (ProxyError, TimeoutError, OSError) as error:
            accepted.close()
            self._context.logger.info(
                "connection of a proxy refused",
                extra=fields(peer=f"{host}:{port}", error=str(error) or "no PROXY header in time"),
            )
        except BaseException:
            accepted.close()
            raise
        else:
            fd = accepted.detach()
            if source.is_proxy:
                self.let_in(fd, host, port)
            else:
                self.let_in(fd, source.host, source.port, proxied=True)

    def _layered(self, connection: Connection) -> object:
        """The layers between a socket and its connection."""
        protocol: Connection | WebSocketTransport | TlsTransport = connection
        if self._websocket is not None:
            from penstock.protocols.listening.websocket import WebSocketTransport  # with its library

            protocol = WebSocketTransport(connection, self._websocket, self._loop)
        if self._tls is not None:
            tls, most = self._tls, self._context.limits.login_bytes
            protocol = TlsTransport(protocol, connection, tls.context(), self._loop, most, tls.user_of)
        return protocol

    def take_over(self, record: Mapping[str, Any], data: bytes, given: socket.socket) -> None:
        """Go on with a client that another worker accepted here; `record` as in `Connection.hand_over`."""
        if self._socket is None:
            given.close()
            return
        host, port = record["peer"]
        why = self._admission.enter(host)
        if why is not None:
            self.refuse(given.detach(), why)
            return
        connection = self.meet(host, port, foreign=record["foreign"])
        connection.admitted = True
        connection.internal = record.get("internal", False)
        connection.is_link = record.get("is_link", False)
        connection.nonce = record.get("nonce", "")
        ends = list(itertools.accumulate(record["reads"], initial=0))
        reads = [data[start:end] for start, end in itertools.pairwise(ends)]
        SocketTransport(self._loop, given, connection, reads, record["said"])
        connection.server_address = record["server"][0], record["server"][1]
        if record["user"] is not None:
            connection.secured(record["user"])

    def bring(
        self, given: socket.socket, host: str, port: int, server: tuple[str, int], identity: Identity
    ) -> None:
        """Serve a client of another front end, which has logged in there as `identity`, on a socket of this
        process that leads to it.

        Args:
            given: Non-blocking; owned from now on. It is closed when there is no room for it.
            host: The client's address, with its `port`.
            server: The address at which it is connected.

        """
        if self._socket is None:
            given.close()
            return
        if self._max and len(self.connections) >= self._max:
            self.refuse(given.detach(), MAX_CONNECTIONS)
            return
        counts = not is_here(host)
        why = self._admission.enter(host) if counts else None
        if why is not None:
            self.refuse(given.detach(), why)
            return
        # Rules about loopback were those of its login.
        connection = self.meet(host, port, foreign=True)
        connection.admitted = counts
        connection.vouched = identity
        SocketTransport(self._loop, given, connection)
        connection.server_address = server

    def refuse(self, accepted: int, option: str) -> None:
        os.close(accepted)
        self.refused[option] += 1
        refused = self.refused.total()
        # 1, 2, 4, 8 ...: one line per doubling is enough under a flood.
        if refused & (refused - 1) == 0:
            self._context.logger.warning(
                "connection refused: %s is reached",
                option,
                extra=fields(address=self.address, connections=len(self.connections), refused=refused),
            )

    def _accept_again(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    @property
    def has_tls(self) -> bool:
        """Whether its clients speak TLS."""
        return self._tls is not None

    @property
    def accepting(self) -> bool:
        """Whether somebody may connect."""
        return self._socket is not None

    def reopen(self, listening: socket.socket) -> None:
        """Accept again, after `drain`, on `listening`, which is owned from now on."""
        assert self._socket is None and not self.connections
        self._socket = listening
        self._is_open = True
        self._timer = self._check_later()
        self._loop.add_reader(listening.fileno(), self._accept)

    # Looking after

    def _check_later(self) -> asyncio.TimerHandle:
        due = self._loop.time() + 1.0
        return self._loop.call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        now = self._loop.time()
        if now - due > LATE_S:
            # Timers come before sockets: what peers sent meanwhile is read before they are judged, once.
            self._timer = self._loop.call_later(LATE_S, self._check, math.inf)
            return
        # First of all the next one: no error may end the looking after all.
        self._timer = self._check_later()
        self._check_some(list(self.connections), 0, now)

    def _check_some(self, waiting: list[Connection], held: int, now: float) -> None:
        """Look after a part of them, and after the others in the loop's next iterations.

        Sockets are read in between, or thousands would hold up all messages. `held`: bytes of those before.
        """
        now_due, later = waiting[:_CHECKS_AT_ONCE], waiting[_CHECKS_AT_ONCE:]
        for connection in now_due:
            if connection not in self.connections:
                continue  # lost meanwhile
            if guarded(self._context.logger, "a connection failed; it is dropped", connection.check, now):
                held += connection.held_bytes()
            else:
                connection.abort("the gateway failed to look after it; see the gateway's log")
        if later:
            self._loop.call_soon(self._check_some, later, held, now)
            return
        buffers = self._context.buffers
        buffers.report(self, held, now)
        if buffers.surplus:
            self._cut(now)

    def _cut(self, now: float) -> None:
        """Drop the largest of those who do not take their output, until the budget of all is kept."""
        buffers = self._context.buffers
        stuck = [connection for connection in self.connections if connection.is_stuck(now)]
        for connection in sorted(stuck, key=Connection.held_bytes, reverse=True):
            if not buffers.surplus:
                return
            buffers.cut(connection.held_bytes())
            connection.abort("took none of its output while buffers were short (server.buffer_budget)")

    def change_max(self, max_connections: int) -> None:
        """Another limit for connections that come from now on; 0 = none."""
        self._max = max_connections

    def backpressure(self, paused: bool, full: frozenset[str]) -> None:
        """Have publishers wait, or those to the vhosts that are `full`; passed on to every connection."""
        self._backpressure, self._full = paused, full
        for connection in [one for one in self.connections if not one.handed_over]:
            connection.on_backpressure(paused or connection.vhost_name in full)

    # Stopping

    def stop_accepting(self) -> None:
        """Close the listening socket; open connections stay."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self._is_open = False
            for fd, *_ in self._came:
                os.close(fd)
            self._came.clear()
            if self._path is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path)

    async def drain(self, timeout: float) -> None:
        """End every connection in its protocol's words; cut those that are not gone in `timeout` seconds."""
        self.stop_accepting()
        for task in self._announced:
            task.cancel()
        for connection in list(self.connections):
            connection.shut_down()
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
        self._context.buffers.report(self, 0, self._loop.time())
