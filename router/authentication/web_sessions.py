"""Sessions of web pages: a user logs in once, and the browser sends a cookie. Owns the table `web_session`.

A session is 256 random bits. Only its SHA-256 is stored, so nobody can log in with the content of the log.
It has the rights of its user, or of the token of OAuth 2 that it was begun with. It ends

- after 30 minutes in which nobody used it, and after 8 hours in any case,
- when its user logs out,
- when the password or the tags of its user change, or the user is deleted,
- with the time of its token.

The table is one of those that all workers share. So a session holds in each of them, and after a restart.

    table web_session   key: SHA-256 of the session, 32 B
                        value: {user, stamp, tags, scopes, ends_ms, used_ms}
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import decode_table, encode_table
from penstock.router.authentication.users import Users
from penstock.router.authorization.grants import Grants
from penstock.router.authorization.identity import Identity
from penstock.router.rows import Tables

__all__ = ["IDLE_S", "LIFE_S", "WebSessions"]

IDLE_S: Final = 30 * 60
LIFE_S: Final = 8 * 3600
_NOTE_EACH_S: Final = 60
"""A session that is used is written so often at most: a row for each request would fill the log."""
_OF_A_USER: Final = 100
"""With more, the one that was used least recently ends."""


@dataclass(frozen=True, slots=True)
class _Session:
    user: str
    stamp: bytes
    """Of the password and the tags that it was begun with; empty with a token of OAuth 2."""
    tags: list[str]
    scopes: list[str]
    """The token's, as `Grants.parse` reads them."""
    ends_ms: int
    used_ms: int
    """Both since the epoch."""


class WebSessions:
    """All of a gateway."""

    def __init__(self, tables: Tables, users: Users, *, wall_s: Callable[[], float] = time.time) -> None:
        self._tables = tables
        self._users = users
        self._wall_s = wall_s
        self._sessions: dict[bytes, _Session] = {}
        self.on_ended: list[Callable[[], None]] = []
        """Called when a session was ended by somebody; not when its time is up."""
        for key, value in tables.items("web_session"):
            self.restored(key, decode_table(value))

    def restored(self, key: bytes, row: Mapping[str, Any] | None) -> None:
        """The row of a session as it is in the table; None: it is gone."""
        if row is None:
            if self._sessions.pop(key, None) is not None:
                self._ended()
        else:
            self._sessions[key] = _Session(**row)

    def begin(self, identity: Identity) -> tuple[str, int]:
        """A new session of a user who has just logged in: its text, and the LSN to wait for."""
        now_ms = self._now_ms()
        self._forget_ended(now_ms)
        mine = sorted(
            (session.used_ms, key)
            for key, session in self._sessions.items()
            if session.user == identity.username
        )
        for _, key in mine[: max(len(mine) - _OF_A_USER + 1, 0)]:
            self._drop(key)
        text = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        ends_ms, grants = now_ms + LIFE_S * 1000, identity.grants
        if grants is not None:
            ends_ms = min(ends_ms, int(grants.ends_at * 1000))
        session = _Session(
            identity.username,
            b"" if grants is not None else self._users.stamp(identity.username),
            sorted(identity.tags),
            [] if grants is None else grants.texts(),
            ends_ms,
            now_ms,
        )
        return text, self._put(_digest(text), session)

    def authenticate(self, text: str, peer_is_loopback: bool) -> Identity | None:
        """Whose session it is, which is used by that; None: it has ended.

        Raises:
            AuthenticationRefused: its user may not log in from this peer.

        """
        session = self._good(text)
        if session is None:
            return None
        self.used(text)
        if session.stamp:
            return self._users.certified(session.user, peer_is_loopback)
        grants, _ = Grants.parse(session.scopes, session.ends_ms / 1000)
        return Identity(session.user, frozenset(session.tags), grants=grants)

    def used(self, text: str) -> None:
        """Somebody uses a session: it goes on for `IDLE_S`, if it has not ended."""
        session, now_ms = self._good(text), self._now_ms()
        if session is not None and now_ms - session.used_ms >= _NOTE_EACH_S * 1000:
            self._put(_digest(text), replace(session, used_ms=now_ms))

    def left_s(self, text: str) -> float:
        """For how many seconds a session still logs in; 0: not any more."""
        session = self._good(text)
        return 0.0 if session is None else (_end_ms(session) - self._now_ms()) / 1000

    def end(self, text: str) -> int:
        """End a session; the LSN to wait for, 0 when there was none."""
        return self._drop(_digest(text))

    def forget_user(self, user: str) -> int:
        """End all of a user that is deleted; the LSN to wait for, 0 when there was none."""
        keys = [key for key, session in self._sessions.items() if session.user == user]
        return max((self._drop(key) for key in keys), default=0)

    def _good(self, text: str) -> _Session | None:
        session = self._sessions.get(_digest(text))
        if session is None or _end_ms(session) <= self._now_ms():
            return None
        is_changed = session.stamp and session.stamp != self._users.stamp(session.user)
        return None if is_changed else session

    def _put(self, key: bytes, session: _Session) -> int:
        self._sessions[key] = session
        return self._tables.put("web_session", key, encode_table(asdict(session)))

    def _drop(self, key: bytes) -> int:
        if self._sessions.pop(key, None) is None:
            return 0
        lsn = self._tables.delete("web_session", key)
        self._ended()
        return lsn

    def _ended(self) -> None:
        for told in self.on_ended:
            told()

    def _forget_ended(self, now_ms: int) -> None:
        for key in [key for key, session in self._sessions.items() if _end_ms(session) <= now_ms]:
            self._drop(key)

    def _now_ms(self) -> int:
        return int(self._wall_s() * 1000)


def _end_ms(session: _Session) -> int:
    return min(session.ends_ms, session.used_ms + IDLE_S * 1000)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
