"""Access tokens: a program logs in with one instead of a password. Owns the table `token`.

A token is 256 random bits, shown once. Only its SHA-256 is stored, so nobody can log in with the content
of the log. It belongs to a user and has the user's rights. It ends when it expires, when it is revoked, or
with its user.

    table token   key: SHA-256 of the token, 32 B   value: {user, name, made_ms, expires_ms}
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import decode_table, encode_table
from penstock.router.authentication.users import Users
from penstock.router.authorization.identity import Identity
from penstock.router.errors import AuthenticationRefused, InvalidParameter, NotFound
from penstock.router.rows import Tables

__all__ = ["TTL_MAX_S", "Token", "Tokens"]

_PREFIX: Final = "pst_"
_NAME_MAX: Final = 100
_OF_A_USER: Final = 100
TTL_MAX_S: Final = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its name, its hash and its rights."""

    user: str
    name: str
    made_ms: int
    expires_ms: int
    """Since the epoch."""


class Tokens:
    """All of a gateway."""

    def __init__(self, tables: Tables, users: Users, *, wall_s: Callable[[], float] = time.time) -> None:
        self._tables = tables
        self._users = users
        self._wall_s = wall_s
        self._tokens: dict[bytes, Token] = {}
        self.on_ended: list[Callable[[], None]] = []
        """Called when some token was revoked or replaced, or ended with its user; not when its time is up."""
        for key, value in tables.items("token"):
            self.restored(key, decode_table(value))

    def restored(self, key: bytes, row: Mapping[str, Any] | None) -> None:
        """The row of a token as it is in the table; None: it is gone."""
        if row is None:
            if self._tokens.pop(key, None) is not None:
                self._ended()
        else:
            self._tokens[key] = Token(
                str(row["user"]), str(row["name"]), int(row["made_ms"]), int(row["expires_ms"])
            )

    def authenticate(self, text: str, peer_is_loopback: bool) -> Identity:
        """Whose token it is.

        Raises:
            AuthenticationRefused: nobody's, not any more, or not for this peer.

        """
        token = self._tokens.get(_digest(text))
        if token is None or token.expires_ms <= self._now_ms():
            raise AuthenticationRefused(token.user if token is not None else "", "credentials")
        # As with a verified certificate: there is no password to check.
        return self._users.certified(token.user, peer_is_loopback)

    def left_s(self, text: str) -> float:
        """For how many seconds a token still logs in; 0 or less: not any more."""
        token = self._tokens.get(_digest(text))
        if token is None or self._users.identity(token.user) is None:
            return 0.0
        return token.expires_ms / 1000 - self._wall_s()

    def of(self, user: str) -> list[Token]:
        """Those of a user that are good, by name."""
        now_ms = self._now_ms()
        found = [one for one in self._tokens.values() if one.user == user and one.expires_ms > now_ms]
        return sorted(found, key=lambda one: one.name)

    def issue(self, user: str, name: str, ttl_s: int) -> tuple[str, Token, int]:
        """A new token of a user: its text, what is kept of it, and the LSN to wait for.

        One of the same name is replaced.

        Raises:
            NotFound: there is no such user.
            InvalidParameter: the name or the time cannot be, or the user has too many.

        """
        if self._users.identity(user) is None:
            raise NotFound("user", user, "")
        if not 0 < len(name) <= _NAME_MAX:
            raise InvalidParameter(
                f"the name of a token has 1 to {_NAME_MAX} characters", "name what uses it"
            )
        if not 0 < ttl_s <= TTL_MAX_S:
            raise InvalidParameter(
                f"a token is good for 1 to {TTL_MAX_S} seconds", "make a new one before it ends"
            )
        self._forget_expired()
        others = [one for one in self.of(user) if one.name != name]
        if len(others) >= _OF_A_USER:
            raise InvalidParameter(f"user '{user}' has {_OF_A_USER} tokens already", "revoke one")
        self._drop(user, name)
        text = _PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        now_ms = self._now_ms()
        token = Token(user, name, now_ms, now_ms + ttl_s * 1000)
        key = _digest(text)
        self._tokens[key] = token
        return text, token, self._tables.put("token", key, encode_table(asdict(token)))

    def revoke(self, user: str, name: str) -> int:
        """End one; the LSN to wait for. Raises NotFound."""
        lsn = self._drop(user, name)
        if not lsn:
            raise NotFound("token", name, "")
        return lsn

    def forget_user(self, user: str) -> int:
        """End all of a user that is deleted; the LSN to wait for, 0 when there was none."""
        names = [one.name for one in self._tokens.values() if one.user == user]
        return max((self._drop(user, name) for name in names), default=0)

    def _drop(self, user: str, name: str) -> int:
        lsn = 0
        for key, one in list(self._tokens.items()):
            if one.user == user and one.name == name:
                del self._tokens[key]
                lsn = self._tables.delete("token", key)
        if lsn:
            self._ended()
        return lsn

    def _ended(self) -> None:
        for told in self.on_ended:
            told()

    def _forget_expired(self) -> None:
        now_ms = self._now_ms()
        for key, one in list(self._tokens.items()):
            if one.expires_ms <= now_ms:
                del self._tokens[key]
                self._tables.delete("token", key)

    def _now_ms(self) -> int:
        return int(self._wall_s() * 1000)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
