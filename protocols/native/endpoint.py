"""The native protocol on a socket: one asyncio protocol per connection around a sans-IO session; listeners.

Owns transports, heartbeats and the checking of passwords; every decision is the session's. After each call
into the session `_look` carries out what it wants.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from penstock.config import Address
from penstock.errors import PenstockError
from penstock.protocols.listening.front_end import FrontEnd
from penstock.protocols.login.logins import verified
from penstock.protocols.native.codec import kinds
from penstock.protocols.native.options import NativeOptions
from penstock.protocols.native.session.session import Login, Session, State
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_context import ConnectionContext, ServerOptions, wire
from penstock.protocols.net.connection_info import ConnectionInfo, Totals, WindowInfo
from penstock.protocols.net.emptying import empty
from penstock.protocols.net.process_context import ProcessContext
from penstock.router.broker import Broker

__all__ = ["NativeConnection", "serve"]

logger: Final = logging.getLogger("penstock.native")


class NativeConnection(Connection):
    """One connection."""

    def __init__(self, context: ConnectionContext, broker: Broker, options: NativeOptions) -> None:
        super().__init__(context)
        self._broker = broker
        self._options = options
        self._login: asyncio.Task[None] | None = None
        self._backpressure = False
        self._parked = False
        self.session = Session(
            broker,
            options,
            self.out,
            owner=self,
            output_capacity=self.output_capacity,
            dirty=self.dirty,
            look=self._look,
            go_on=self._go_on,
            name=lambda: self.name,
            deaf=self._is_deaf,
        )

    def received(self, buffer: bytearray, size: int) -> int:
        session = self.session
        consumed = session.receive(buffer, size)
        if session.elsewhere is not None:
            self.hand_over_with(session.elsewhere, buffer, size)
            return size
        if session.state in (State.GREETING, State.LOGIN):
            self.remember(buffer, consumed)
        self.want = session.codec.want
        if session.codec.more:
            self.pause_reading("share")
            self.loop.call_soon(self._go_on_with_share)
        if self.metered:
            self.spent(consumed)
        self._look()
        return consumed

    def _is_deaf(self) -> bool:
        """Whether it is for our sake that the peer is not read."""
        return self.reading_paused and "output" not in self._pause_reasons

    def _go_on_with_share(self) -> None:
        """With the rest of what was read, which was too much for one turn.

        Not while far too much output waits: what is asked for without reading the answers waits, too.
        """
        self._parked = "output" in self._pause_reasons
        if self._parked or self.closing:
            return
        self.handle_rest()
        if not self.session.codec.more:
            self.resume_reading("share")

    def _look(self) -> None:
        """Carry out what the session wants."""
        session = self.session
        if session.login is not None:
            login, session.login = session.login, None
            self.greeted()
            # Nothing of this peer is handled before its password is checked.
            self.pause_reading("login")
            self._login = self.begin(self._check_login(login))
        if session.codec.stalled:
            self.pause_reading("opening")
        written, synced = session.codec.take_waits()
        if written:
            self.await_written(written)
        if synced:
            self.await_synced(synced)
        if self._backpressure:
            self._check_pressure()
        if session.ended is not None:
            self.close(session.ended)

    async def _check_login(self, login: Login) -> None:
        session = self.session
        try:
            identity = await verified(self, self._broker.users, login)
        except PenstockError as error:
            session.refused_login(error)
        else:
            session.authenticated(login, identity)
            if session.state is State.RUNNING:
                self.forget()
                self.logged_in(identity.username, vhost=session.vhost.name, client=session.client)
        self._login = None
        self.resume_reading("login")
        self._look()
        # Bytes behind the login wait in the connection.
        self.loop.call_soon(self.handle_rest)

    def _go_on(self) -> None:
        """Frames for a consumer that was being opened wait in the connection."""
        self.resume_reading("opening")
        self.loop.call_soon(self.handle_rest)

    def on_secure(self, user: str | None) -> None:
        self.session.certificate_user = user

    def on_lost(self) -> None:
        if self._login is not None:
            self._login.cancel()
        self.session.lost()
        self.context.tick.schedule()

    def let_go(self) -> None:
        super().let_go()
        if self.trusted:
            self.session.let_go()
            del self.session
        else:
            empty(self.session)

    def on_writable(self) -> None:
        if self._parked:
            self._go_on_with_share()
        self.session.writable()

    def on_durable(self, ok: bool) -> None:
        self.session.durable(ok)

    def on_backpressure(self, paused: bool) -> None:
        self._backpressure = paused
        self._check_pressure()
        if not paused and "pressure" in self._pause_reasons:
            self.resume_reading("pressure")
            self.loop.call_soon(self.handle_rest)

    def _check_pressure(self) -> None:
        """Pause a client that publishes now: everything in front of that PRODUCE is still handled.

        Acknowledgements free what is short, so they go on, also of a client that published before.
        """
        codec = self.session.codec
        codec.stop_publishes = self._backpressure
        if codec.stop_publishes and codec.stopped:
            self.pause_reading("pressure")

    def on_shutdown(self) -> None:
        self.session.shutdown()
        self.flush()

    def on_clock(self, now: float) -> None:
        session, silence = self.session, now - self.last_read_at
        if session.state is not State.RUNNING or self.reading_paused or silence <= self._options.heartbeat_s:
            return
        if silence > 2 * self._options.heartbeat_s and session.pinged:
            self.abort(f"nothing came for {silence:.0f} s, not even the answer to a PING")
        elif not session.pinged:
            session.pinged = True
            session.codec.send(kinds.PING, 0, b"")
            self.flush()

    def message_counts(self) -> tuple[int, int]:
        return self.session.codec.published, self.session.codec.outgoing.delivered

    @property
    def spoken(self) -> str:
        return "native"

    def totals(self) -> Totals:
        return self.session.totals()

    def info(self) -> ConnectionInfo | None:
        session = self.session
        if session.state is not State.RUNNING:
            return None
        return ConnectionInfo(
            protocol="Penstock 1",
            user=session.identity.username,
            vhost=session.vhost.name,
            state="flow" if self.reading_paused else "running",
            client_properties={"product": session.client},
            mechanism="PLAIN",
            timeout_s=int(self._options.heartbeat_s),
            frame_max=self._options.max_frame_bytes,
            channel_max=0,
            totals=session.totals(),
            channels=[],
        )

    def windows(self) -> list[WindowInfo]:
        return [
            WindowInfo(
                tag=consumer.name or str(consumer.id),
                channel=0,
                queue=consumer.queue,
                unacknowledged=consumer.unacked,
                most=consumer.unacked_max,
                is_full=consumer.unacked >= consumer.unacked_max or consumer.messages <= 0,
                settled=consumer.acknowledged,
                got=consumer.delivered,
            )
            for consumer in self.session.codec.all_consumers()
            if consumer.unacked and consumer.queue is not None
        ]

    def force_close(self, reason: str) -> None:
        self.session.force_close(reason)


async def serve(
    broker: Broker,
    options: NativeOptions,
    server: ServerOptions,
    loop: asyncio.AbstractEventLoop,
    shared: ProcessContext | None = None,
) -> FrontEnd:
    """Listen at every address that is on, until `FrontEnd.drain`; `shared.tls` is needed for `tls_listen`.

    Raises:
        StartError: an address cannot be listened on.

    """
    shared = shared or ProcessContext()
    context = wire(broker, server, loop, shared, logger)

    def connection() -> NativeConnection:
        return NativeConnection(context, broker, front_end.options)

    front_end = FrontEnd("native", context, max_connections=server.max_connections, options=options)
    if options.listen:
        front_end.open("native", Address.parse(options.listen), connection)
    if options.tls_listen and shared.tls is not None:
        address = Address.parse(options.tls_listen)
        layer = shared.tls.layer("penstock")
        front_end.open("natives", address, connection, option="tls_listen", tls=layer)
    front_end.follow(broker.log, broker.quotas)
    return front_end
