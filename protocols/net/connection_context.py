"""The context of a connection, from process and front end: its loop, log and tick, and its bounds."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from penstock.lazy_dataclass import dataclass
from penstock.protocols.net.admitting._login_timeout import LoginTimes
from penstock.protocols.net.admitting.admission import Admission
from penstock.protocols.net.buffers import Buffers
from penstock.protocols.net.open_socket import OpenSocket
from penstock.protocols.net.process_context import ProcessContext
from penstock.protocols.workers.handover import HandoverSockets
from penstock.router.limits.rate_quotas import Rates
from penstock.subscriptions.tick._tick import TickBase

if TYPE_CHECKING:
    from penstock.router.broker import Broker

__all__ = ["Closed", "ConnectionContext", "Limits", "LogPort", "ServerOptions", "wire"]


_CLOSED_KEPT: Final = 200


class LogPort(Protocol):
    """The part of the log that a connection needs."""

    def when_written(self, lsn: int, callback: Callable[[bool], None]) -> None:
        """Call `callback(True)` once `lsn` is in the page cache; False: the log failed."""

    def when_synced(self, lsn: int, callback: Callable[[bool], None]) -> None:
        """Call `callback(True)` once `lsn` is on the disk; False: the log failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection; sizes in bytes, times in seconds."""

    greeting_timeout_s: float = 10.0
    """The first packet (or protocol header) must be complete after this time."""
    login_timeout_s: float = 10.0
    """The login must be complete after this time."""
    login_bytes: int = 65536
    """Most bytes read before the login is complete."""
    output_high_bytes: int = 1 << 20
    """High-water mark of what waits to be sent; above it consumers get nothing."""
    output_stuck_s: float = 30.0
    """A connection that takes nothing for so long is dropped when its output is far above the mark. One that
    is merely above it costs no more than the mark, and may be a consumer busy with a message."""


class Closed(NamedTuple):
    """A connection that has ended, of a client that had logged in."""

    name: str
    user: str
    vhost: str
    spoken: str
    """As `Connection.spoken`."""
    opened_at: float
    closed_at: float
    """Both in seconds since the epoch."""
    reason: str


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """The shared parts of all connections of a listener."""

    loop: asyncio.AbstractEventLoop
    log: LogPort
    tick: TickBase
    limits: Limits
    logger: logging.Logger
    admission: Admission = field(default_factory=Admission)
    buffers: Buffers = field(default_factory=Buffers)
    """Both are shared by all listeners of the process."""
    handover: HandoverSockets | None = None
    """The ways to the other workers; None: there are none."""
    host_names: frozenset[str] = frozenset()
    """Names of this gateway in URLs; see `browser.own_host`."""
    rates: Rates | None = None
    """How much clients may publish per second; None: as much as they like."""
    open_sockets: dict[str, OpenSocket] = field(default_factory=dict)
    """As of `ProcessContext`."""
    closed: deque[tuple[Any, ...]] = field(default_factory=lambda: deque(maxlen=_CLOSED_KEPT))
    """The connections that ended last, the newest at the end; each has the values of a `Closed`."""
    logins: LoginTimes = field(init=False)
    """Of the connections whose client is not known yet."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "logins", LoginTimes(self.loop))


class ServerOptions(Protocol):
    """Options of the section `server` that matter to front ends."""

    @property
    def output_buffer_bytes(self) -> int:
        """`Limits.output_high_bytes`."""

    @property
    def max_connections(self) -> int:
        """Of each front end; 0: no limit."""

    @property
    def login_timeout_s(self) -> float:
        """`Limits.login_timeout_s`."""

    @property
    def output_stuck_s(self) -> float:
        """`Limits.output_stuck_s`."""


def wire(
    broker: Broker,
    server: ServerOptions,
    loop: asyncio.AbstractEventLoop,
    shared: ProcessContext,
    logger: logging.Logger,
    *,
    login_timeout_s: float | None = None,
) -> ConnectionContext:
    """The wiring of a front end's connections; see `Limits` for the times. None: the server's option."""
    login_s = server.login_timeout_s if login_timeout_s is None else login_timeout_s
    limits = Limits(
        greeting_timeout_s=login_s,
        login_timeout_s=login_s,
        output_high_bytes=server.output_buffer_bytes,
        output_stuck_s=server.output_stuck_s,
    )
    return ConnectionContext(
        loop,
        broker.log,
        broker.tick,
        limits,
        logger,
        shared.admission,
        shared.buffers,
        shared.handover,
        shared.host_names,
        broker.rates,
        shared.open_sockets,
    )
