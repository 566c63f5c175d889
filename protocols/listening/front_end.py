"""The listeners of one protocol: plain, TLS, WebSocket. They share wiring and limits, and end together.

A front end derives from `FrontEnd` what needs more (timers, state) and opens one listener per address.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from penstock.config import Address
from penstock.protocols.listening.definitions import Part
from penstock.protocols.listening.listener import Listener, listening_socket
from penstock.protocols.listening.unix_socket import unix_socket
from penstock.protocols.listening.websocket_rules import WebSocketRules
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_context import Closed, ConnectionContext
from penstock.protocols.tls.contexts import Layer

__all__ = ["FrontEnd", "all_done"]


async def all_done(*steps: Callable[[], Awaitable[object]]) -> None:
    """Begin all steps and wait for each, whatever becomes of the others; then raise the first error."""
    for found in await asyncio.gather(*(step() for step in steps), return_exceptions=True):
        if isinstance(found, BaseException):
            raise found


class Filling(Protocol):
    """The part of the vhosts' quotas that a front end needs."""

    full: frozenset[str]
    on_change: list[Callable[[frozenset[str]], object]]


class PausingLog(Protocol):
    """The part of the log that a front end needs."""

    @property
    def on_backpressure(self) -> list[Callable[[bool], object]]: ...
    @property
    def paused(self) -> bool: ...


class FrontEnd:
    """Listeners by the names that the ready line has for them."""

    def __init__(
        self, section: str, context: ConnectionContext, *, max_connections: int = 0, options: Any = None
    ) -> None:
        """`section` is the configuration's; `max_connections` holds for each listener, 0 = no limit.

        `options` are its connections': a dataclass.
        """
        self.options = options
        """Of connections that come from now on."""
        self.listeners: Final[dict[str, Listener]] = {}
        self._section = section
        self._context = context
        self.max_connections = max_connections
        self._backpressure = False
        self._full: frozenset[str] = frozenset()
        self._sockets: dict[str, Callable[[], socket.socket]] = {}
        """The function that makes the listening socket of a listener anew, where it was."""
        self.definitions: Final[dict[str, Part]] = {}
        """Its parts of the definitions, by their key."""

    def open(
        self,
        name: str,
        address: Address,
        factory: Callable[[], Connection],
        *,
        section: str | None = None,
        option: str = "listen",
        tls: Layer | None = None,
        websocket: WebSocketRules | None = None,
    ) -> None:
        """Accept connections at `address`; `option` is its key in the section, for errors;
        `section` is another one than the front end's.

        The layers `tls` and `websocket` are put between sockets and connections; see `Listener`.

        Raises:
            StartError: the address cannot be listened on.

        """
        section = section or self._section
        shared = self._context.handover is not None
        opened = self._context.open_sockets.pop(f"{section}.{option}", None)
        if opened is None:
            listening = listening_socket(section, address.host, address.port, option=option, shared=shared)
        else:
            listening = opened.listening
        self._listen(name, listening, factory, tls, websocket)
        if opened is not None:
            self.listeners[name].welcome(opened.clients)
        port = self.listeners[name].port  # which the system may have chosen
        self._sockets[name] = partial(
            listening_socket, section, address.host, port, option=option, shared=shared
        )

    def open_unix(self, name: str, path: str, factory: Callable[[], Connection], *, option: str) -> None:
        """Accept connections at a path of the file system; they count as from 127.0.0.1.

        Raises:
            StartError: it cannot be listened on there.

        """
        self._listen(name, unix_socket(self._section, path, option=option), factory, None, None)
        self._sockets[name] = partial(unix_socket, self._section, path, option=option)

    def _listen(
        self,
        name: str,
        listening: socket.socket,
        factory: Callable[[], Connection],
        tls: Layer | None,
        websocket: WebSocketRules | None,
    ) -> None:
        listener = Listener(
            listening,
            factory,
            self._context,
            max_connections=self.max_connections,
            tls=tls,
            websocket=websocket,
            place=(self._section, name),
        )
        listener.backpressure(self._backpressure, self._full)
        self.listeners[name] = listener

    def change_max(self, max_connections: int) -> None:
        """Another limit for connections that come from now on; 0 = none."""
        self.max_connections = max_connections
        for listener in self.listeners.values():
            listener.change_max(max_connections)

    def change_options(self, **values: object) -> None:
        """Other values of these options for connections that come from now on."""
        self.options = replace(self.options, **values)

    @property
    def closed(self) -> list[Closed]:
        """Its connections that ended last, the newest first."""
        return [Closed._make(one) for one in reversed(self._context.closed)]

    @property
    def addresses(self) -> dict[str, str]:
        """HOST:PORT really listened on, by name."""
        return {name: listener.address for name, listener in self.listeners.items()}

    @property
    def port(self) -> int:
        """Port of the listener opened first."""
        return next(iter(self.listeners.values())).port

    @property
    def connections(self) -> set[Connection]:
        """Every connection that is not lost yet."""
        return {connection for listener in self.listeners.values() for connection in listener.connections}

    def backpressure(self, paused: bool, full: frozenset[str]) -> None:
        """Have publishers wait, or those to the vhosts that are `full`; passed on to every connection."""
        self._backpressure, self._full = paused, full
        for listener in self.listeners.values():
            listener.backpressure(paused, full)

    def follow(self, log: PausingLog, quotas: Filling) -> None:
        """Have publishers wait from now on while `log`, the quota of their vhost or a rate asks for it."""
        log.on_backpressure.append(lambda paused: self.backpressure(paused, quotas.full))
        quotas.on_change.append(lambda full: self.backpressure(log.paused, full))
        self.backpressure(log.paused, quotas.full)
        if self._context.rates is not None:
            self._context.rates.on_change.append(self._rates_changed)

    def _rates_changed(self) -> None:
        for connection in self.connections:
            connection.rates_changed()

    async def suspend(self, timeout: float, *, but: Collection[str] = ()) -> None:
        """Close listeners and end their connections as at a stop, all `but` these, until `resume`."""
        chosen = [listener for name, listener in self.listeners.items() if name not in but]
        for listener in chosen:
            listener.stop_accepting()
        await all_done(*(partial(listener.drain, timeout) for listener in chosen))

    def resume(self) -> None:
        """Accept connections again, at the addresses from before. Raises StartError."""
        for name, listener in self.listeners.items():
            if not listener.accepting:
                listener.reopen(self._sockets[name]())

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections stay."""
        for listener in self.listeners.values():
            listener.stop_accepting()

    async def drain(self, timeout: float) -> None:
        """End every connection in its protocol's words; cut those that are not gone in `timeout` seconds."""
        self.stop_accepting()
        await all_done(*(partial(listener.drain, timeout) for listener in self.listeners.values()))
