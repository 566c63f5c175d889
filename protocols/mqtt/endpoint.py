"""MQTT over TCP, TLS and WebSocket: the listeners, and the asyncio side of each connection.

`serve` is what the composition root calls. A connection hands the bytes of a read to its `Session` and runs
what needs a loop for it: the login, the keep-alive timer, the timers of sessions without a connection.
Everything that connections of all protocols share is in `penstock.protocols.net.connection`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from penstock.config import Address
from penstock.errors import StartError
from penstock.logs import fields
from penstock.protocols.listening.front_end import FrontEnd
from penstock.protocols.listening.websocket_rules import WebSocketRules
from penstock.protocols.mqtt._connection_lifecycle import MqttLifecycle
from penstock.protocols.mqtt.auth.acl import AclFile
from penstock.protocols.mqtt.auth.amqtt_host import AmqttHost
from penstock.protocols.mqtt.clients.clients import Clients
from penstock.protocols.mqtt.codec import reasons
from penstock.protocols.mqtt.codec._shared_packets import forget_runs
from penstock.protocols.mqtt.connection_info import connection_facts, totals, windows
from penstock.protocols.mqtt.definitions import SessionDefinitions
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.mqtt.publishing.sys_topics import Counts, SysTopics
from penstock.protocols.mqtt.session._connecting import split_user_name, vhost_of
from penstock.protocols.mqtt.subscriptions.shared import filter_of
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_context import ServerOptions, wire
from penstock.protocols.net.connection_info import ConnectionInfo, Totals, WindowInfo
from penstock.protocols.net.process_context import ProcessContext
from penstock.router.errors import AuthenticationRefused

if TYPE_CHECKING:
    from penstock.router.authentication.users import ScramLogin
    from penstock.router.authorization.identity import Identity
    from penstock.router.authorization.permissions import TopicOperation
    from penstock.router.authorization.topic_rules import TopicGuard
    from penstock.router.broker import Broker

__all__ = ["MqttFrontEnd", "serve"]

logger: Final = logging.getLogger("penstock.mqtt")

PINGRESP: Final = b"\xd0\0"


class MqttConnection(MqttLifecycle, Connection):
    """One TCP connection with an MQTT client: the host of its session."""

    # Called by MqttLifecycle

    def guarded_by(self, guard: TopicGuard) -> None:
        if isinstance(guard, AmqttHost):
            self._amqtt = guard

    def slow_down(self, wait_s: float) -> None:
        if wait_s and not self.closing:
            self.pause_reading("rate")
            self.loop.call_later(wait_s, self.resume_reading, "rate")

    # Called by Connection

    def on_backpressure(self, paused: bool) -> None:
        self._backpressure = paused
        self.quick = None
        self._check_pressure()
        if not paused and "pressure" in self._pause_reasons:
            self.resume_reading("pressure")
            self.loop.call_soon(self.handle_rest)

    def _check_pressure(self) -> None:
        """Pause a client that publishes now: everything in front of that PUBLISH is still handled.

        Acknowledgements free what is short, so they go on, also of a client that published before.
        """
        if self.session.stop_publishes(self._backpressure):
            self.pause_reading("pressure")

    def resume_reading(self, reason: str) -> None:
        super().resume_reading(reason)
        if not self.reading_paused and not self.closing:
            self.session.alive(self.last_read_at)

    def on_clock(self, now: float) -> None:
        keep_alive_s = self.session.keep_alive_s
        if not keep_alive_s:
            return
        if now - self.last_read_at >= 1.5 * keep_alive_s:
            self.session.alive(now if self.reading_paused else self.last_read_at)
            self.session.handle_deadline(now)
        # The pings of a publisher that is paused lie unread in the socket. It gets answers all the same, or
        # it would take us for dead, come again, and be paused again.
        if (
            (self._backpressure or self.slowed)
            and self.reading_paused
            and now - self.last_write_at >= keep_alive_s / 2
            and not self.closing
        ):
            self.out.write(PINGRESP)
            self.flush()

    def on_shutdown(self) -> None:
        self.session.shutdown()

    def totals(self) -> Totals:
        return totals(self.session)

    def info(self) -> ConnectionInfo | None:
        return self.flowing(connection_facts(self.session))

    def windows(self) -> list[WindowInfo]:
        return windows(self.session)

    def force_close(self, reason: str) -> None:
        self.session.force_close(reason)

    # Called by Session

    def judge(self, user_name: str | None, password: bytes | None) -> None:
        if self._amqtt is not None:
            self.greeted()
            self.pause_reading("login")
            self._login = self.begin(self._admit(self._amqtt, user_name, password))
            return
        users = self._clients.broker.users
        if self.vouched is not None and user_name == self.vouched.username and not password:
            users.let_in("mqtt")
            self._let_in(self.vouched)
            return
        loopback = self.local
        if user_name is None and self._options.cert_login and self.certificate_user is not None:
            try:
                with users.attempt("mqtt", self.peer_host):
                    identity = users.certified(self.certificate_user, loopback)
                self._let_in(identity)
            except AuthenticationRefused as error:
                self.session.refused(reasons.BAD_USER_NAME_OR_PASSWORD, error.message)
            return
        if user_name is None or self._is_unchecked(user_name, password):
            self.unchecked(self._allowed(user_name))
            return
        known = users.remembered(user_name, password or b"", loopback, peer=self.peer_host)
        if known is not None:
            users.let_in("mqtt")
            self._let_in(known)
            return
        self.greeted()
        self.pause_reading("login")
        self._login = self.begin(self._verify(user_name, password or b"", loopback))

    def _is_unchecked(self, user_name: str, password: bytes | None) -> bool:
        """Whether this login is that of nobody the gateway knows, and let in all the same."""
        allowed = self._options.allow_any_login
        if allowed is False or not (allowed is True or self.local):
            return False
        return self._clients.broker.users.is_stranger(user_name, password or b"")

    def _allowed(self, user_name: str | None) -> Literal["loopback"] | bool:
        """The places from which a client without a name, or with an unchecked one, is let in."""
        return self._options.allow_anonymous if user_name is None else self._options.allow_any_login

    async def _verify(self, user_name: str, password: bytes, loopback: bool) -> None:
        users = self._clients.broker.users
        identity: Identity | None = None
        refusal = 0, ""
        try:
            with users.attempt("mqtt", self.peer_host):
                identity = await users.authenticate(user_name, password, loopback, peer=self.peer_host)
        except AuthenticationRefused as error:
            busy = error.reason in ("busy", "limit")
            refusal = reasons.SERVER_BUSY if busy else reasons.BAD_USER_NAME_OR_PASSWORD, error.message
        if self.closing:
            return
        self._login = None
        if identity is None:
            self.session.refused(*refusal)
            return
        self._enter(identity)

    def _enter(self, identity: Identity) -> None:
        self._let_in(identity)
        self.resume_reading("login")
        if not self.closing:
            # Input behind CONNECT lies in the connection: handle it as if it had come now.
            self.get_buffer(-1)
            self.buffer_updated(0)

    async def _admit(self, host: AmqttHost, user_name: str | None, password: bytes | None) -> None:
        """A login with amqtt's plugins: theirs, or ours when they leave it to us."""
        users, connect = self._clients.broker.users, self.session.connect
        assert connect is not None
        client = host.client(connect.client_id, user_name, password, self.peer_host)
        identity: Identity | None = None
        refusal = reasons.BAD_USER_NAME_OR_PASSWORD, "the plugins did not let it in"
        if host.authenticates:
            name = user_name or ""
            try:
                await users.wait_turn(name, self.peer_host, self.local)
                is_right = await host.authenticate(client)
            except AuthenticationRefused as error:
                is_right, refusal = False, (reasons.SERVER_BUSY, error.message)
            else:
                (users.succeeded if is_right else users.failed)(self.peer_host, name)
            if is_right:
                user = self._options.amqtt_user or users.default_user
                identity = users.identity(user)
                refusal = reasons.NOT_AUTHORIZED, f"there is no user {user!r} (mqtt.amqtt_user)"
                if identity is None:
                    logger.warning("%s, whose rights clients are to have", refusal[1])
            if identity is None:
                users.refused("mqtt", AuthenticationRefused(user_name or "", "plugins"), self.peer_host)
        else:
            try:
                with users.attempt("mqtt", self.peer_host):
                    identity = await self._known_here(user_name, password)
            except AuthenticationRefused as error:
                logger.debug("refused: %s", error)
        if identity is not None and connect.will is not None:
            await host.ask_about_will(identity.of_client(connect.client_id), client, connect.will.topic)
        if self.closing:
            return
        self._login = None
        if identity is None:
            self.session.refused(*refusal)
            return
        place = vhost_of(connect), connect.client_id
        before = host.admit(*place, client)
        self._amqtt_client = client
        self._enter(identity)
        if not self._is_open:
            host.take_back(*place, before)

    async def _known_here(self, user_name: str | None, password: bytes | None) -> Identity:
        """The identity of a login by our own users. Raises AuthenticationRefused."""
        if user_name is not None and not self._is_unchecked(user_name, password):
            users = self._clients.broker.users
            return await users.authenticate(user_name, password or b"", self.local, peer=self.peer_host)
        return self.anonymous(self._allowed(user_name))

    def ask(self, identity: Identity, operation: TopicOperation, topics: list[str]) -> bool:
        """Have amqtt's plugins decide, if they have not yet; nothing is read meanwhile."""
        host = self._amqtt
        wanted = [filter_of(topic) for topic in topics] if operation == "read" else topics
        vhost = self.session.vhost.name
        if host is None or host.knows(identity, vhost, operation, wanted):
            return False
        self.pause_reading("plugins")
        self._login = self.begin(host.ask(identity, vhost, operation, wanted))
        self._login.add_done_callback(self._decided)
        return True

    def _decided(self, task: asyncio.Task[None]) -> None:
        self._login = None
        if self.closing or task.cancelled():
            return
        self.session.decided()
        self.resume_reading("plugins")
        self.handle_rest()

    def pause(self, seconds: float, then: Callable[[], None]) -> None:
        """Go on with the login later."""
        self.pause_reading("login")
        self._login = self.begin(self._pause(seconds, then))

    async def _pause(self, seconds: float, then: Callable[[], None]) -> None:
        await asyncio.sleep(seconds)
        if self.closing:
            return
        self._login = None
        then()
        self.resume_reading("login")
        self.handle_rest()

    def scram(self) -> ScramLogin:
        """A login by SCRAM that begins with the client's next message."""
        if self.user is None:
            self.greeted()
        users = self._clients.broker.users
        return users.scram("mqtt", self.local, lambda name: split_user_name(name)[1], peer=self.peer_host)

    def admitted_as(self, client_id: str) -> None:
        assert self._amqtt is not None
        place = self.session.vhost.name, client_id
        if self._amqtt_client is None:  # it logged in by AUTH
            self._amqtt.take_back(*place, None)
        else:
            self._amqtt.admit(*place, self._amqtt_client)
        self._is_open = True


class MqttFrontEnd(FrontEnd):
    """The listeners of MQTT, and the timers of all sessions."""

    clients: Clients

    def watch(self, clients: Clients) -> None:
        """Have the wills and session ends of `clients` happen in time."""
        self.clients = clients
        self._clients_timer: asyncio.TimerHandle | None = None
        clients.on_deadline = self._arm
        self._arm()

    def change_options(self, **values: object) -> None:
        """As of any front end; the rate of CONNECTs is that of all clients."""
        super().change_options(**values)
        self.clients.limit_connects(self.options.max_connect_rate)

    def counts(self) -> Counts:
        """The counts of all connections, those that are gone as well."""
        clients = self.clients
        counts = replace(clients.closed, connections=clients.accepted, sockets=clients.sockets)
        for connection in self.connections:
            assert isinstance(connection, MqttConnection)
            connection.add_to(counts)
        return counts

    def _arm(self) -> None:
        if self._clients_timer is not None:
            self._clients_timer.cancel()
            self._clients_timer = None
        due = self.clients.deadline()
        if due is not None:
            # At most a day, since the clock of the sessions may be set meanwhile.
            delay_s = min(max(due - self.clients.time(), 0.0), 86400.0)
            self._clients_timer = self.clients.tick.after(delay_s, self._fire)

    def _fire(self) -> None:
        self._clients_timer = None
        self.clients.handle_deadline()
        self._arm()

    async def drain(self, timeout: float) -> None:
        """Say goodbye to every client and write what sessions know; see `FrontEnd.drain`."""
        try:
            await super().drain(timeout)
        finally:
            self.clients.on_deadline = lambda: None
            if self._clients_timer is not None:
                self._clients_timer.cancel()
            self.clients.close()
            guard = self.clients.broker.authorizer.topic_guard
            if isinstance(guard, AmqttHost):
                guard.close()
            forget_runs()


async def serve(
    broker: Broker,
    options: MqttOptions,
    server: ServerOptions,
    loop: asyncio.AbstractEventLoop,
    shared: ProcessContext | None = None,
) -> MqttFrontEnd:
    """Listen at every configured address, until `MqttFrontEnd.drain`; `tls_listen` needs `shared.tls`.

    Raises:
        StartError: an address cannot be listened on, or the file of access rights cannot be used.

    """
    shared = shared or ProcessContext()
    context = wire(broker, server, loop, shared, logger)
    if options.acl_file:
        broker.authorizer.topic_guard = AclFile.read(options.acl_file, broker.users.default_user)
    if options.amqtt_config:
        if options.acl_file:
            raise StartError(
                "mqtt.acl_file and mqtt.amqtt_config cannot both be set",
                remedy="let a topic plugin of amqtt do what the file does, or the other way round",
            )
        broker.authorizer.topic_guard = AmqttHost(options.amqtt_config)
    if options.allow_any_login is not False:
        whose = "this machine" if options.allow_any_login == "loopback" else "any machine"
        logger.warning("mqtt.allow_any_login: clients of %s get in with any user name and password", whose)
    clients = Clients(broker, lambda: broker.log.wall_ms() / 1000, options)

    front_end = MqttFrontEnd("mqtt", context, max_connections=server.max_connections, options=options)
    connection = partial(MqttConnection, context, clients, front_end)
    front_end.definitions["mqtt_sessions"] = SessionDefinitions(clients, options)
    if options.listen:
        front_end.open("mqtt", Address.parse(options.listen), connection)
    if options.unix_listen:
        front_end.open_unix("mqtt_unix", options.unix_listen, connection, option="unix_listen")
    if options.tls_listen and shared.tls is not None:
        address = Address.parse(options.tls_listen)
        front_end.open("mqtts", address, connection, option="tls_listen", tls=shared.tls.layer("mqtt"))
    rules = WebSocketRules(
        paths=options.ws_paths,
        subprotocols=("mqtt", "mqttv3.1"),
        origins=options.ws_origins,
        mqtt_packets=True,
    )
    if options.ws_listen:
        address = Address.parse(options.ws_listen)
        front_end.open("ws", address, connection, option="ws_listen", websocket=rules)
    if options.wss_listen and shared.tls is not None:
        address = Address.parse(options.wss_listen)
        layer = shared.tls.layer("http/1.1")
        front_end.open("wss", address, connection, option="wss_listen", tls=layer, websocket=rules)
    front_end.watch(clients)
    if options.sys_interval_s:
        clients.sys = SysTopics(clients, front_end.counts)
        broker.tick.every(options.sys_interval_s, clients.sys.update)
    front_end.follow(broker.log, broker.quotas)
    logger.debug("sessions restored", extra=fields(sessions=len(clients)))
    return front_end
