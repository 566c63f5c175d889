"""AMQP on a socket: one asyncio protocol per connection around a sans-IO session, and the listener.

Owns transports, timers and the checking of passwords; every decision is the session's. After each call into
the session `_look` carries out what it wants.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Literal, Protocol

from penstock import __version__
from penstock.config import Address
from penstock.errors import PenstockError
from penstock.protocols.amqp.connection_info import connection_facts
from penstock.protocols.amqp.messages.half import serve_questions
from penstock.protocols.amqp.options import CLOSE_TIMEOUT_S, AmqpOptions
from penstock.protocols.amqp.session.session import Session
from penstock.protocols.amqp.session.state import Login, State
from penstock.protocols.listening.front_end import FrontEnd
from penstock.protocols.login.logins import verified
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_context import ConnectionContext, ServerOptions, wire
from penstock.protocols.net.connection_info import ConnectionInfo, Totals
from penstock.protocols.net.process_context import ProcessContext
from penstock.router.broker import Broker

__all__ = ["AmqpConfig", "AmqpConnection", "serve"]

logger: Final = logging.getLogger("penstock.amqp")

AMQP_1_0: Final = frozenset((b"AMQP\0\1\0\0", b"AMQP\3\1\0\0"))
"""Headers of AMQP 1.0: without and with SASL."""


class AmqpConfig(Protocol):
    """The configuration's section `amqp`."""

    @property
    def address(self) -> Address | None: ...
    @property
    def tls_address(self) -> Address | None: ...
    @property
    def frame_max(self) -> int: ...
    @property
    def channel_max(self) -> int: ...
    @property
    def heartbeat_s(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def handshake_timeout_s(self) -> float: ...
    @property
    def allow_anonymous(self) -> Literal["loopback"] | bool: ...


class AmqpConnection(Connection):
    """One connection."""

    def __init__(
        self,
        context: ConnectionContext,
        broker: Broker,
        options: AmqpOptions,
        other: Callable[[Connection], None] | None = None,
    ) -> None:
        """`other` makes it a connection of another AMQP, when its header asks for it."""
        super().__init__(context)
        self._other = other
        self._broker = broker
        self._anyone_anonymous = options.allow_anonymous is True
        self._login: asyncio.Task[None] | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._blocked = False
        self._stalled = False
        self.session = Session(
            broker,
            options,
            self.out,
            version=__version__,
            owner=self,
            room=self.room,
            dirty=self.dirty,
            look=self._look,
            name=lambda: self.name,
            sink=self,
        )

    def received(self, buffer: bytearray, size: int) -> int:
        session = self.session
        before = session.state
        if before is State.HEADER and self._other is not None and bytes(buffer[: min(size, 8)]) in AMQP_1_0:
            self._other(self)
            return self.received(buffer, size)
        consumed = session.receive(buffer, size)
        if session.elsewhere is not None:
            self.hand_over_with(session.elsewhere, buffer, size)
            return size
        if before is not State.RUNNING:
            self.remember(buffer, consumed)
        if before is not session.state:
            self._moved(before)
        self.want = session.codec.want
        if self.metered:
            self.spent(consumed)
        self._look()
        self.context.tick.schedule()
        return consumed

    def _moved(self, before: State) -> None:
        """The session is in another state than before the read."""
        state = self.session.state
        if before is State.HEADER and state is not State.ENDED:
            self.greeted()
        if state is State.RUNNING and self.user is None:
            self.forget()
            name = self.session.client_properties.get("connection_name")
            self.logged_in(
                self.session.actor.identity.username, vhost=self.session.vhost.name, client=str(name or "-")
            )

    def _look(self) -> None:
        """Carry out what the session wants."""
        session = self.session
        if not self.handed_over:
            self.quick = None if self.metered else session.quick
        if session.login is not None:
            login, session.login = session.login, None
            # Nothing of this peer is handled before its password is checked.
            self.hold("login")
            self._login = self.loop.create_task(self._check_login(login))
        written, synced = session.take_waits()
        if written:
            self.await_written(written)
        if synced:
            self.await_synced(synced)
        if session.blocked:
            self._blocked = True
            self.hold("pressure")
        elif self._blocked:
            self._blocked = False
            self.release("pressure")
            self.loop.call_soon(self.handle_rest)
        if session.stalled:
            self._stalled = True
            self.hold("answers")
        elif self._stalled:
            self._stalled = False
            self.release("answers")
            self.loop.call_soon(self.handle_rest)
        if session.dropped is not None:
            self.abort(session.dropped)
        elif session.peer_closes:
            self.close_behind_peer(session.ended or "")
        elif session.ended is not None:
            self.close(session.ended)
        elif session.state is State.CLOSING and self._close_timer is None:
            self._close_timer = self.loop.call_later(CLOSE_TIMEOUT_S, self.abort, session.failure)

    async def _check_login(self, login: Login) -> None:
        try:
            identity = await verified(
                self,
                self._broker.users,
                None if login.anonymous else login,
                everywhere=self._anyone_anonymous,
            )
        except PenstockError as error:
            self.session.refused(error)
        else:
            self.session.authenticated(identity)
        self._login = None
        self.release("login")
        self._look()

    def on_secure(self, user: str | None) -> None:
        self.session.certificate_user = user

    def on_lost(self) -> None:
        if self._login is not None:
            self._login.cancel()
        if self._close_timer is not None:
            self._close_timer.cancel()
        self.session.lost()
        self.context.tick.schedule()

    def on_writable(self) -> None:
        self.session.writable()
        self._look()

    def on_durable(self, ok: bool) -> None:
        self.session.durable(ok)
        self._look()

    def on_backpressure(self, paused: bool) -> None:
        self.session.backpressure(paused)
        self._look()

    def on_shutdown(self) -> None:
        self.session.shutdown()
        self._look()
        self.flush()

    def on_clock(self, now: float) -> None:
        self.session.look_at_timeouts(now)
        interval = self.session.heartbeat_s
        if not interval or self.session.state not in (State.OPEN, State.RUNNING):
            return
        # The bytes of a held peer lie unread in the socket: its silence is ours.
        if now - self.last_read_at > 2 * interval and not self.held:
            self.abort(f"missed heartbeats: nothing came for {2 * interval} s")
        elif now - self.last_write_at >= interval / 2:
            self.session.heartbeat()
            self.flush()

    def message_counts(self) -> tuple[int, int]:
        return self.session.message_counts

    @property
    def spoken(self) -> str:
        return "amqp091"

    def totals(self) -> Totals:
        return self.session.totals()

    def info(self) -> ConnectionInfo | None:
        return self.flowing(connection_facts(self.session))

    def force_close(self, reason: str) -> None:
        self.session.force_close(reason)


async def serve(
    broker: Broker,
    amqp: AmqpConfig,
    server: ServerOptions,
    loop: asyncio.AbstractEventLoop,
    shared: ProcessContext | None = None,
    other: Callable[[Connection], None] | None = None,
) -> FrontEnd:
    """Listen at every configured address, until `FrontEnd.drain`; `amqp.tls_address` needs `shared.tls`.

    `other` serves the clients whose header is that of AMQP 1.0.

    Raises:
        StartError: an address cannot be listened on.

    """
    shared = shared or ProcessContext()
    options = AmqpOptions(
        frame_max=amqp.frame_max,
        channel_max=amqp.channel_max,
        heartbeat_s=amqp.heartbeat_s,
        max_message_bytes=amqp.max_message_bytes,
        handshake_timeout_s=amqp.handshake_timeout_s,
        allow_anonymous=amqp.allow_anonymous,
    )
    context = wire(broker, server, loop, shared, logger, login_timeout_s=options.handshake_timeout_s)

    def connection() -> Connection:
        return AmqpConnection(context, broker, options, other)

    serve_questions(broker)
    front = FrontEnd("amqp", context, max_connections=server.max_connections)
    if amqp.address is not None:
        front.open("amqp", amqp.address, connection)
    if amqp.tls_address is not None and shared.tls is not None:
        front.open("amqps", amqp.tls_address, connection, option="tls_listen", tls=shared.tls.layer())
    front.follow(broker.log, broker.quotas)
    return front
