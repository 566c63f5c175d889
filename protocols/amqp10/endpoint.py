"""AMQP 1.0 on a socket: connections of the AMQP listener that ask for it. See `listening.speaker`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import __version__
from penstock.protocols.amqp10.connection_info import connection_facts, windows
from penstock.protocols.amqp10.options import Options
from penstock.protocols.amqp10.session.session import Session
from penstock.protocols.amqp10.session.state import State
from penstock.protocols.listening.speaker import Speaker, SpokenConnection
from penstock.protocols.net.connection_info import ConnectionInfo, WindowInfo
from penstock.router.broker import Broker

if TYPE_CHECKING:
    from penstock.router.authentication.users import ScramLogin

__all__ = ["Amqp10"]


class Amqp10(Speaker[Session]):
    """AMQP 1.0 on a connection."""

    spoken = "amqp10"

    def __init__(self, connection: SpokenConnection, broker: Broker, options: Options) -> None:
        session = Session(
            broker,
            options,
            connection.out,
            version=__version__,
            owner=connection,
            output_capacity=connection.output_capacity,
            dirty=connection.dirty,
            flush=connection.flush,
            look=self.look,
            name=lambda: connection.name,
            scram=self._scram,
            sink=connection,
        )
        super().__init__(connection, broker, session, State, anonymous=options.allow_anonymous is True)

    def _scram(self) -> ScramLogin:
        connection = self.connection
        protocol, peer, nonce = connection.place[0], connection.peer_host, connection.nonce
        login = self._broker.users.scram(protocol, connection.local, peer=peer, nonce=nonce)
        connection.nonce = login.nonce
        return login

    def look(self) -> None:
        connection = self.connection
        if not connection.handed_over:
            connection.quick = None if connection.metered else self.session.quick
        super().look()

    def want(self) -> int:
        return self.session.want

    def place(self) -> tuple[str, str]:
        return self.session.vhost.name, self.session.container or "-"

    def clock(self, now: float) -> None:
        session, connection = self.session, self.connection
        if session.state is not State.RUNNING:
            return
        heard = session.options.heartbeat_s
        # The bytes of a held peer lie unread in the socket: its silence is ours.
        if heard and now - connection.last_read_at > 2 * heard and not connection.reading_paused:
            connection.abort(f"nothing came for {2 * heard} s")
        elif session.idle_s and now - connection.last_write_at >= session.idle_s / 2 - 0.5:
            session.heartbeat()
            connection.flush()

    def message_counts(self) -> tuple[int, int]:
        return self.session.published, self.session.delivered

    def info(self) -> ConnectionInfo | None:
        return connection_facts(self.session)

    def windows(self) -> list[WindowInfo]:
        return windows(self.session)
