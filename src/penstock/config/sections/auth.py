"""The section `auth`: who may log in."""

from __future__ import annotations

from dataclasses import field

from penstock.config.kinds import Names, Text, option
from penstock.config.users import User, Users
from penstock.lazy_dataclass import dataclass

__all__ = ["Auth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """Logins and users."""

    default_user: str = field(
        default="guest",
        metadata=option(
            Text("a name"),
            'The user that exists without being listed in users; "" = none.',
            when='always, for a service: set "" once users of your own exist',
        ),
    )
    default_password: str = field(
        default="guest",
        metadata=option(
            Text(), "The password of default_user.", when="always, if you keep the default user", secret=True
        ),
    )
    loopback_users: tuple[str, ...] = field(
        default=("guest",),
        metadata=option(
            Names(),
            "Users who may log in from this machine only.",
            when="more users shall come from this machine only",
        ),
    )
    users: tuple[User, ...] = field(
        default=(),
        metadata=option(
            Users(),
            "Further users. password_hash is base64 of a 4-byte salt and SHA-256, SHA-512 or MD5 of salt + "
            "password, as RabbitMQ's definitions export it.",
            when="users are kept in this file, rather than made by `penstock users`",
            secret=True,
        ),
    )
