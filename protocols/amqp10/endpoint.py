"""AMQP 1.0 on a socket: a connection of the AMQP listener whose header asked for it.

Owns timers and the checking of passwords; every decision is the session's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock import __version__
from penstock.errors import PenstockError
from penstock.protocols.amqp10.channel.outgoing import OutgoingLink
from penstock.protocols.amqp10.options import Options
from penstock.protocols.amqp10.session.session import Session
from penstock.protocols.amqp10.session.state import Login, State
from penstock.protocols.login.logins import verified
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_context import ConnectionContext
from penstock.protocols.net.connection_info import ConnectionInfo, ConsumerInfo, Totals
from penstock.router.broker import Broker

__all__ = ["Amqp10Connection", "speaker"]

logger: Final = logging.getLogger("penstock.amqp10")

_CLOSE_TIMEOUT_S: Final = 10.0


class Amqp10Connection(Connection):
    """One connection. It began as one of the listener's, and becomes this at its header."""

    def __init__(self, context: ConnectionContext, broker: Broker, options: Options) -> None:
        super().__init__(context)
        self.begin(broker, options)

    def begin(self, broker: Broker, options: Options) -> None:
        """Have a session."""
        self._broker = broker
        self._anyone_anonymous = options.allow_anonymous is True
        self._login: asyncio.Task[None] | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._blocked = False
        self.session = Session(
            broker,
            options,
            self.out,
            version=__version__,
            owner=self,
            room=self.room,
            dirty=self.dirty,
            flush=self.flush,
            look=self._look,
            name=lambda: self.name,
        )
        self.session.certificate_user = self.certificate_user

    def received(self, buffer: bytearray, size: int) -> int:
        session = self.session
        before = session.state
        consumed = session.receive(buffer, size)
        if session.elsewhere is not None:
            self.hand_over_with(session.elsewhere, buffer, size)
            return size
        if before is not State.RUNNING:
            self.remember(buffer, consumed)
        if before is State.HEADER and session.state is not State.ENDED:
            self.greeted()
        if session.state is State.RUNNING and self.user is None:
            self.forget()
            self.logged_in(
                session.identity.username, vhost=session.vhost.name, client=session.container or "-"
            )
        self.want = session.want
        if self.metered:
            self.spent(consumed)
        self._look()
        self.context.tick.schedule()
        return consumed

    def _look(self) -> None:
        """Carry out what the session wants."""
        session = self.session
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
        if session.ended is not None:
            self.close(session.ended)
        elif session.state is State.CLOSING and self._close_timer is None:
            self._close_timer = self.loop.call_later(_CLOSE_TIMEOUT_S, self.abort, session.failure)

    async def _check_login(self, login: Login) -> None:
        session = self.session
        try:
            identity = await verified(
                self,
                self._broker.users,
                None if login.anonymous else login,
                everywhere=self._anyone_anonymous,
            )
        except PenstockError as error:
            session.refused(error)
        else:
            session.authenticated(identity)
        self._login = None
        self.release("login")
        self._look()
        # Bytes behind the login wait in the connection.
        self.loop.call_soon(self.handle_rest)

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
        session = self.session
        if session.state is not State.RUNNING:
            return
        heard = session.options.heartbeat_s
        # The bytes of a held peer lie unread in the socket: its silence is ours.
        if heard and now - self.last_read_at > 2 * heard and not self.held:
            self.abort(f"nothing came for {2 * heard} s")
        elif session.idle_s and now - self.last_write_at >= session.idle_s / 2 - 0.5:
            session.heartbeat()
            self.flush()

    def message_counts(self) -> tuple[int, int]:
        return self.session.published, self.session.delivered

    @property
    def spoken(self) -> str:
        return "amqp10"

    def totals(self) -> Totals:
        return self.session.totals()

    def info(self) -> ConnectionInfo | None:
        session = self.session
        if session.state is not State.RUNNING:
            return None
        return self.flowing(
            ConnectionInfo(
                protocol="AMQP 1-0",
                user=session.identity.username,
                vhost=session.vhost.name,
                state="flow" if session.blocked else "running",
                client_properties=session.client_properties,
                mechanism=session.mechanism,
                timeout_s=int(session.idle_s),
                frame_max=session.frame_max,
                channel_max=session.options.channel_max,
                totals=session.totals(),
                channels=[],
                client_id=session.container,
                consumers=[
                    ConsumerInfo(
                        tag=link.name,
                        queue=link.queue.name,
                        ack_required=not link.settled,
                        prefetch=link.link_credit,
                        exclusive=link.queue.is_sole,
                        active=link.attached,
                    )
                    for channel in session.channels.values()
                    for link in channel.links.values()
                    if isinstance(link, OutgoingLink)
                ],
            )
        )

    def force_close(self, reason: str) -> None:
        self.session.force_close(reason)


def speaker(broker: Broker, options: Options) -> Callable[[Connection], None]:
    """A function that makes a connection of the AMQP listener one of AMQP 1.0."""

    def become(connection: Connection) -> None:
        connection.__class__ = Amqp10Connection
        assert isinstance(connection, Amqp10Connection)
        connection.begin(broker, options)

    return become
