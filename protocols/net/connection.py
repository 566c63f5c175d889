"""The base of every front end's connection: one TCP connection of a BufferedProtocol, without any protocol.

A front end derives its endpoint class from `Connection` and fills in the hooks; the listener that makes
connections is in `listener.py`.

Reading. All connections read into one arena of 256 KiB (`ARENA`): a read is handled before the next one is
asked for, so nobody else writes into it meanwhile. `received(buffer, size)` says how many bytes it consumed;
the rest (an incomplete packet) is kept by the connection and put in front of the next read. When the packet
in front needs more than the arena has, the endpoint sets `want` to its whole size and the connection reads
into a buffer of its own, which grows with what has really arrived (never by an announced size), and calls
`received` when `want` bytes are there. It keeps that buffer for a while, and reads as much as the last large
packet had, so that one that follows is read at once and never moved. The endpoint checks announced sizes
against its limit *before* it sets `want`.

    read n:    +----------------------+------------------------------+-----------+
    arena      | rest of read n-1     | new bytes                    | free      |
               +----------------------+------------------------------+-----------+
                ^ received() sees one run of bytes from here on

Writing. Kernels and sessions encode into `out`; `dirty()` tells the tick, which calls `flush()` once at its
end. `output_capacity()` is the number of bytes that consumers may still encode now. It is 0 while the
transport is above the high-water mark (`pause_writing`) or `out` holds that much. Then `on_writable()` is
called when there is capacity again: the endpoint wakes the queues of its consumers there. A peer that sends
without taking the answers is not read while far too much waits for it, and dropped when it still takes
nothing.

Flow control inwards. `pause_reading(reason)` stops reading from the socket until `resume_reading` was called
for every reason. The listener calls `on_backpressure` when the log asks publishers to pause. A front end
decides which of its connections publish: consumers must be read, or their acknowledgements would never
arrive.

Durability. `await_written(lsn)` / `await_synced(lsn)` register once per read, and `on_durable(ok)` is called
when one of them is reached; what it confirms is found by the log's `written_lsn` and `synced_lsn`.

Before login a connection is bounded in bytes and time (`Limits`); `greeted()` and `logged_in()` lift them.
INFO lines, two per connection: opened (peer, user) and closed (reason, bytes, messages).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.log_core.errors import LogFailed
from penstock.logs import fields
from penstock.protocols.net._lifecycle import LINGER_S, Life
from penstock.protocols.net._socket import SocketTransport
from penstock.protocols.net._stream import ARENA
from penstock.protocols.net.connection_info import ConnectionInfo, Totals, WindowInfo
from penstock.protocols.net.relay import Relay
from penstock.subscriptions.cursor import _events as events

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity

__all__ = ["ARENA", "Connection"]

_GOODBYE_S: Final = 1.0
"""How long a peer that said goodbye may take to close before it is closed here."""
_INPUT_BUFFER_KEPT_S: Final = 2.0
"""How long the buffer of large packets is kept for the next one."""
_FILES_HELD_S: Final = 2.0
"""How long a peer that takes nothing keeps segments open; their bytes are read into memory then."""


class Connection(Life, asyncio.BufferedProtocol):
    """One TCP connection. See the module text; how it begins and ends is in `_lifecycle`; hooks come last."""

    # The values of most connections stand in the class: to set them anew costs time at each connect.

    certificate_user: str | None = None
    """Whom a verified client certificate names."""
    vouched: Identity | None = None
    """The user that logged in by another front end before, and need not do it again."""
    internal = False
    """The peer is another worker, on behalf of its clients."""
    is_link = False
    """The peer is a link of the gateway itself."""
    _waiting = 0
    _counted = 0

    # Logging in

    @property
    def judging(self) -> bool:
        """Whether the gateway judges a login of which the client has said all there is to say."""
        return "login" in self._pause_reasons

    @property
    def unread(self) -> bool:
        """Whether bytes of the client wait that nobody has read yet."""
        return self.transport is not None and bool(self.transport.get_extra_info("unread"))

    def appended(self, first: int, count: int) -> None:
        """One read has appended so many positions from `first` on, while events of publishing are kept."""
        if self.user:
            protocol = self.context.logger.name.rpartition(".")[2]
            events.published(
                first, count, vhost=self.vhost_name, connection=self.name, user=self.user, detail=protocol
            )

    # The end

    def close_behind_peer(self, reason: str) -> None:
        """Send what was encoded, the answer to a goodbye, and close when the peer has closed, or soon.

        A client that finds the end of the stream in the same read as the answer may take it for a lost
        connection (lapin does), so the one who said goodbye closes first, as with RabbitMQ.
        """
        if self.closing or self.transport is None or self.transport.is_closing():
            return
        self.closing = True
        self.reason = reason
        self.flush()
        self._linger = self.loop.call_later(_GOODBYE_S, self._peer_stays, self.transport)

    def _peer_stays(self, transport: asyncio.Transport) -> None:
        self._linger = self.loop.call_later(LINGER_S, transport.abort)
        transport.close()

    def abort(self, reason: str) -> None:
        """Drop the connection at once; output that was not sent is lost."""
        if self.transport is None or self.transport.is_closing():
            return
        if not self.closing:
            self.closing = True
            self.reason = reason
        self.transport.abort()

    # Reading

    def within_login_bytes(self) -> bool:
        """Whether the peer may go on; it may not when it sent too much and is not known yet."""
        # Bytes of one read behind the login, which is being checked, are no part of it.
        if (
            not self.trusted
            and self.bytes_in > self.context.limits.login_bytes
            and "login" not in self._pause_reasons
        ):
            self.abort(f"more than {self.context.limits.login_bytes} bytes before the login")
        return not self.closing

    def failed(self) -> None:
        """`received` raised: log it, and drop the connection. That the log failed is said already."""
        if isinstance(sys.exc_info()[1], LogFailed):
            self.abort("the log failed")
            return
        self.context.logger.exception(
            "connection dropped after an internal error",
            extra=fields(connection=self.id, peer=self.peer, user=self.user or "-"),
        )
        self.abort("internal error")

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do what needs a wait, such as a login; a fault in it drops the connection, as in `received`."""
        return self.loop.create_task(self._done(work))

    async def _done(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            self.failed()

    def pause_reading(self, reason: str) -> None:
        """Stop reading until `resume_reading(reason)`; reasons add up."""
        if not self._pause_reasons and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self._pause_reasons = self._pause_reasons | {reason}

    def resume_reading(self, reason: str) -> None:
        """Take back one reason; reading goes on when none is left."""
        if reason in self._pause_reasons:
            self._pause_reasons = self._pause_reasons - {reason}
            if not self._pause_reasons and self.transport is not None and not self.transport.is_closing():
                # The silence so far was ours.
                self.last_read_at = self.loop.time()
                self.transport.resume_reading()

    # Rates

    def rates_changed(self) -> None:
        """Other rates hold than before."""
        rates = self.context.rates
        metered = rates is not None and bool(self.vhost_name) and rates.hold(self.user or "", self.vhost_name)
        if not (metered or self.metered):
            return
        if metered and not self.metered:
            self._counted = self.message_counts()[0]
        self.metered = metered
        self.quick = None
        if not metered:
            self.resume_reading("rate quota")

    def spent(self, nbytes: int) -> None:
        """So many bytes were handled, of a client that is `metered`: if it publishes, it may have to wait."""
        rates = self.context.rates
        published = self.message_counts()[0]
        if rates is None or not published:
            return
        more, self._counted = published - self._counted, published
        wait_s = rates.spend(self.user or "", self.vhost_name, more, nbytes) if more else 0.0
        if wait_s:
            self.pause_reading("rate quota")
            self._rate_timer = self.loop.call_later(wait_s, self.resume_reading, "rate quota")

    @property
    def slowed(self) -> bool:
        """Whether it is not read because of a rate."""
        return "rate quota" in self._pause_reasons

    @property
    def name(self) -> str:
        """As RabbitMQ names connections: the peer's address and port, and ours."""
        host, port = self.server_address
        return f"{self.peer} -> [{host}]:{port}" if ":" in host else f"{self.peer} -> {host}:{port}"

    @property
    def reading_paused(self) -> bool:
        """Whether the peer is not read at the moment."""
        return bool(self._pause_reasons)

    # Writing

    def pause_writing(self) -> None:
        self.writable = False
        self.throttled = True

    def resume_writing(self) -> None:
        self.writable = True
        self.resume_reading("output")
        self.throttled = False
        self.writable_again()

    def writable_again(self) -> None:
        if not self.closing and self.writable:
            if self._relay is not None:
                self._relay.client_writable()
            else:
                self.on_writable()

    # To another worker

    def remember(self, buffer: bytearray, size: int) -> None:
        """buffer[0:size] is done with, and the vhost not yet known: `hand_over_with` may need it."""
        if self._history is not None:
            self._history.append(bytes(memoryview(buffer)[:size]))

    def forget(self) -> None:
        """The vhost is one of this worker's: what was remembered is not needed."""
        self._history = None

    def hand_over_with(self, worker: int, buffer: bytearray, size: int) -> None:
        """`hand_over`, with what is remembered and buffer[0:size], which came behind it."""
        self.hand_over(worker, [*(self._history or ()), bytes(memoryview(buffer)[:size])])
        self._history = None

    def hand_over(self, worker: int, reads: Sequence[bytes], *, said: int | None = None) -> None:
        """Have another worker serve the client from here on.

        `reads` are all so far, from the first byte: the other worker reads them again, and drops as much
        output as the client has got already; or the first `said` bytes. Then the connection is over here, but
        for the layers that lie below it (`relay`). Return from `received` with everything consumed.
        """
        handover, transport = self.context.handover, self.transport
        assert handover is not None and transport is not None
        self.flush()
        host, port = self.server_address
        record = {
            "kind": "client",
            "place": self.place,
            "peer": (self.peer_host, self.peer_port),
            "foreign": self.foreign,
            "server": (host, port),
            "user": self.certificate_user,
            "nonce": self.nonce,
            "reads": [len(read) for read in reads],
        }
        data = b"".join(reads)
        self.handed_over = True
        self.context.logger.info(
            "connection handed over", extra=fields(connection=self.id, peer=self.peer, to=worker)
        )
        if isinstance(transport, SocketTransport):
            given, unsent = transport.release()
            record["said"] = self.bytes_out - unsent if said is None else said
            handover.give(worker, record, given, data)
            self.closing = True
            self.loop.call_soon(self.connection_lost, None)
            return
        self.context.logins.end(self)
        self.trusted = True
        record["said"] = self.bytes_out if said is None else said
        self._relay = Relay(self, handover.pair(worker, record, data))

    # Durability

    def await_written(self, lsn: int) -> None:
        """Have `on_durable` called when everything up to `lsn` is written."""
        self.context.log.when_written(lsn, self._durable)

    def await_synced(self, lsn: int) -> None:
        """Have `on_durable` called when everything up to `lsn` is on the disk."""
        self.context.log.when_synced(lsn, self._durable)

    def _durable(self, ok: bool) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.on_durable(ok)

    # Time

    def check(self, now: float) -> None:
        """Called by the listener about once a second: `now` is loop time."""
        transport = self.transport
        if transport is None:
            return
        waiting = transport.get_write_buffer_size()
        # Bytes that we add meanwhile (a heartbeat) are no sign of life of the peer.
        if waiting < self._waiting or not waiting:
            self._stuck_since = now
        self._waiting = waiting
        if now - self.last_read_at > _INPUT_BUFFER_KEPT_S:
            self.drop_input_buffer()
        if now - self._stuck_since > _FILES_HELD_S and isinstance(transport, SocketTransport):
            transport.take_in()
        if "output" in self._pause_reasons and now - self._stuck_since > self.context.limits.output_stuck_s:
            self.abort(f"took none of its output for {self.context.limits.output_stuck_s:.0f} s")
            return
        mark = min(self.context.limits.output_high_bytes, self.context.buffers.mark)
        if mark != self.output_mark and not transport.is_closing():
            self.output_mark = mark
            transport.set_write_buffer_limits(high=mark)
        if not self.closing and not self.handed_over:
            self.on_clock(now)

    def held_bytes(self) -> int:
        """Bytes in the connection's buffers: output that waits, and input that is not complete."""
        return self.out.size + self._waiting + self.input_buffer_bytes()

    def is_stuck(self, now: float) -> bool:
        """Whether output waits of which the peer took nothing since the last look but one."""
        return self._waiting > 0 and self.stuck_s(now) > 1.5

    def stuck_s(self, now: float) -> float:
        """For how long the peer took nothing of what waits, as of the last look; `now` is loop time."""
        return now - self._stuck_since

    def waiting_bytes(self) -> int:
        """Output that the peer has not taken."""
        return self.out.size + (0 if self.transport is None else self.transport.get_write_buffer_size())

    # Hooks

    def received(self, buffer: bytearray, size: int) -> int:
        """Handle buffer[0:size] and return how many bytes of it are done with.

        `buffer` is valid only during the call. Set `want` when the incomplete packet in front is larger than
        the arena. After the call nothing may refer to `buffer`.
        """
        raise NotImplementedError

    def answer(self) -> None:
        """The messages that `quick` read are handed out: take up the answers to them."""

    def secured(self, user: str | None) -> None:
        """The TLS layer has done its handshake; see `on_secure`."""
        self.certificate_user = user
        self.on_secure(user)

    def on_secure(self, user: str | None) -> None:
        """The TLS handshake is done; `user` is whom a verified client certificate names, None without one."""

    def on_lost(self) -> None:
        """The transport is gone: give back what the connection held."""

    def on_writable(self) -> None:
        """There is room for output again: wake the queues of this connection's consumers."""

    def on_durable(self, ok: bool) -> None:
        """A position that was awaited is reached; False = the log failed, nothing more may be confirmed."""

    def on_backpressure(self, paused: bool) -> None:
        """The log or the quota of its vhost asks publishers to pause, or lets them go on; said again when it
        has not changed."""

    def on_shutdown(self) -> None:
        """The gateway stops: say goodbye in the protocol's words and close."""
        self.close("the gateway stops")

    def on_clock(self, now: float) -> None:
        """About once a second, for heartbeats; `now` is loop time in seconds."""

    def message_counts(self) -> tuple[int, int]:
        """Messages received from and delivered to the peer."""
        return 0, 0

    @property
    def spoken(self) -> str:
        """Protocol and version, as metrics call them ("mqtt50"); "" while they are not known."""
        return ""

    def totals(self) -> Totals:
        """Its totals so far."""
        received, sent = self.message_counts()
        return Totals(published=received, delivered=sent)

    def add_totals(self, sums: Totals) -> None:
        """Add its totals to those of the connections that are gone."""
        sums.add(self.totals())

    def flowing(self, info: ConnectionInfo | None) -> ConnectionInfo | None:
        """The same, which say so when a rate holds the connection."""
        if info is not None and self.slowed:
            info.state = "flow"
        return info

    def info(self) -> ConnectionInfo | None:
        """Its description; None while nobody is logged in, and for connections of no client."""
        return None

    def shut_down(self) -> None:
        """The gateway stops. Whom another worker serves hears of it from there."""
        if not self.handed_over:
            self.on_shutdown()

    def windows(self) -> list[WindowInfo]:
        """Of its consumers that have unsettled deliveries."""
        return []

    def force_close(self, reason: str) -> None:
        """Somebody who may ends it: say so in the protocol's words, and close."""
        self.close(reason)
