"""MQTT over TCP: the listener, and the asyncio side of each connection.

`serve` is what the composition root calls. A connection hands the bytes of a read to its `Session` and runs
what needs a loop for it: the login, the keep-alive timer, the timers of sessions without a connection.
Everything that connections of all protocols share is in `penstock.protocols.connection`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from penstock.logs import fields
from penstock.protocols.connection import Connection, Limits, Wiring, is_loopback
from penstock.protocols.listener import Listener, listening_socket
from penstock.protocols.mqtt import reasons
from penstock.protocols.mqtt._deliver import forget_runs
from penstock.protocols.mqtt.clients import Clients
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.mqtt.session import Session
from penstock.router.errors import AuthenticationRefused

if TYPE_CHECKING:
    from penstock.router.broker import Broker
    from penstock.router.identity import Identity

__all__ = ["MqttListener", "serve"]

logger: Final = logging.getLogger("penstock.mqtt")


class ServerOptions(Protocol):
    """What of the configuration's section `server` matters here."""

    @property
    def output_buffer_bytes(self) -> int: ...
    @property
    def max_connections(self) -> int: ...


class MqttConnection(Connection):
    """One TCP connection with an MQTT client: the host of its session."""

    def __init__(self, wiring: Wiring, clients: Clients, options: MqttOptions) -> None:
        super().__init__(wiring)
        self._clients = clients
        self._options = options
        self._timer: asyncio.TimerHandle | None = None
        self._login: asyncio.Task[None] | None = None
        self._pressure = False
        self.session = Session(self, clients, options)

    # What Connection calls

    def received(self, buffer: bytearray, size: int) -> int:
        consumed = self.session.receive(buffer, size, self.last_read_at)
        self.want = self.session.want
        if self._pressure and self.session.publishes:
            self.hold("pressure")
        return consumed

    def on_lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._login is not None:
            self._login.cancel()
        self.session.lost()

    def on_writable(self) -> None:
        self.session.writable()

    def on_durable(self, ok: bool) -> None:
        self.session.durable(ok)

    def on_pressure(self, paused: bool) -> None:
        self._pressure = paused
        if not paused:
            self.release("pressure")
        elif self.session.publishes:
            # Others go on being read: their acknowledgements are what frees the disk.
            self.hold("pressure")

    def on_shutdown(self) -> None:
        self.session.shutdown()

    def message_counts(self) -> tuple[int, int]:
        return self.session.counts()

    # What Session calls

    def login(self, user_name: str | None, password: bytes | None) -> None:
        """Verify; the session is told at once or, after a slow hash, later; nothing is read until then."""
        self.greeted()
        users = self._clients.broker.users
        loopback = is_loopback(self.peer_host)
        if user_name is None:
            allowed = self._options.allow_anonymous
            try:
                if allowed is False:
                    raise AuthenticationRefused("", "anonymous")
                self.session.logged_in(users.anonymous(loopback, everywhere=allowed is True))
            except AuthenticationRefused as error:
                self.session.refused(reasons.NOT_AUTHORIZED, error.message)
            return
        self.hold("login")
        self._login = self.loop.create_task(self._verify(user_name, password or b"", loopback))

    async def _verify(self, user_name: str, password: bytes, loopback: bool) -> None:
        try:
            identity: Identity | None = await self._clients.broker.users.authenticate(
                user_name, password, loopback, peer=self.peer_host
            )
        except AuthenticationRefused as error:
            identity = None
            why = error
        if self.closing:
            return
        self._login = None
        if identity is None:
            busy = why.reason == "busy"
            self.session.refused(
                reasons.SERVER_BUSY if busy else reasons.BAD_USER_NAME_OR_PASSWORD, why.message
            )
            return
        self.session.logged_in(identity)
        self.release("login")
        if not self.closing:
            # What came behind CONNECT lies in the connection: handle it as if it had come now.
            self.get_buffer(-1)
            self.buffer_updated(0)

    def opened(self, user: str, client_id: str, version: int) -> None:
        """The client is connected."""
        self.logged_in(user, client=client_id, version={3: "3.1", 4: "3.1.1", 5: "5.0"}[version])

    def deadline_changed(self) -> None:
        """Arm the keep-alive timer. It is armed anew when it fires, not at each read."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.session.deadline()
        if due is not None:
            self._timer = self.loop.call_at(due, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        now = self.loop.time()
        if self.held:
            self.session.alive(now)
        self.session.handle_deadline(now)
        self.deadline_changed()

    def end(self, reason: str) -> None:
        """Send what is encoded, then close."""
        self.close(reason)


class MqttListener(Listener):
    """The listening socket of MQTT, its connections, and the timers of all sessions."""

    clients: Clients

    def watch(self, clients: Clients) -> None:
        """Have the wills and session ends of `clients` happen in time."""
        self.clients = clients
        self._clients_timer: asyncio.TimerHandle | None = None
        clients.on_deadline = self._arm
        self._arm()

    def _arm(self) -> None:
        if self._clients_timer is not None:
            self._clients_timer.cancel()
            self._clients_timer = None
        due = self.clients.deadline()
        if due is not None:
            # At most a day, since the clock of the sessions may be set meanwhile.
            delay_s = min(max(due - time.time(), 0.0), 86400.0)
            self._clients_timer = self._loop.call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._clients_timer = None
        self.clients.handle_deadline()
        self._arm()

    async def drain(self, timeout: float) -> None:
        """Say goodbye to every client and write what sessions know; see `Listener.drain`."""
        await super().drain(timeout)
        self.clients.on_deadline = lambda: None
        if self._clients_timer is not None:
            self._clients_timer.cancel()
        self.clients.close()
        forget_runs()


async def serve(
    broker: Broker, options: MqttOptions, server: ServerOptions, loop: asyncio.AbstractEventLoop
) -> MqttListener:
    """Listen at `options.listen`.

    Returns:
        The listener: `.address`, `.stop_accepting()`, `await .drain(timeout)`.

    Raises:
        StartError: the address cannot be listened on.

    """
    host, _, port = options.listen.rpartition(":")
    listening = listening_socket("mqtt", host.strip("[]"), int(port))
    limits = Limits(
        greeting_timeout_s=options.connect_timeout_s,
        login_timeout_s=options.connect_timeout_s,
        output_high_bytes=server.output_buffer_bytes,
    )
    wiring = Wiring(loop, broker.log, broker.tick, limits, logger)
    clients = Clients(broker, time.time)
    listener = MqttListener(
        listening,
        lambda: MqttConnection(wiring, clients, options),
        wiring,
        max_connections=server.max_connections,
    )
    listener.watch(clients)
    broker.log.on_pressure.append(listener.pressure)
    logger.debug("sessions restored", extra=fields(sessions=len(clients)))
    return listener
