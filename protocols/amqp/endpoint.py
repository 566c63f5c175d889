"""AMQP 0-9-1 on a socket, and the listener, which other versions of AMQP share. See `listening.speaker`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

from penstock import __version__
from penstock.config import Address
from penstock.protocols.amqp.connection_info import connection_facts, windows
from penstock.protocols.amqp.options import AmqpOptions
from penstock.protocols.amqp.session.session import Session
from penstock.protocols.amqp.session.state import State
from penstock.protocols.headers.half import serve_questions
from penstock.protocols.listening.front_end import FrontEnd
from penstock.protocols.listening.speaker import Speaker, SpokenConnection
from penstock.protocols.listening.websocket_rules import WebSocketRules
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_context import ServerOptions, wire
from penstock.protocols.net.connection_info import ConnectionInfo, WindowInfo
from penstock.protocols.net.process_context import ProcessContext
from penstock.router.broker import Broker

__all__ = ["Amqp091", "AmqpConfig", "serve"]

Other: TypeAlias = Callable[[SpokenConnection], Speaker[Any]]
"""Another AMQP on a connection."""

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
    def ws_listen(self) -> str: ...
    @property
    def wss_listen(self) -> str: ...
    @property
    def ws_paths(self) -> Sequence[str]: ...
    @property
    def ws_origins(self) -> Sequence[str]: ...
    @property
    def frame_max(self) -> int: ...
    @property
    def channel_max(self) -> int: ...
    @property
    def heartbeat_s(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def allow_anonymous(self) -> Literal["loopback"] | bool: ...


class Amqp091(Speaker[Session]):
    """AMQP 0-9-1 on a connection."""

    spoken = "amqp091"

    def __init__(
        self, connection: SpokenConnection, broker: Broker, options: AmqpOptions, other: Other | None
    ) -> None:
        """`other` takes over when the header asks for another AMQP."""
        self._spoken = connection
        self._other = other
        session = Session(
            broker,
            options,
            connection.out,
            version=__version__,
            owner=connection,
            output_capacity=connection.output_capacity,
            dirty=connection.dirty,
            look=self.look,
            name=lambda: connection.name,
            sink=connection,
        )
        super().__init__(connection, broker, session, State, anonymous=options.allow_anonymous is True)

    def received(self, buffer: bytearray, size: int) -> int:
        if (
            self.session.state is State.HEADER
            and self._other is not None
            and bytes(buffer[: min(size, 8)]) in AMQP_1_0
        ):
            spoken = self._spoken
            spoken.speaker = self._other(spoken)
            self.let_go()
            return spoken.received(buffer, size)
        return super().received(buffer, size)

    def look(self) -> None:
        session, connection = self.session, self.connection
        if not connection.handed_over:
            connection.quick = None if connection.metered else session.quick
        self.pause_reading_while(session.stalled, "answers")
        super().look()
        if session.dropped is not None:
            connection.abort(session.dropped)

    def end(self, reason: str) -> None:
        if self.session.peer_closes:
            self.connection.close_behind_peer(reason)
        else:
            self.connection.close(reason)

    def want(self) -> int:
        return self.session.codec.want

    def place(self) -> tuple[str, str]:
        return self.session.vhost.name, str(self.session.client_properties.get("connection_name") or "-")

    def clock(self, now: float) -> None:
        session, connection = self.session, self.connection
        session.look_at_timeouts(now)
        interval = session.heartbeat_s
        if not interval or session.state not in (State.OPEN, State.RUNNING):
            return
        # The bytes of a held peer lie unread in the socket: its silence is ours.
        if now - connection.last_read_at > 2 * interval and not connection.reading_paused:
            connection.abort(f"missed heartbeats: nothing came for {2 * interval} s")
        elif now - connection.last_write_at >= interval / 2:
            session.heartbeat()
            connection.flush()

    def message_counts(self) -> tuple[int, int]:
        return self.session.message_counts

    def info(self) -> ConnectionInfo | None:
        return connection_facts(self.session)

    def windows(self) -> list[WindowInfo]:
        return windows(self.session)


async def serve(
    broker: Broker,
    amqp: AmqpConfig,
    server: ServerOptions,
    loop: asyncio.AbstractEventLoop,
    shared: ProcessContext | None = None,
    other: Other | None = None,
) -> FrontEnd:
    """Listen at every configured address, until `FrontEnd.drain`; those with TLS need `shared.tls`.

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
        allow_anonymous=amqp.allow_anonymous,
        cluster_name=shared.name,
    )
    context = wire(broker, server, loop, shared, logger)

    def connection() -> Connection:
        return SpokenConnection(context, lambda one: Amqp091(one, broker, front_end.options, other))

    serve_questions(broker)
    front_end = FrontEnd("amqp", context, max_connections=server.max_connections, options=options)
    if amqp.address is not None:
        front_end.open("amqp", amqp.address, connection)
    if amqp.tls_address is not None and shared.tls is not None:
        front_end.open("amqps", amqp.tls_address, connection, option="tls_listen", tls=shared.tls.layer())
    rules = WebSocketRules(paths=amqp.ws_paths, subprotocols=("amqp",), origins=amqp.ws_origins)
    if amqp.ws_listen:
        address = Address.parse(amqp.ws_listen)
        front_end.open("amqp_ws", address, connection, option="ws_listen", websocket=rules)
    if amqp.wss_listen and shared.tls is not None:
        address = Address.parse(amqp.wss_listen)
        layer = shared.tls.layer("http/1.1")
        front_end.open("amqp_wss", address, connection, option="wss_listen", tls=layer, websocket=rules)
    front_end.follow(broker.log, broker.quotas)
    return front_end
