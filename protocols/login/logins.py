"""Logins of connections: one way for all front ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.errors import PenstockError
from penstock.logs import fields

if TYPE_CHECKING:
    from penstock.protocols.net.connection import Connection
    from penstock.router.authentication.users import ScramLogin, Users
    from penstock.router.authorization.identity import Identity

__all__ = ["Credentials", "remembered", "verified"]


class Credentials(Protocol):
    """A login to be verified."""

    @property
    def user(self) -> str:
        """The name."""

    @property
    def password(self) -> bytes:
        """Or a token of OAuth 2."""

    @property
    def certified(self) -> bool:
        """A client certificate has proved the name; there is no password."""


def remembered(connection: Connection, users: Users, login: Credentials | None) -> Identity | None:
    """The user who logs in by `connection`, if that needs no wait; None: `verified` decides.

    Most clients that come again come within a minute: then there is no task, and reading goes on.
    """
    if login is None or login.certified:
        return None
    identity = users.remembered(login.user, login.password, connection.local, peer=connection.peer_host)
    if identity is not None:
        users.let_in(connection.place[0])
        connection.trusted = True
    return identity


async def verified(
    connection: Connection,
    users: Users,
    login: Credentials | None,
    *,
    everywhere: bool = False,
    scram: ScramLogin | None = None,
) -> Identity:
    """The user who logs in by `connection`, which is trusted from then on.

    `login` None: without a name, which peers on this machine may, and with `everywhere` all. `scram`: the
    exchange whose last message is the password.

    Raises:
        AuthenticationRefused: nobody; there is a log line.

    """
    try:
        if login is not None and scram is not None:
            identity = await scram.finish(login.password)  # it counts its attempts itself
        else:
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
        connection.context.logger.warning(
            "login refused",
            extra=fields(connection=connection.id, peer=connection.peer, error=error.message),
        )
        raise
    connection.trusted = True
    return identity
