"""Users and their passwords. Owns the table `user`.

A slow hash is verified in two threads with a bounded queue. A correct password is remembered for a minute
as a keyed hash, so that a storm of reconnects costs microseconds each. An unknown user takes as long as a
wrong password.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import decode_table, encode_table
from penstock.router.authentication.login_limit import LoginLimit
from penstock.router.authentication.passwords import (
    DUMMY,
    has_verifier,
    hash_password,
    is_own,
    is_slow,
    rabbitmq_hash,
    verifier_of,
    verify_password,
)
from penstock.router.authentication.scram import ITERATIONS, ScramError, ScramExchange, Verifier, new_nonce
from penstock.router.authentication.token_form import is_token
from penstock.router.authorization.identity import Identity
from penstock.router.authorization.permissions import Authorizer, Permission
from penstock.router.errors import AuthenticationRefused
from penstock.router.limits.limits import Limits
from penstock.router.names import wire
from penstock.router.rows import Tables, row_key

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.router.authentication.oauth import OAuth

__all__ = ["AuthOptions", "ScramLogin", "UserOptions", "Users"]

_REMEMBERED_S: Final = 60.0
_REMEMBERED_MAX: Final = 10_000
_TICKET_S: Final = 60.0
_WAITING_MAX: Final = 256
"""Verifications under way and waiting: 128 in each thread at 50 ms are some 6 s; by then a client gave up."""


class UserOptions(Protocol):
    """A user as the configuration lists it."""

    @property
    def name(self) -> str:
        """The name that it logs in with."""

    @property
    def password(self) -> str | None:
        """None: `password_hash` is given, or the user logs in otherwise."""

    @property
    def password_hash(self) -> str | None:
        """As RabbitMQ's definitions have it: see `passwords.rabbitmq_hash`."""

    @property
    def tags(self) -> tuple[str, ...]:
        """ "administrator", "monitoring" and so on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthOptions:
    """Options of the section `auth`, with the same keys."""

    default_user: str = "guest"
    """Exists without being listed; "" = none. It is an administrator."""
    default_password: str = "guest"
    loopback_users: tuple[str, ...] = ("guest",)
    """Users who may log in from this machine only."""
    users: Sequence[UserOptions] = field(default=())
    """Further users; each may do everything in the default vhost until its permissions say otherwise."""


@dataclass(slots=True)
class _User:
    stored: str
    tags: frozenset[str]
    limits: Limits = field(default_factory=dict)


class _Attempt:
    """One login. A class, since a generator would cost each connect more."""

    __slots__ = ("_peer", "_protocol", "_users")

    def __init__(self, users: Users, protocol: str, peer: str) -> None:
        self._users, self._protocol, self._peer = users, protocol, peer

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._users.attempts[self._protocol, True] += 1
        elif isinstance(error, AuthenticationRefused):
            self._users.refused(self._protocol, error, self._peer)


class Users:
    """The users of this gateway and their logins."""

    def __init__(
        self,
        tables: Tables,
        options: AuthOptions,
        oauth: OAuth | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`oauth` knows tokens; None: a password is nothing but a password. `sleep` waits for seconds."""
        self._oauth = oauth
        self._tables = tables
        self._options = options
        self._clock = clock
        self.sleep = sleep
        self._key = os.urandom(32)
        self._limit = LoginLimit(clock)
        self._remembered: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="penstock-login")
        self._tickets: dict[bytes, tuple[str, float]] = {}
        self._verifiers = (-1, False)
        """`changes` when it was asked whether all have verifiers, and the answer."""
        self._verifying: dict[tuple[bytes, str], asyncio.Future[bool]] = {}
        """Passwords that a thread looks at: clients with the same one wait for the same thread."""
        self.changes = 0
        """Grows with every change of a user: a login that was right before it may not be right any more."""
        self.on_changed: list[Callable[[], None]] = []
        """Called after every such change."""
        self.attempts: Counter[tuple[str, bool]] = Counter()
        """Logins tried, by protocol and whether they were right."""
        self.on_refused: list[Callable[[str, AuthenticationRefused, str], None]] = []
        """Called with the protocol, why a login was refused, and where it came from."""
        self._users: dict[str, _User] = {}
        for _, value in tables.items("user"):
            self.restored(decode_table(value))

    def restored(self, row: Mapping[str, Any]) -> None:
        """The row of a user as it is in the table."""
        self._users[str(row["name"])] = _User(str(row["hash"]), frozenset(row["tags"]), row.get("limits", {}))
        self._changed()

    # Logging in

    async def authenticate(
        self, username: str, password: bytes, peer_is_loopback: bool, *, peer: str = ""
    ) -> Identity:
        """The identity of the user with this password; `peer` is the address it comes from.

        A password may be a token of OAuth 2; then it says who it is of, and `username` does not count. After
        many failures a login waits for its turn first (`LoginLimit`), whether its password is right or not.

        Raises:
            AuthenticationRefused: with the reason, which is for the log and not for the peer.

        """
        if self._tickets and self._used(username, password):
            return Identity(username, self._users[username].tags)
        if self._oauth is not None and is_token(password):
            return await self._by_token(self._oauth, password, peer, peer_is_loopback)
        await self.wait_turn(username, peer, peer_is_loopback)
        user = self._users.get(username)
        stored = user.stored if user is not None and user.stored else DUMMY
        right = await self._verify(username, stored, password)
        # A blank password logs nobody in; nor does one without a hash. Decided after the work was done.
        if user is None or not user.stored or not password or not right:
            if not is_own(stored):
                # An imported hash takes less time: the refusal takes as long as one of an unknown user.
                await self._verify(username, DUMMY, password)
            self._limit.failed(peer, username)
            raise AuthenticationRefused(username, "credentials")
        self._check_place(username, peer_is_loopback)
        self._limit.succeeded(peer, username)
        return Identity(username, user.tags)

    def remembered(
        self, username: str, password: bytes, peer_is_loopback: bool, *, peer: str = ""
    ) -> Identity | None:
        """The same identity, if it is known at once: the password was right within the last minute, and no
        login has to wait for its turn. None: `authenticate` decides.
        """
        user = self._users.get(username)
        if user is None or not password or self._tickets or not self._limit.is_calm:
            return None
        if username in self._options.loopback_users and not peer_is_loopback:
            return None
        if not self._is_remembered(self._memo(username, password), user.stored):
            return None
        self._limit.succeeded(peer, username)
        return Identity(username, user.tags)

    def ticket(self, username: str) -> bytes:
        """A password for one login of this user within a minute, from within the gateway itself.

        Raises:
            AuthenticationRefused: there is no such user.

        """
        if username not in self._users:
            raise AuthenticationRefused(username, "credentials")
        now, password = self._clock(), os.urandom(32).hex().encode()
        self._tickets = {one: ticket for one, ticket in self._tickets.items() if ticket[1] > now}
        self._tickets[password] = username, now + _TICKET_S
        return password

    def _used(self, username: str, password: bytes) -> bool:
        """Whether this is a ticket of the user, which is used now."""
        name, until = self._tickets.pop(password, ("", 0.0))
        return name == username and username in self._users and until > self._clock()

    async def wait_turn(self, username: str, peer: str, peer_is_loopback: bool) -> None:
        """Wait until a login may be judged; at once unless many have failed.

        Raises:
            AuthenticationRefused: too many wait already.

        """
        wait_s = self.turn(username, peer, peer_is_loopback)
        if wait_s > 0:
            await self.sleep(wait_s)

    def turn(self, username: str, peer: str, peer_is_loopback: bool) -> float:
        """Seconds until a login may be judged; see `wait_turn`. Raises AuthenticationRefused."""
        wait_s = self._limit.turn(peer, username, loopback=peer_is_loopback)
        if wait_s is None:
            raise AuthenticationRefused(username, "limit")
        return wait_s

    async def wrong_token(self, token: bytes, peer: str, peer_is_loopback: bool) -> None:
        """Slow down the refusal of a token, after many others from its address. Neither a right token waits,
        which nobody can guess, so that its answer tells nothing, nor do passwords.
        """
        place, name = f"tokens from {peer}", hashlib.blake2b(token, digest_size=16).hexdigest()
        wait_s = self._limit.turn(place, name, loopback=peer_is_loopback)
        self._limit.failed(place, name)
        if wait_s:
            await self.sleep(wait_s)

    async def _by_token(self, oauth: OAuth, token: bytes, peer: str, peer_is_loopback: bool) -> Identity:
        try:
            identity = await oauth.authenticate(token)
            if identity.username in self._users:
                # Native tokens, webhooks and limits under that name are not the token's.
                raise AuthenticationRefused(
                    identity.username, "token", "its user is one of the gateway's own"
                )
        except AuthenticationRefused as error:
            # One that came late is an honest client's, who comes again with a new one.
            if error.reason != "expired":
                await self.wrong_token(token, peer, peer_is_loopback)
            raise
        return identity

    def attempt(self, protocol: str, peer: str) -> AbstractContextManager[None]:
        """Count a login that is tried from `peer`: AuthenticationRefused says that it failed."""
        return _Attempt(self, protocol, peer)

    def let_in(self, protocol: str) -> None:
        """A login was right: for what is no `attempt`."""
        self.attempts[protocol, True] += 1

    def refused(self, protocol: str, error: AuthenticationRefused, peer: str) -> None:
        """A login from `peer` was refused: for what is no `attempt`."""
        self.attempts[protocol, False] += 1
        for told in self.on_refused:
            told(protocol, error, peer)

    def scram(
        self,
        protocol: str,
        peer_is_loopback: bool,
        user_of: Callable[[str], str] = str,
        *,
        peer: str = "",
        nonce: str = "",
    ) -> ScramLogin:
        """A login by SCRAM-SHA-256; `user_of` gives the user for the name that a client sends. `nonce` is
        that of the worker where the exchange took place before.
        """
        return ScramLogin(self, protocol, peer_is_loopback, user_of, peer, nonce)

    @property
    def takes_tokens(self) -> bool:
        """Whether a password may be a token of OAuth 2."""
        return self._oauth is not None

    @property
    def all_have_verifiers(self) -> bool:
        """Whether each user with a password can log in by SCRAM."""
        if self._verifiers[0] != self.changes:
            stored = (user.stored for user in self._users.values())
            self._verifiers = self.changes, all(has_verifier(one) for one in stored if one)
        return self._verifiers[1]

    def is_stranger(self, username: str, password: bytes) -> bool:
        """Whether nobody has this name, and the password is no token that says who it is of."""
        return username not in self._users and not (self._oauth is not None and is_token(password))

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

    def certified(self, username: str, peer_is_loopback: bool) -> Identity:
        """The identity of a user whom a verified client certificate names; it needs no password.

        Raises:
            AuthenticationRefused: there is no such user, or not for this peer.

        """
        user = self._users.get(username)
        if user is None:
            raise AuthenticationRefused(username, "certificate")
        self._check_place(username, peer_is_loopback)
        return Identity(username, user.tags)

    def identity(self, username: str) -> Identity | None:
        """The identity of a user known by name only, for what lives on without a connection."""
        user = self._users.get(username)
        return None if user is None else Identity(username, user.tags)

    def _check_place(self, username: str, peer_is_loopback: bool) -> None:
        if not peer_is_loopback and username in self._options.loopback_users:
            raise AuthenticationRefused(username, "loopback")

    def _memo(self, username: str, password: bytes) -> bytes:
        name = wire(username)
        return hmac.digest(self._key, len(name).to_bytes(4, "little") + name + password, "sha256")

    def _is_remembered(self, memo: bytes, stored: str) -> bool:
        """Whether the password of `memo` was right within the last minute, and is the user's still."""
        known = self._remembered.get(memo)
        return known is not None and known[0] > self._clock() and hmac.compare_digest(known[1], stored)

    async def _verify(self, username: str, stored: str, password: bytes) -> bool:
        if not is_slow(stored):
            return verify_password(stored, password)
        memo = self._memo(username, password)
        if self._is_remembered(memo, stored):
            return True
        key = (memo, stored)
        verifying = self._verifying.get(key)
        if verifying is None:
            if len(self._verifying) >= _WAITING_MAX:
                raise AuthenticationRefused(username, "busy")
            verifying = asyncio.get_running_loop().run_in_executor(
                self._executor, verify_password, stored, password
            )
            self._verifying[key] = verifying
            verifying.add_done_callback(lambda _: self._verifying.pop(key))
        right = await asyncio.shield(verifying)
        if right:
            self._remembered[memo] = (self._clock() + _REMEMBERED_S, stored)
            self._remembered.move_to_end(memo)
            while len(self._remembered) > _REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        return right

    def close(self) -> None:
        """End the threads; logins under way are refused by their connections' end."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._oauth is not None:
            self._oauth.close()

    # For ScramLogin

    def verifier(self, username: str) -> Verifier:
        """The verifier for SCRAM; for a user without one always the same, which no password has."""
        user = self._users.get(username)
        found = verifier_of(user.stored) if user is not None else None
        if found is not None:
            return found
        made = hmac.digest(self._key, wire(username), "sha256")
        return Verifier(ITERATIONS, made[:16], os.urandom(32), os.urandom(32))

    def failed(self, peer: str, username: str) -> None:
        """A login was refused for its name or its password."""
        self._limit.failed(peer, username)

    def succeeded(self, peer: str, username: str) -> None:
        """A login was right that others than the gateway judged."""
        self._limit.succeeded(peer, username)

    def proved(self, username: str, peer_is_loopback: bool, peer: str) -> Identity:
        """The identity of a user who proved the password.

        Raises:
            AuthenticationRefused: it is gone, or not from here.

        """
        user = self._users.get(username)
        if user is None:
            raise AuthenticationRefused(username, "credentials")
        self._check_place(username, peer_is_loopback)
        self._limit.succeeded(peer, username)
        return Identity(username, user.tags)

    # Administration

    @property
    def default_user(self) -> str:
        """The user of clients without a user name; "" = they are refused."""
        return self._options.default_user

    def names(self) -> list[str]:
        """All users."""
        return list(self._users)

    def stored(self, name: str) -> str:
        """The hash of a user's password as it is stored; "" for none, or no such user."""
        user = self._users.get(name)
        return "" if user is None else user.stored

    def stamp(self, name: str) -> bytes:
        """Another one for each password and tags that a user has; empty for no such user."""
        user = self._users.get(name)
        if user is None:
            return b""
        said = "\0".join([user.stored, *sorted(user.tags)])
        return hashlib.blake2b(wire(said), digest_size=16).digest()

    def limits(self, name: str) -> Limits:
        """The limits of a user (`limits.USER_LIMITS`); none for no such user."""
        user = self._users.get(name)
        return {} if user is None else user.limits

    async def hash(self, password: bytes) -> str:
        """A hash to be stored, made in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, hash_password, password)

    def set_user(self, name: str, stored: str, tags: Iterable[str]) -> int:
        """Make or change a user; `stored` is a hash (`passwords`) or "" for no login. The LSN to wait for."""
        return self._set(name, _User(stored, frozenset(tags), self.limits(name)))

    def set_limits(self, name: str, limits: Limits) -> int:
        """Set all limits of a user that there is; the LSN to wait for."""
        return self._set(name, replace(self._users[name], limits=limits))

    def _set(self, name: str, user: _User) -> int:
        if self._users.get(name) == user:
            return 0
        self._users[name] = user
        self._changed()
        row = {"name": name, "hash": user.stored, "tags": sorted(user.tags), "limits": user.limits}
        return self._tables.put("user", row_key(name), encode_table(row))

    def delete_user(self, name: str) -> int:
        """Remove a user; the LSN to wait for, 0 when there was none."""
        if self._users.pop(name, None) is None:
            return 0
        self._changed()
        return self._tables.delete("user", row_key(name))

    def _changed(self) -> None:
        self.changes += 1
        for told in self.on_changed:
            told()

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
            self._follow(user, self._hash_of(user), permissions, vhost)

    async def follow(self, users: Sequence[UserOptions], permissions: Authorizer, vhost: str) -> None:
        """The same for listed users that have changed; hashes are made in a thread."""
        loop = asyncio.get_running_loop()
        for user in users:
            stored = await loop.run_in_executor(self._executor, self._hash_of, user)
            self._follow(user, stored, permissions, vhost)

    def _follow(self, user: UserOptions, stored: str, permissions: Authorizer, vhost: str) -> None:
        is_new = user.name not in self._users
        self.set_user(user.name, stored, user.tags)
        if is_new:
            permissions.set(user.name, vhost, Permission())

    def _hash_of(self, user: UserOptions) -> str:
        """The hash to be stored for a listed user: the one that is stored, if its password is right."""
        if user.password_hash is not None:
            return rabbitmq_hash(user.password_hash)
        known, password = self._users.get(user.name), (user.password or "").encode()
        if (
            known is not None
            and verifier_of(known.stored) is not None
            and verify_password(known.stored, password)
        ):
            return known.stored
        return hash_password(password)


class ScramLogin:
    """One login by SCRAM: `step` takes what the client says and gives what to answer."""

    def __init__(
        self,
        users: Users,
        protocol: str,
        loopback: bool,
        user_of: Callable[[str], str],
        peer: str,
        nonce: str = "",
    ) -> None:
        self.identity: Identity | None = None
        """The user, after the last step succeeded."""
        self.name = ""
        """The name as the client sent it."""
        self.nonce = nonce or new_nonce()
        """Ours."""
        self.answer = b""
        """The last answer of `step`."""
        self._users = users
        self._protocol = protocol
        self._loopback = loopback
        self._user_of = user_of
        self._peer = peer
        self._exchange: ScramExchange | None = None

    async def finish(self, message: bytes) -> Identity:
        """The user, whose last message this is; waits for its turn. Raises AuthenticationRefused."""
        wait_s = self.turn()
        if wait_s > 0:
            await self._users.sleep(wait_s)
        self.step(message)
        assert self.identity is not None
        return self.identity

    def turn(self) -> float:
        """Seconds to wait before the next `step`, which is 0 unless it is the last. Raises
        AuthenticationRefused: too many wait already.
        """
        if self._exchange is None:
            return 0.0
        try:
            return self._users.turn(self._user_of(self.name), self._peer, self._loopback)
        except AuthenticationRefused as refusal:
            self._users.refused(self._protocol, refusal, self._peer)
            raise

    def step(self, message: bytes) -> bytes:
        """The answer to the client's next message.

        Raises:
            AuthenticationRefused: the login failed.

        """
        users = self._users
        user = self._user_of(self.name) if self.name else ""
        try:
            if self._exchange is None:
                exchange = ScramExchange(self.nonce)
                exchange.first(message)
                self._exchange = exchange
                self.name = exchange.name
                self.answer = exchange.challenge(users.verifier(self._user_of(self.name)))
                return self.answer
            self.answer = self._exchange.final(message)
        except ScramError:
            users.failed(self._peer, user)
            refusal = AuthenticationRefused(user, "credentials")
            users.refused(self._protocol, refusal, self._peer)
            raise refusal from None
        with users.attempt(self._protocol, self._peer):
            self.identity = users.proved(user, self._loopback, self._peer)
        return self.answer
