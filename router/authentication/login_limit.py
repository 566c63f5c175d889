"""How fast logins may fail. Logins over the limit are slowed, so that they do not lock out others.

Two limits, by the address that a login comes from (an IPv6 address counts as its /64):

    address and user   10 wrong passwords without a minute's rest, then one login each second
    address            20 different names with wrong passwords in a minute, then one login each 0.5 s,
                       of names that have not logged in from there yet

A login over a limit waits for its turn before its password is checked, so the time until the answer
says nothing about the password. A right one gives back the turn that it took. When the wait is longer
than 6 s the login is refused, but never on loopback, where it waits 2 s at most.

Memory is bounded: names are kept as short hashes, and the oldest go first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import field
from ipaddress import IPv6Address
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.router.names import wire

__all__ = ["FAILURES_MAX", "NAMES_MAX", "WAIT_MAX_S", "WINDOW_S", "LoginLimit"]

FAILURES_MAX: Final = 10
NAMES_MAX: Final = 20
WINDOW_S: Final = 60.0
WAIT_MAX_S: Final = 6.0
_LOOPBACK_WAIT_MAX_S: Final = 2.0
_USER_PACE_S: Final = 1.0
_ADDRESS_PACE_S: Final = 0.5
_PAIRS_MAX: Final = 100_000
_ADDRESSES_MAX: Final = 10_000


@dataclass(slots=True)
class _Failures:
    """Of one user from one address."""

    last_at: float
    count: int = 0
    next_at: float = 0.0
    """When the next login has its turn."""


@dataclass(slots=True)
class _Names:
    """Of one address."""

    since: float
    names: set[bytes] = field(default_factory=set)
    """At most `NAMES_MAX`, hashed."""
    next_at: float = 0.0


class LoginLimit:
    """The failures of the last minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._failures: OrderedDict[bytes, _Failures] = OrderedDict()
        """By address and user; the oldest first."""
        self._names: OrderedDict[str, _Names] = OrderedDict()
        """By address; the oldest first."""
        self._known: OrderedDict[bytes, None] = OrderedDict()
        """Address and user of logins that were right; the oldest first."""

    @property
    def is_calm(self) -> bool:
        """Whether no login has failed lately: nobody waits for a turn."""
        return not (self._failures or self._names)

    def turn(self, peer: str, username: str, *, loopback: bool) -> float | None:
        """Take the next turn for a login: in how many seconds it is; None: it is refused.

        Args:
            peer: The address that it comes from.
            username: As the client says.
            loopback: It comes from this machine: it is never refused.

        """
        now, place = self._clock(), _place(peer)
        pair = _pair(place, username)
        paced: list[tuple[_Failures | _Names, float]] = []
        failures = self._failures.get(pair)
        if failures is not None and failures.count >= FAILURES_MAX and now < failures.last_at + WINDOW_S:
            paced.append((failures, _USER_PACE_S))
        names = self._names.get(place)
        if names is not None and len(names.names) >= NAMES_MAX and pair not in self._known:
            if now < max(names.since + WINDOW_S, names.next_at):
                paced.append((names, _ADDRESS_PACE_S))
        wait_s = max((max(one.next_at, now) + pace_s - now for one, pace_s in paced), default=0.0)
        if wait_s > WAIT_MAX_S and not loopback:
            return None
        for one, pace_s in paced:
            one.next_at = min(max(one.next_at, now) + pace_s, now + WAIT_MAX_S)
        return min(wait_s, _LOOPBACK_WAIT_MAX_S) if loopback else wait_s

    def failed(self, peer: str, username: str) -> None:
        """A login was refused for its user name or its password."""
        now, place = self._clock(), _place(peer)
        pair = _pair(place, username)
        failures = self._failures.setdefault(pair, _Failures(now))
        if now >= failures.last_at + WINDOW_S:
            failures.count = 0
        failures.count += 1
        failures.last_at = now
        self._failures.move_to_end(pair)
        names = self._names.setdefault(place, _Names(now))
        if now >= names.since + WINDOW_S:
            names.since, names.names = now, set()
        if len(names.names) < NAMES_MAX:
            names.names.add(pair)
        self._names.move_to_end(place)
        _trim(self._failures, _PAIRS_MAX)
        _trim(self._names, _ADDRESSES_MAX)

    def succeeded(self, peer: str, username: str) -> None:
        """A login was right."""
        place = _place(peer)
        pair = _pair(place, username)
        if (failures := self._failures.get(pair)) is not None:
            failures.next_at -= _USER_PACE_S
        if pair not in self._known and (names := self._names.get(place)) is not None:
            names.next_at -= _ADDRESS_PACE_S
        self._known[pair] = None
        self._known.move_to_end(pair)
        _trim(self._known, _PAIRS_MAX)


def _trim(table: OrderedDict[Any, Any], most: int) -> None:
    while len(table) > most:
        table.popitem(last=False)


def _place(peer: str) -> str:
    if ":" not in peer:
        return peer
    try:
        address = IPv6Address(peer.partition("%")[0])
    except ValueError:
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64))


def _pair(place: str, username: str) -> bytes:
    address = place.encode()
    return hashlib.blake2b(
        len(address).to_bytes(4, "big") + address + wire(username), digest_size=16
    ).digest()
