"""A standby's listeners: they pass the bytes of clients on to the owner, and wait while there is none.

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

__all__ = ["Relay", "proxy_header"]

_LOG: Final = logging.getLogger("penstock.cluster")

_CHUNK: Final = 256 * 1024
_RETRY_S: Final = 0.1
_WAIT_S: Final = 30.0
"""A client waits so long for an owner."""
_CONNECT_S: Final = 3.0
_WAITING_MAX: Final = 10_000
_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"


def proxy_header(source: tuple[str, int], target: tuple[str, int]) -> bytes:
    """The PROXY protocol's header, version 2, for a TCP connection from `source` to `target`."""
    hosts = [ipaddress.ip_address(host) for host, _ in (source, target)]
    if hosts[0].version != hosts[1].version:
        hosts = [ipaddress.IPv6Address(f"::ffff:{it}") if it.version == 4 else it for it in hosts]
    family = 0x11 if hosts[0].version == 4 else 0x21
    body = hosts[0].packed + hosts[1].packed + struct.pack("!HH", source[1], target[1])
    return _SIGNATURE + struct.pack("!BBH", 0x21, family, len(body)) + body


class Relay:
    """All listeners of one standby. Runs on the loop."""

    def __init__(self, config: Config) -> None:
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._passed_on: set[asyncio.Task[None]] = set()
        """Those of connections that reach the present owner."""
        self._connecting: set[asyncio.Timeout] = set()
        self._owner: dict[str, Address] = {}
        self._config = config
        own = config.cluster.advertise
        trusted = [ipaddress.ip_network(net, strict=False) for net in config.server.proxy_networks]
        try:
            self._announces = any(ipaddress.ip_address(own) in net for net in trusted)
        except ValueError:
            self._announces = False
        self._waiting = 0
        self.relayed = 0
        """Connections that were passed on."""

    async def start(self) -> dict[str, str]:
        """Listen; the addresses. Raises StartError: a port is taken."""
        addresses = {}
        for name, address in listeners(self._config):
            section, _, option = name.partition(".")
            listening = listening_socket(section, address.host, address.port, option=option)

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = name
            ) -> None:
                await self._serve(name, reader, writer)

            self._servers.append(await asyncio.start_server(serve, sock=listening, limit=_CHUNK))
            addresses[name] = str(address)
        return addresses

    def follow(self, owner: dict[str, object] | None) -> None:
        """The owner is another one; None: there is none.

        Clients of an earlier owner are disconnected: that one may be frozen, and never say so.
        """
        found = {} if owner is None else owner.get("listeners")
        self._owner = (
            {str(name): Address.parse(str(text)) for name, text in found.items()}
            if isinstance(found, dict)
            else {}
        )
        if owner is not None:
            for task in self._passed_on:
                task.cancel()
            for timeout in self._connecting:
                timeout.reschedule(0)

    async def _serve(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        onward: asyncio.StreamWriter | None = None
        try:
            peer = writer.get_extra_info("peername")
            back, onward = await self._reach(name)
            if self._announces:
                onward.write(proxy_header(peer[:2], writer.get_extra_info("sockname")[:2]))
            self.relayed += 1
            self._passed_on.add(task)
            await asyncio.gather(_copy(reader, onward), _copy(back, writer))
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # one of the two is gone, so is the other one; or the relay stops, which waits for this task
        finally:
            self._tasks.discard(task)
            self._passed_on.discard(task)
            for end in (writer, onward):
                if end is not None:
                    end.transport.abort()

    async def _reach(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the owner's listener, waiting for an owner. Raises TimeoutError."""
        if self._waiting >= _WAITING_MAX:
            raise TimeoutError
        self._waiting += 1
        try:
            async with asyncio.timeout(_WAIT_S):
                while True:
                    address = self._owner.get(name)
                    if address is not None:
                        try:
                            reader, writer = await self._connect(address)
                        except (OSError, TimeoutError) as error:
                            _LOG.debug("the owner cannot be reached at %s: %s", address, error)
                        else:
                            found = writer.get_extra_info("socket")
                            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                            return reader, writer
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._waiting -= 1

    async def _connect(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError, TimeoutError: nobody answers in time, or there is another owner."""
        async with asyncio.timeout(_CONNECT_S) as timeout:
            self._connecting.add(timeout)
            try:
                return await asyncio.open_connection(address.host, address.port, limit=_CHUNK)
            finally:
                self._connecting.discard(timeout)

    async def stop(self) -> None:
        """Close the listeners and all connections: clients come again, to the owner or to this node."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        target.write(data)
        await target.drain()
    if target.can_write_eof() and not target.transport.is_closing():
        target.write_eof()
