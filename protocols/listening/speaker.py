"""Connections whose first bytes decide what they speak: the speaker of a connection can be replaced.

A `Speaker` is one protocol on one connection. It drives a sans-IO session: after each call into the session,
`look` carries out what that wants. It owns the timer of the close and the checking of the password; every
decision is the session's. A `SpokenConnection` hands each event of its socket to its speaker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from penstock.errors import PenstockError
from penstock.protocols.login.logins import Credentials, remembered, verified
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_context import ConnectionContext
from penstock.protocols.net.connection_info import ConnectionInfo, Totals, WindowInfo
from penstock.protocols.net.emptying import empty
from penstock.router.authorization.identity import Identity
from penstock.router.broker import Broker

if TYPE_CHECKING:
    from penstock.router.authentication.users import ScramLogin

__all__ = ["Speaker", "SpokenConnection"]

_CLOSE_TIMEOUT_S: Final = 10.0
"""How long a client has to answer a close before its socket is closed."""


class LoginWanted(Credentials, Protocol):
    """A login to be checked."""

    @property
    def anonymous(self) -> bool:
        """There is no name."""

    @property
    def scram(self) -> ScramLogin | None:
        """The exchange whose last message the password is."""


class DrivenSession(Protocol):
    """A session, as far as a speaker drives it. Its states are those that `Speaker` names."""

    elsewhere: int | None
    """The worker that serves the vhost which the client opens."""
    ended: str | None
    """Why the connection is to be closed; None: it is not."""
    blocked: bool
    """The next message waits for the log."""
    certificate_user: str | None

    @property
    def state(self) -> Enum: ...
    @property
    def failure(self) -> str: ...
    @property
    def identity(self) -> Identity: ...

    def take_login(self) -> LoginWanted | None:
        """A login that is to be checked now."""

    def take_waits(self) -> tuple[int, int]:
        """(LSN that must be written, LSN that must be synced) before `durable` has work to do; 0 = none."""

    def authenticated(self, identity: Identity) -> None: ...
    def refused(self, error: PenstockError) -> None: ...
    def receive(self, buffer: bytearray, size: int) -> int: ...
    def lost(self) -> None: ...
    def writable(self) -> None: ...
    def durable(self, ok: bool) -> None: ...
    def backpressure(self, paused: bool) -> None: ...
    def shutdown(self) -> None: ...
    def force_close(self, reason: str) -> None: ...
    def totals(self) -> Totals: ...


S = TypeVar("S", bound=DrivenSession)


class Speaker(Generic[S]):
    """See the module; a protocol fills in the rest."""

    spoken = ""
    """Protocol and version, as metrics call them."""

    def __init__(
        self, connection: Connection, broker: Broker, session: S, states: type[Enum], *, anonymous: bool
    ) -> None:
        """`states` has HEADER, RUNNING, CLOSING and ENDED. `anonymous`: from everywhere."""
        self.connection = connection
        self.session = session
        session.certificate_user = connection.certificate_user
        self._broker = broker
        self._header, self._running = states["HEADER"], states["RUNNING"]
        self._closing, self._over = states["CLOSING"], states["ENDED"]
        self._anonymous = anonymous
        self._login: asyncio.Task[None] | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._waits: set[str] = set()

    # Filled in by a protocol

    def want(self) -> int:
        """Bytes of the frame in front, when a read has not all of it."""
        raise NotImplementedError

    def place(self) -> tuple[str, str]:
        """The vhost, and the client's name for itself, once the session runs."""
        raise NotImplementedError

    def clock(self, now: float) -> None:
        """About once a second, for heartbeats."""
        raise NotImplementedError

    def message_counts(self) -> tuple[int, int]:
        """Messages received from and delivered to the peer."""
        raise NotImplementedError

    def info(self) -> ConnectionInfo | None:
        """A description; None while nobody is logged in."""
        raise NotImplementedError

    def windows(self) -> list[WindowInfo]:
        """Of its consumers that have unsettled deliveries."""
        raise NotImplementedError

    # Events

    def received(self, buffer: bytearray, size: int) -> int:
        """See `Connection.received`."""
        connection, session = self.connection, self.session
        before = session.state
        consumed = session.receive(buffer, size)
        if session.elsewhere is not None:
            connection.hand_over_with(session.elsewhere, buffer, size)
            return size
        if before is not self._running:
            connection.remember(buffer, consumed)
        if before is not session.state:
            self._moved(before)
        connection.want = self.want()
        if connection.metered:
            connection.spent(consumed)
        self.look()
        connection.context.tick.schedule()
        return consumed

    def _moved(self, before: Enum) -> None:
        """The session is in another state than before the read."""
        connection, session = self.connection, self.session
        if before is self._header and session.state is not self._over:
            connection.greeted()
        if session.state is self._running and connection.user is None:
            connection.forget()
            vhost, client = self.place()
            connection.logged_in(session.identity.username, vhost=vhost, client=client)

    def look(self) -> None:
        """Carry out what the session wants."""
        connection, session = self.connection, self.session
        login = session.take_login()
        known = None if login is None or login.scram is not None else self._remembered(login)
        if known is not None:
            session.authenticated(known)
            # Bytes behind the login wait in the connection.
            connection.loop.call_soon(connection.handle_rest)
        elif login is not None:
            # Nothing of this peer is handled before its password is checked.
            connection.pause_reading("login")
            self._login = connection.begin(self._check_login(login))
        written, synced = session.take_waits()
        if written:
            connection.await_written(written)
        if synced:
            connection.await_synced(synced)
        self.pause_reading_while(session.blocked, "pressure")
        if session.ended is not None:
            self.end(session.ended)
        elif session.state is self._closing and self._close_timer is None:
            self._close_timer = connection.loop.call_later(
                _CLOSE_TIMEOUT_S, connection.abort, session.failure
            )

    def pause_reading_while(self, wanted: bool, reason: str) -> None:
        """Read no more of the peer as long as it is `wanted`."""
        if wanted:
            self._waits.add(reason)
            self.connection.pause_reading(reason)
        elif reason in self._waits:
            self._waits.remove(reason)
            self.connection.resume_reading(reason)
            self.connection.loop.call_soon(self.connection.handle_rest)

    def end(self, reason: str) -> None:
        """The session is over."""
        self.connection.close(reason)

    def _remembered(self, login: LoginWanted) -> Identity | None:
        return None if login.anonymous else remembered(self.connection, self._broker.users, login)

    async def _check_login(self, login: LoginWanted) -> None:
        connection, session = self.connection, self.session
        try:
            identity = await verified(
                connection,
                self._broker.users,
                None if login.anonymous else login,
                everywhere=self._anonymous,
                scram=login.scram,
            )
        except PenstockError as error:
            session.refused(error)
        else:
            session.authenticated(identity)
        self._login = None
        connection.resume_reading("login")
        self.look()
        # Bytes behind the login wait in the connection.
        connection.loop.call_soon(connection.handle_rest)

    def lost(self) -> None:
        """The transport is gone."""
        if self._login is not None:
            self._login.cancel()
        if self._close_timer is not None:
            self._close_timer.cancel()
        self.session.lost()
        self.connection.context.tick.schedule()

    def let_go(self) -> None:
        """Break the cycles; the speaker is not used any more."""
        if self.session.state is self._header:
            empty(self.session, self)
        else:
            # A callback of the log may still call the session: nothing happens then.
            del self.session


class SpokenConnection(Connection):
    """See the module."""

    speaker: Speaker[Any]

    def __init__(
        self, context: ConnectionContext, speaker: Callable[[SpokenConnection], Speaker[Any]]
    ) -> None:
        super().__init__(context)
        self.speaker = speaker(self)

    def received(self, buffer: bytearray, size: int) -> int:
        return self.speaker.received(buffer, size)

    def on_secure(self, user: str | None) -> None:
        self.speaker.session.certificate_user = user

    def on_lost(self) -> None:
        self.speaker.lost()

    def let_go(self) -> None:
        super().let_go()
        self.speaker.let_go()
        del self.speaker

    def on_writable(self) -> None:
        self.speaker.session.writable()
        self.speaker.look()

    def on_durable(self, ok: bool) -> None:
        self.speaker.session.durable(ok)
        self.speaker.look()

    def on_backpressure(self, paused: bool) -> None:
        self.speaker.session.backpressure(paused)
        self.speaker.look()

    def on_shutdown(self) -> None:
        self.speaker.session.shutdown()
        self.speaker.look()
        self.flush()

    def on_clock(self, now: float) -> None:
        self.speaker.clock(now)

    def message_counts(self) -> tuple[int, int]:
        return self.speaker.message_counts()

    @property
    def spoken(self) -> str:
        return self.speaker.spoken

    def totals(self) -> Totals:
        totals: Totals = self.speaker.session.totals()
        return totals

    def info(self) -> ConnectionInfo | None:
        return self.flowing(self.speaker.info())

    def windows(self) -> list[WindowInfo]:
        return self.speaker.windows()

    def force_close(self, reason: str) -> None:
        self.speaker.session.force_close(reason)
