"""The beginning and the end of a connection. The module text is in _lifecycle.pyx."""

import asyncio
from collections.abc import Callable
from typing import Self

from penstock.protocols.net._stream import Stream
from penstock.protocols.net.connection_context import ConnectionContext
from penstock.protocols.net.relay import Relay

LINGER_S: float
"""How long the last output of a closed connection may take to be sent."""

def is_here(host: str) -> bool:
    """`addresses.is_loopback`, of an address that is often the one before."""

class Life(Stream):
    """A part of `Connection`, which derives from it and has the rest, and the hooks."""

    reason: str
    """Why the connection ended or will end, for the closing line."""
    user: str | None
    """The user who logged in; None before."""
    peer_host: str
    """Numeric address of the peer."""
    peer_port: int
    foreign: bool
    """The peer speaks for another machine, whatever its address: a browser that shows its page."""
    admitted: bool
    """It counts among the connections of its address, until it is lost."""
    server_address: tuple[str, int]
    """Address and port of this machine that the peer connected to."""
    vhost_name: str
    """Where it is logged in, if it is in a vhost."""
    on_login: Callable[[Self], None] | None
    """Called once it is logged in, by the listener."""
    on_close: Callable[[Self], None] | None
    """Called once when the connection is lost, by the listener."""
    place: tuple[str, str]
    """Front end and listener, by name."""
    nonce: str
    """Ours, of its login by SCRAM, which another worker repeats."""
    handed_over: bool
    """Another worker serves the client."""
    metered: bool
    """How much the client publishes per second has a limit."""
    _pause_reasons: frozenset[str]
    _linger: asyncio.TimerHandle | None
    _rate_timer: asyncio.TimerHandle | None
    _relay: Relay | None
    _history: list[bytes] | None
    _stuck_since: float

    def __init__(self, context: ConnectionContext) -> None: ...
    @property
    def id(self) -> int:
        """Number of the connection in this process, from 1; in log lines."""

    @property
    def context(self) -> ConnectionContext: ...
    @property
    def opened_at(self) -> float:
        """Seconds since the epoch."""

    def came_from(self, host: str, port: int, *, foreign: bool = False) -> None:
        """Say who the peer is, before there is a transport: its numeric address ("" = unknown) and port."""

    @property
    def peer(self) -> str:
        """Address of the peer as HOST:PORT."""

    @property
    def local(self) -> bool:
        """Whether rules about loopback hold for the peer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def on_open(self) -> None:
        """The transport is there (`peer`, `peer_host` are set)."""

    def greeted(self) -> None:
        """The first packet was complete: what is left of the login time runs now."""

    def logged_in(self, user: str, vhost: str = "", **more: object) -> None:
        """The login is complete: lift the limits before login and write the opening line."""

    def close(self, reason: str) -> None:
        """Send what was encoded, then close. Input is ignored from here on."""

    def eof_received(self) -> bool: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def let_go(self) -> None:
        """Break the cycles of a lost connection that nobody uses any more; a front end adds its own."""
