"""A standby's listeners: they pass the bytes of clients on to the owner, and wait while there is none.

Nothing is read of a client that waits. So if this node becomes the owner, its gateway goes on with the same
sockets: clients are neither refused nor disconnected.

TLS stays sealed: it ends at the owner. If this node is one of the owner's trusted proxies, it says first, in
a PROXY v2 header, for whom it speaks.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import struct
from typing import Final

from penstock.cluster.settings import listeners
from penstock.config import Address, Config
from penstock.protocols.listening.listener import listening_socket
from penstock.protocols.net.open_socket import OpenSocket

__all__ = ["Relay", "proxy_header"]

_LOG: Final = logging.getLogger("penstock.cluster")

_CHUNK: Final = 256 * 1024
_RETRY_S: Final = 0.02
_WAIT_S: Final = 30.0
"""A client waits so long for an owner."""
_CONNECT_S: Final = 3.0
_WAITING_MAX: Final = 10_000
_ACCEPTS_PER_TURN: Final = 64
_PAUSE_S: Final = 1.0
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"


def proxy_header(source: tuple[str, int], target: tuple[str, int]) -> bytes:
    """The PROXY protocol's header, version 2, for a TCP connection from `source` to `target`."""
    hosts = [ipaddress.ip_address(host) for host, _ in (source, target)]
    if hosts[0].version != hosts[1].version:
        hosts = [ipaddress.IPv6Address(f"::ffff:{it}") if it.version == 4 else it for it in hosts]
    family = 0x11 if hosts[0].version == 4 else 0x21
    body = hosts[0].packed + hosts[1].packed + struct.pack("!HH", source[1], target[1])
    return _SIGNATURE + struct.pack("!BBH", 0x21, family, len(body)) + body


class _Owner:
    """The owner that the relay knows, or knows not: it starts to listen when it has opened the log."""

    def __init__(self, addresses: dict[str, Address]) -> None:
        self.addresses = addresses
        """By the name of a listener; empty: there is no owner."""
        self.listening: set[str] = set()
        """Those that answered."""
        self.locks = {name: asyncio.Lock() for name in addresses}
        """Of clients of a listener that has not answered yet, one tries."""


class Relay:
    """All listeners of one standby. Runs on the loop."""

    def __init__(self, config: Config) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening: dict[str, socket.socket] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._passed_on: set[asyncio.Task[None]] = set()
        """Those of connections that reach the present owner."""
        self._connecting: set[asyncio.Timeout] = set()
        self._owner = _Owner({})
        self._known = asyncio.Event()
        """There is an owner."""
        self._config = config
        own = config.cluster.advertise
        trusted = [ipaddress.ip_network(net, strict=False) for net in config.server.proxy_networks]
        try:
            self._announces = any(ipaddress.ip_address(own) in net for net in trusted)
        except ValueError:
            self._announces = False
        self._waiting: dict[socket.socket, str] = {}
        """Clients of which nothing was read yet, and the names of their listeners."""
        self._ends = False
        self.relayed = 0
        """Connections that were passed on."""

    def start(self) -> dict[str, str]:
        """Listen; the addresses. Raises StartError: a port is taken."""
        addresses = {}
        for name, address in listeners(self._config):
            section, _, option = name.partition(".")
            listening = listening_socket(section, address.host, address.port, option=option)
            self._listening[name] = listening
            self._loop.add_reader(listening, self._accept, name, listening)
            addresses[name] = str(address)
        return addresses

    def follow(self, owner: dict[str, object] | None) -> None:
        """The owner is another one; None: there is none, or it is this node.

        Clients of an earlier owner are disconnected: that one may be frozen, and never say so.
        """
        found = {} if owner is None else owner.get("listeners")
        self._owner = _Owner(
            {str(name): Address.parse(str(text)) for name, text in found.items()}
            if isinstance(found, dict)
            else {}
        )
        if owner is None:
            self._known.clear()
            return
        self._known.set()
        for task in self._passed_on:
            task.cancel()
        for timeout in self._connecting:
            timeout.reschedule(0)

    def _accept(self, name: str, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                client, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # of file descriptors or memory, as a rule
                _LOG.error("cannot accept connections for now: %s", error)
                self._loop.remove_reader(listening)
                self._loop.call_later(_PAUSE_S, self._accept_again, name, listening)
                return
            if len(self._waiting) >= _WAITING_MAX:
                client.close()
                continue
            client.setblocking(False)
            self._waiting[client] = name
            task = self._loop.create_task(self._serve(name, client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _accept_again(self, name: str, listening: socket.socket) -> None:
        if not self._ends:
            self._loop.add_reader(listening, self._accept, name, listening)

    async def _serve(self, name: str, client: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        ends: list[asyncio.StreamWriter] = []
        try:
            back, onward = await self._reach(name)
            ends.append(onward)
            source, target = client.getpeername()[:2], client.getsockname()[:2]
            if self._announces:
                onward.write(proxy_header(source, target))
            del self._waiting[client]
            reader, writer = await asyncio.open_connection(sock=client, limit=_CHUNK)
            ends.append(writer)
            self.relayed += 1
            self._passed_on.add(task)
            await asyncio.gather(_copy(reader, onward), _copy(back, writer))
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # one of the two is gone, so is the other one; or the relay ends, which waits for this task
        finally:
            self._passed_on.discard(task)
            for end in ends:
                end.transport.abort()
            if client not in self._waiting or not self._ends:
                self._waiting.pop(client, None)
                client.close()

    async def _reach(self, name: str) -> _Streams:
        """Connect to the owner's listener, waiting for an owner. Raises TimeoutError."""
        async with asyncio.timeout(_WAIT_S):
            while True:
                await self._known.wait()
                owner = self._owner
                found = await self._try(owner, name)
                if found is not None:
                    if owner is self._owner:
                        return found
                    found[1].transport.abort()

    async def _try(self, owner: _Owner, name: str) -> _Streams | None:
        """Connect once; None: it does not listen, or another client has to try first."""
        lock = owner.locks.get(name)
        if lock is None:  # it has no such listener
            await asyncio.sleep(_RETRY_S)
            return None
        if name in owner.listening:
            found = await self._connect(owner.addresses[name])
            if found is None:
                owner.listening.discard(name)
            return found
        async with lock:
            if owner is not self._owner or name in owner.listening:
                return None
            found = await self._connect(owner.addresses[name])
            if found is None:
                await asyncio.sleep(_RETRY_S)
            else:
                owner.listening.add(name)
            return found

    async def _connect(self, address: Address) -> _Streams | None:
        """None: nobody answers in time, or there is another owner."""
        try:
            async with asyncio.timeout(_CONNECT_S) as timeout:
                self._connecting.add(timeout)
                try:
                    found = await asyncio.open_connection(address.host, address.port, limit=_CHUNK)
                finally:
                    self._connecting.discard(timeout)
        except (OSError, TimeoutError) as error:
            _LOG.debug("the owner cannot be reached at %s: %s", address, error)
            return None
        found[1].get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    async def release(self) -> dict[str, OpenSocket]:
        """End, but for the listening sockets and the clients that wait: they are the caller's.

        Clients that were passed on are disconnected, and come again.
        """
        self._ends = True
        for listening in self._listening.values():
            self._loop.remove_reader(listening)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        found = {name: OpenSocket(listening, []) for name, listening in self._listening.items()}
        for client, name in self._waiting.items():
            found[name].clients.append(client)
        return found

    async def stop(self) -> None:
        """Close the listeners and all connections: clients come again, to the owner or to this node."""
        for each in (await self.release()).values():
            each.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        target.write(data)
        await target.drain()
    if target.can_write_eof() and not target.transport.is_closing():
        target.write_eof()
