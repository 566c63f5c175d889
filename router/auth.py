"""Who may log in, and who may do what: users, their permissions per vhost, one authorizer for all protocols.

Owns the tables `user` and `permission` (`metadata`).

Verification of a slow hash runs in two threads with a bounded queue; a correct password is remembered for a
minute as a keyed hash, so that a storm of reconnects costs microseconds each. An unknown user takes as long
as a wrong password.

A permission is a regular expression searched in the name, as in RabbitMQ; the empty one matches the empty
name only. Source: RabbitMQ's access control documentation.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Final, Protocol

from penstock.router.arguments import decode_table, encode_table
from penstock.router.errors import AuthenticationRefused, Operation
from penstock.router.identity import Identity
from penstock.router.login_limit import LoginLimit
from penstock.router.metadata import Tables, row_key
from penstock.router.names import wire
from penstock.router.passwords import DUMMY, hash_password, is_slow, rabbitmq_hash, verify_password

__all__ = ["AuthOptions", "Authorizer", "Permission", "UserOptions", "Users"]

_REMEMBERED_S: Final = 60.0
_REMEMBERED_MAX: Final = 10_000
_WAITING_MAX: Final = 256
"""Verifications under way and waiting: 128 in each thread at 50 ms are some 6 s; by then a client gave up."""


class UserOptions(Protocol):
    """A user as the configuration lists it."""

    @property
    def name(self) -> str: ...
    @property
    def password(self) -> str | None: ...
    @property
    def password_hash(self) -> str | None: ...
    @property
    def tags(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthOptions:
    """What `auth` in the configuration says; the same keys."""

    default_user: str = "guest"
    """Exists without being listed; "" = none. It is an administrator."""
    default_password: str = "guest"
    loopback_users: tuple[str, ...] = ("guest",)
    """Users who may log in from this machine only."""
    users: Sequence[UserOptions] = field(default=())
    """Further users; each may do everything in the default vhost until its permissions say otherwise."""


@dataclass(frozen=True, slots=True)
class Permission:
    """What a user may do in a vhost: a regular expression on names per operation."""

    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"


@dataclass(slots=True)
class _User:
    stored: str
    tags: frozenset[str]


class Users:
    """The users of this gateway and their logins."""

    def __init__(
        self, tables: Tables, options: AuthOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tables = tables
        self._options = options
        self._clock = clock
        self._key = os.urandom(32)
        self._limit = LoginLimit(clock)
        self._remembered: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="penstock-login")
        self._waiting = 0
        self._users: dict[str, _User] = {}
        for _, value in tables.items("user"):
            row = decode_table(value)
            self._users[str(row["name"])] = _User(str(row["hash"]), frozenset(row["tags"]))

    # Logging in

    async def authenticate(
        self, username: str, password: bytes, peer_is_loopback: bool, *, peer: str = ""
    ) -> Identity:
        """The identity of the user with this password; `peer` is the address it comes from.

        After ten failures in a minute everything from that address for that user is refused, with the same
        delay, for the rest of the minute.

        Raises:
            AuthenticationRefused: with the reason, which is for the log and not for the peer.

        """
        user = self._users.get(username)
        stored = user.stored if user is not None and user.stored else DUMMY
        limited = self._limit.reached(peer, username)
        if limited and is_slow(stored):
            # A password that is remembered would be refused sooner, and so be told.
            stored = DUMMY
        right = await self._verify(username, stored, password)
        if limited:
            raise AuthenticationRefused(username, "limit")
        # A blank password logs nobody in; nor does one without a hash. Decided after the work was done.
        if user is None or not user.stored or not password or not right:
            self._limit.failed(peer, username)
            raise AuthenticationRefused(username, "credentials")
        self._check_place(username, peer_is_loopback)
        return Identity(username, user.tags)

    def anonymous(self, peer_is_loopback: bool, *, everywhere: bool = False) -> Identity:
        """The identity of a peer without a user name: the default user.

        `everywhere` is the operator's word that peers of other machines may be it too.

        Raises:
            AuthenticationRefused: there is no default user, or not for this peer.

        """
        name = self._options.default_user
        user = self._users.get(name)
        if user is None or not (peer_is_loopback or everywhere):
            raise AuthenticationRefused(name, "anonymous")
        return Identity(name, user.tags)

    def identity(self, username: str) -> Identity | None:
        """The identity of a user known by name only, for what lives on without a connection."""
        user = self._users.get(username)
        return None if user is None else Identity(username, user.tags)

    def _check_place(self, username: str, peer_is_loopback: bool) -> None:
        if not peer_is_loopback and username in self._options.loopback_users:
            raise AuthenticationRefused(username, "loopback")

    async def _verify(self, username: str, stored: str, password: bytes) -> bool:
        if not is_slow(stored):
            return verify_password(stored, password)
        name = wire(username)
        memo = hmac.digest(self._key, len(name).to_bytes(4, "little") + name + password, hashlib.sha256)
        known = self._remembered.get(memo)
        if known is not None and known[0] > self._clock() and hmac.compare_digest(known[1], stored):
            return True
        if self._waiting >= _WAITING_MAX:
            raise AuthenticationRefused(username, "busy")
        self._waiting += 1
        try:
            right = await asyncio.get_running_loop().run_in_executor(
                self._executor, verify_password, stored, password
            )
        finally:
            self._waiting -= 1
        if right:
            self._remembered[memo] = (self._clock() + _REMEMBERED_S, stored)
            self._remembered.move_to_end(memo)
            while len(self._remembered) > _REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        return right

    def close(self) -> None:
        """End the threads; logins under way are refused by their connections' end."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    # Administration

    def names(self) -> list[str]:
        """All users."""
        return list(self._users)

    def set_user(self, name: str, stored: str, tags: Iterable[str]) -> int:
        """Make or change a user; `stored` is a hash (`passwords`) or "" for no login. The LSN to wait for."""
        user = _User(stored, frozenset(tags))
        if self._users.get(name) == user:
            return 0
        self._users[name] = user
        row = {"name": name, "hash": stored, "tags": sorted(user.tags)}
        return self._tables.put("user", row_key(name), encode_table(row))

    def delete_user(self, name: str) -> int:
        """Remove a user; the LSN to wait for, 0 when there was none."""
        if self._users.pop(name, None) is None:
            return 0
        return self._tables.delete("user", row_key(name))

    def apply_options(self, permissions: Authorizer, vhost: str, *, is_new: bool) -> None:
        """Bring the users of the configuration into the tables.

        The default user is made when the data is new, so that one who deleted it does not get it back. Listed
        users follow the configuration at each start. A user without permissions gets all of `vhost`.
        """
        options = self._options
        if is_new and options.default_user:
            self.set_user(
                options.default_user, hash_password(options.default_password.encode()), ("administrator",)
            )
            permissions.set(options.default_user, vhost, Permission())
        for user in options.users:
            known = self._users.get(user.name)
            if user.password_hash is not None:
                stored = rabbitmq_hash(user.password_hash)
            elif known is not None and verify_password(known.stored or DUMMY, (user.password or "").encode()):
                stored = known.stored
            else:
                stored = hash_password((user.password or "").encode())
            self.set_user(user.name, stored, user.tags)
            if known is None:
                permissions.set(user.name, vhost, Permission())


class Authorizer:
    """Decides for every protocol what an identity may do; it knows names, not things."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._permissions: dict[tuple[str, str], dict[Operation, re.Pattern[str] | None]] = {}
        self.changed: Callable[[str], None] = lambda _: None
        """Called with the vhost whose permissions changed."""
        for _, value in tables.items("permission"):
            row = decode_table(value)
            vhost, user = str(row.pop("vhost")), str(row.pop("user"))
            self._permissions[user, vhost] = _compiled(Permission(**row))

    def allow(self, identity: Identity, vhost: str, operation: Operation, resource: str) -> bool:
        """Whether the identity may do `operation` on the exchange or queue of this name.

        The default exchange has the name `amq.default` here, as in RabbitMQ.
        """
        permission = self._permissions.get((identity.username, vhost))
        if permission is None:
            return False
        pattern = permission[operation]
        return pattern is None or pattern.search(resource or "amq.default") is not None

    def enter(self, identity: Identity, vhost: str) -> bool:
        """Whether the identity may use the vhost at all."""
        return (identity.username, vhost) in self._permissions

    def set(self, user: str, vhost: str, permission: Permission) -> int:
        """Say what a user may do in a vhost; the LSN to wait for.

        Raises:
            re.error: a pattern is no regular expression; nothing was changed.

        """
        self._permissions[user, vhost] = _compiled(permission)
        row = {"vhost": vhost, "user": user, **asdict(permission)}
        lsn = self._tables.put("permission", row_key(vhost, user), encode_table(row))
        self.changed(vhost)
        return lsn

    def clear(self, user: str, vhost: str) -> int:
        """The user may not use the vhost any more; the LSN to wait for, 0 when it might not before."""
        if self._permissions.pop((user, vhost), None) is None:
            return 0
        lsn = self._tables.delete("permission", row_key(vhost, user))
        self.changed(vhost)
        return lsn


def _compiled(permission: Permission) -> dict[Operation, re.Pattern[str] | None]:
    """The patterns, None for the one that matches everything."""

    def compiled(pattern: str) -> re.Pattern[str] | None:
        # An empty permission is none at all: RabbitMQ reads it as ^$.
        return None if pattern == ".*" else re.compile(pattern or "^$")

    return {
        "configure": compiled(permission.configure),
        "write": compiled(permission.write),
        "read": compiled(permission.read),
    }
