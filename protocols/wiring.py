"""What every front end is given by the process, and what it makes of that for its connections."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from penstock.errors import PenstockError
from penstock.logs import fields
from penstock.protocols.connection import Connection, Limits, Wiring
from penstock.protocols.shared import Shared

if TYPE_CHECKING:
    from penstock.router.auth import Users
    from penstock.router.broker import Broker
    from penstock.router.identity import Identity

__all__ = ["Credentials", "ServerOptions", "verified", "wire"]


class ServerOptions(Protocol):
    """What of the configuration's section `server` matters to front ends."""

    @property
    def output_buffer_bytes(self) -> int: ...
    @property
    def max_connections(self) -> int: ...
    @property
    def output_stuck_s(self) -> float: ...


def wire(
    broker: Broker,
    server: ServerOptions,
    loop: asyncio.AbstractEventLoop,
    shared: Shared,
    logger: logging.Logger,
    *,
    login_timeout_s: float,
    greeting_timeout_s: float = 5.0,
) -> Wiring:
    """The wiring of a front end's connections; see `Limits` for the times."""
    limits = Limits(
        greeting_timeout_s=min(greeting_timeout_s, login_timeout_s),
        login_timeout_s=login_timeout_s,
        output_high_bytes=server.output_buffer_bytes,
        output_stuck_s=server.output_stuck_s,
    )
    return Wiring(
        loop,
        broker.log,
        broker.tick,
        limits,
        logger,
        shared.admission,
        shared.buffers,
        shared.doors,
        broker.rates,
    )


class Credentials(Protocol):
    """A login to be verified."""

    @property
    def user(self) -> str: ...
    @property
    def password(self) -> bytes: ...
    @property
    def certified(self) -> bool:
        """A client certificate has proved the name; there is no password."""


async def verified(
    connection: Connection, users: Users, login: Credentials | None, *, everywhere: bool = False
) -> Identity:
    """Who logs in by `connection`, which is trusted from then on.

    `login` None: without a name, which peers on this machine may, and with `everywhere` all.

    Raises:
        AuthenticationRefused: nobody; there is a log line.

    """
    try:
        with users.attempt(connection.place[0], connection.peer):
            if login is None:
                identity = users.anonymous(connection.local, everywhere=everywhere)
            elif login.certified:
                identity = users.certified(login.user, connection.local)
            else:
                identity = await users.authenticate(
                    login.user, login.password, connection.local, peer=connection.peer_host
                )
    except PenstockError as error:
        connection.wiring.logger.warning(
            "login refused",
            extra=fields(connection=connection.id, peer=connection.peer, error=error.message),
        )
        raise
    connection.trusted = True
    return identity
