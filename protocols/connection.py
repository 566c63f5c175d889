"""What every front end's connection shares: one TCP connection of a BufferedProtocol, no word of a protocol.

A front end derives its endpoint class from `Connection` and fills in the hooks; the listener that makes
connections is in `listener.py`.

Reading. All connections read into one arena of 256 KiB (`ARENA`): a read is handled before the next one is
asked for, so nobody else writes into it meanwhile. `received(buffer, size)` says how many bytes it consumed;
the rest (an incomplete packet) is kept by the connection and put in front of the next read. When the packet
in front needs more than the arena has, the endpoint sets `want` to its whole size and the connection reads
into a buffer of its own, which grows with what has really arrived (never by an announced size), and calls
`received` when `want` bytes are there. The endpoint checks announced sizes against its limit *before* it
sets `want`.

    read n:    +----------------------+------------------------------+-----------+
    arena      | rest of read n-1     | new bytes                    | free      |
               +----------------------+------------------------------+-----------+
                ^ received() sees one run of bytes from here on

Writing. Kernels and sessions encode into `out`; `dirty()` tells the tick, which calls `flush()` once at its
end. `room()` is what a consumer may still encode now: 0 while the transport is above the high-water mark
(`pause_writing`) or `out` holds that much. When there is room again `on_writable()` is called: the endpoint
wakes the queues of its consumers there. A peer that sends and sends without taking the answers is not read
either when far too much waits for it, and dropped when it still takes nothing.

Flow control inwards. `hold(reason)` stops reading from the socket until every reason was released. The
listener calls `on_pressure` when the log asks publishers to pause; a front end decides which of its
connections publish (consumers must go on being read, or their acknowledgements would never arrive).

Durability. `await_written(lsn)` / `await_synced(lsn)` register once per read, and `on_durable(ok)` is called
when one of them is reached; what it confirms is found by the log's `written_lsn` and `synced_lsn`.

Before login a connection is bounded in bytes and time (`Limits`); `greeted()` and `logged_in()` lift them.
INFO lines, two per connection: opened (peer, user) and closed (reason, bytes, messages).
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from penstock.logs import fields
from penstock.protocols.outbuffer import OutBuffer

__all__ = ["ARENA", "Connection", "Limits", "LogPort", "TickPort", "Wiring", "is_loopback"]

ARENA: Final = bytearray(256 * 1024)
"""Where all connections of the process read into; valid only inside one `received` call."""

_ARENA_VIEW: Final = memoryview(ARENA)
_OWN_FIRST: Final = 2 * len(ARENA)
"""First size of a connection's own buffer; it doubles as bytes arrive, up to `want`."""
# An endpoint that does not set `want` must have consumed enough to leave room for a useful read.
_REST_MAX: Final = len(ARENA) * 3 // 4

_OUTPUT_FULL: Final = 8
"""At so many high-water marks of output that the peer does not take, it is not read either. Consumers stop at
one mark, so this is answers to what it sends without reading them."""
_LINGER_S: Final = 10.0
"""How long the last output of a closed connection may take to be sent."""

_ids: Final = itertools.count(1)


_SMALL_READ: Final = 4096
"""A read of at most this many bytes may have a turn of its own."""


def is_loopback(host: str) -> bool:
    """Whether a peer with this numeric address is on this machine."""
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class LogPort(Protocol):
    """What a connection needs of the log."""

    def when_written(self, lsn: int, callback: Callable[[bool], None]) -> None: ...
    def when_synced(self, lsn: int, callback: Callable[[bool], None]) -> None: ...


class TickPort(Protocol):
    """What a connection needs of the tick: to be flushed at its end."""

    def dirty_connection(self, connection: Connection) -> None: ...
    def schedule(self) -> None: ...
    def begin_read(self) -> bool: ...
    def run(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection; sizes in bytes, times in seconds."""

    greeting_timeout_s: float = 5.0
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


@dataclass(frozen=True, slots=True)
class Wiring:
    """What all connections of a listener are connected to."""

    loop: asyncio.AbstractEventLoop
    log: LogPort
    tick: TickPort
    limits: Limits
    logger: logging.Logger


class Connection(asyncio.BufferedProtocol):
    """One TCP connection. See the module text; hooks to fill in come last."""

    def __init__(self, wiring: Wiring) -> None:
        self.id: Final = next(_ids)
        """Number of the connection in this process, from 1; in log lines."""
        self.wiring: Final = wiring
        self.loop: Final = wiring.loop
        self.out: Final = OutBuffer()
        """Output of this tick."""
        self.want = 0
        """Whole size of the incomplete packet in front of the leftover; 0 = not known or fits the arena."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.writable = True
        """False while the transport holds more than the high-water mark."""
        self.closing = False
        """No more input is handled: close() or abort() was called, or the peer went away."""
        self.reason = "the client closed the socket"
        """Why the connection ended or will end, for the closing line."""
        self.user: str | None = None
        """Who logged in; None before."""
        self.peer = "?"
        """Address of the peer as HOST:PORT."""
        self.peer_host = ""
        """Numeric address of the peer: for rules about loopback."""
        self.transport: asyncio.Transport | None = None
        self.last_read_at = self.last_write_at = wiring.loop.time()
        """Loop time of the last bytes in and out (heartbeats)."""
        self._rest = b""
        self._own: bytearray | None = None
        self._own_fill = 0
        self._holds: set[str] = set()
        self._dirty = False
        self._throttled = False
        self._stuck_since = 0.0
        self._taken = 0
        self._linger: asyncio.TimerHandle | None = None
        self._login_timer: asyncio.TimerHandle | None = None
        self._high = wiring.limits.output_high_bytes
        self.on_close: Callable[[Connection], None] | None = None
        """Called once when the connection is lost, by the listener."""

    # Transport: opening and closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transports by their methods, not by their class.
        stream = self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.peer_host = str(peer[0])
            host = f"[{peer[0]}]" if ":" in self.peer_host else self.peer_host
            self.peer = f"{host}:{peer[1]}"
        stream.set_write_buffer_limits(high=self._high)
        self._login_timer = self.loop.call_later(
            self.wiring.limits.greeting_timeout_s, self._too_slow, "no complete first packet"
        )
        self.on_open()

    def _too_slow(self, what: str) -> None:
        self.abort(f"{what} in time")

    def greeted(self) -> None:
        """The first packet was complete: what is left of the login time runs now."""
        if self._login_timer is not None:
            self._login_timer.cancel()
        limits = self.wiring.limits
        self._login_timer = self.loop.call_later(
            limits.login_timeout_s, self._too_slow, "the login was not complete"
        )

    def logged_in(self, user: str, **more: object) -> None:
        """The login is complete: lift the limits before login and write the opening line."""
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None
        self.user = user
        self.wiring.logger.info(
            "connection opened", extra=fields(connection=self.id, peer=self.peer, user=user, **more)
        )

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not self.closing:
            self.reason = f"the connection broke: {exc}"
        self.closing = True
        for timer in (self._login_timer, self._linger):
            if timer is not None:
                timer.cancel()
        self._rest = b""
        self._own = None
        try:
            self.on_lost()
        finally:
            received, sent = self.message_counts()
            self.wiring.logger.info(
                "connection closed",
                extra=fields(
                    connection=self.id,
                    peer=self.peer,
                    user=self.user or "-",
                    reason=self.reason,
                    bytes_in=self.bytes_in,
                    bytes_out=self.bytes_out,
                    messages_in=received,
                    messages_out=sent,
                ),
            )
            if self.on_close is not None:
                self.on_close(self)

    def eof_received(self) -> bool:
        self.closing = True
        return False

    def close(self, reason: str) -> None:
        """Send what was encoded, then close. Input is ignored from here on."""
        if self.transport is None or self.transport.is_closing():
            return
        if not self.closing:
            self.closing = True
            self.reason = reason
        self.flush()
        self.transport.close()
        self._linger = self.loop.call_later(_LINGER_S, self.transport.abort)

    def abort(self, reason: str) -> None:
        """Drop the connection at once; output that was not sent is lost."""
        if self.transport is None or self.transport.is_closing():
            return
        if not self.closing:
            self.closing = True
            self.reason = reason
        self.transport.abort()

    # Reading

    def get_buffer(self, sizehint: int) -> memoryview:
        own = self._own
        if own is not None:
            if self._own_fill == len(own):
                own.extend(bytes(max(min(len(own), self.want - len(own)), 4096)))
            return memoryview(own)[self._own_fill :]
        rest = self._rest
        if not rest:
            return _ARENA_VIEW
        # Kept until bytes really arrive: a read may turn out empty.
        size = len(rest)
        ARENA[:size] = rest
        return _ARENA_VIEW[size:]

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_in += nbytes
        self.last_read_at = self.loop.time()
        if self.closing:
            return
        if self.user is None and self.bytes_in > self.wiring.limits.login_bytes:
            self.abort(f"more than {self.wiring.limits.login_bytes} bytes before the login")
            return
        own = self._own
        if own is not None:
            self._own_fill += nbytes
            if self._own_fill >= self.want:
                self._handle(own, self._own_fill)
            return
        size = len(self._rest) + nbytes
        self._rest = b""
        if size == len(ARENA) and not self._holds:
            # There is more in the socket, and libuv would read on, up to 32 times: everybody else first.
            self.hold("turn")
            self.loop.call_soon(self.release, "turn")
        if size <= _SMALL_READ and self.wiring.tick.begin_read():
            try:
                self._handle(ARENA, size)
            finally:
                self.wiring.tick.run()
        else:
            self._handle(ARENA, size)

    def _handle(self, buffer: bytearray, size: int) -> None:
        self.want = 0
        try:
            consumed = self.received(buffer, size)
        except Exception:
            # The edge of the connection: a bug of ours ends this connection only.
            self.wiring.logger.exception(
                "connection dropped after an internal error",
                extra=fields(connection=self.id, peer=self.peer, user=self.user or "-"),
            )
            self.abort("internal error")
            return
        left = size - consumed
        if self.closing or left == 0:
            self._rest = b""
            self._own = None
        elif self.want > len(ARENA) or left > _REST_MAX:
            own = bytearray(max(min(self.want, _OWN_FIRST), left + 4096))
            own[:left] = memoryview(buffer)[consumed:size]
            self._own = own
            self._own_fill = left
        else:
            self._rest = bytes(memoryview(buffer)[consumed:size])
            self._own = None

    def hold(self, reason: str) -> None:
        """Stop reading until `release(reason)`; reasons add up."""
        if not self._holds and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        """Take back one reason; reading goes on when none is left."""
        if reason in self._holds:
            self._holds.discard(reason)
            if not self._holds and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def handle_rest(self) -> None:
        """Call `received` again with what it left, without waiting for more from the peer."""
        if self.closing:
            return
        if self._own is not None:
            self._handle(self._own, self._own_fill)
        elif self._rest:
            size = len(self._rest)
            ARENA[:size] = self._rest
            self._rest = b""
            self._handle(ARENA, size)

    @property
    def held(self) -> bool:
        """Whether the peer is not read at the moment."""
        return bool(self._holds)

    # Writing

    def dirty(self) -> None:
        """Have `flush` called at the end of this tick."""
        if not self._dirty:
            self._dirty = True
            self.wiring.tick.dirty_connection(self)

    def flush(self) -> None:
        """Give `out` to the transport. Called by the tick."""
        self._dirty = False
        data = self.out.take()
        if data and self.transport is not None and not self.transport.is_closing():
            self.bytes_out += len(data)
            self.last_write_at = self.loop.time()
            self.transport.write(data)
            if not self.writable and self.transport.get_write_buffer_size() > _OUTPUT_FULL * self._high:
                self._stuck_since = self.last_write_at
                self.hold("output")
        if self._throttled and self.writable:
            self._throttled = False
            # Not from inside the flush: waking a queue here would run its pump in the middle of the tick.
            self.loop.call_soon(self._writable_again)

    def room(self) -> int:
        """Bytes a consumer may still encode in this tick; 0 = wait for `on_writable`."""
        if self.closing:
            return 0
        left = self._high - self.out.size if self.writable else 0
        if left <= 0:
            self._throttled = True
            return 0
        return left

    def pause_writing(self) -> None:
        self.writable = False
        self._throttled = True

    def resume_writing(self) -> None:
        self.writable = True
        self.release("output")
        self._throttled = False
        self._writable_again()

    def _writable_again(self) -> None:
        if not self.closing and self.writable:
            self.on_writable()

    # Durability

    def await_written(self, lsn: int) -> None:
        """Have `on_durable` called when everything up to `lsn` is written."""
        self.wiring.log.when_written(lsn, self._durable)

    def await_synced(self, lsn: int) -> None:
        """Have `on_durable` called when everything up to `lsn` is on the disk."""
        self.wiring.log.when_synced(lsn, self._durable)

    def _durable(self, ok: bool) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.on_durable(ok)

    # Time

    def check(self, now: float) -> None:
        """Called by the listener about once a second: `now` is loop time."""
        if "output" in self._holds and self.transport is not None:
            taken = self.bytes_out - self.transport.get_write_buffer_size()
            if taken != self._taken:
                self._taken = taken
                self._stuck_since = now
            elif now - self._stuck_since > self.wiring.limits.output_stuck_s:
                self.abort(f"took none of its output for {self.wiring.limits.output_stuck_s:.0f} s")
                return
        if not self.closing:
            self.on_clock(now)

    # Hooks

    def received(self, buffer: bytearray, size: int) -> int:
        """Handle buffer[0:size] and return how many bytes of it are done with.

        `buffer` is valid only during the call. Set `want` when the incomplete packet in front is larger than
        the arena. After the call nothing may refer to `buffer`.
        """
        raise NotImplementedError

    def on_open(self) -> None:
        """The transport is there (`peer`, `peer_host` are set)."""

    def on_lost(self) -> None:
        """The transport is gone: give back what the connection held."""

    def on_writable(self) -> None:
        """There is room for output again: wake the queues of this connection's consumers."""

    def on_durable(self, ok: bool) -> None:
        """A position that was awaited is reached; False = the log failed, nothing more may be confirmed."""

    def on_pressure(self, paused: bool) -> None:
        """The log asks publishers to pause, or lets them go on."""

    def on_shutdown(self) -> None:
        """The gateway stops: say goodbye in the protocol's words and close."""
        self.close("the gateway stops")

    def on_clock(self, now: float) -> None:
        """About once a second, for heartbeats; `now` is loop time in seconds."""

    def message_counts(self) -> tuple[int, int]:
        """Messages received from and delivered to the peer."""
        return 0, 0
