"""The limit of failed logins: ten a minute for each peer address and user.

Memory is bounded: pairs are kept as short hashes, and the oldest go first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from penstock.router.names import wire

__all__ = ["FAILURES_MAX", "WINDOW_S", "LoginLimit"]

FAILURES_MAX: Final = 10
WINDOW_S: Final = 60.0
_PAIRS_MAX: Final = 100_000


class LoginLimit:
    """The failures of the last minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._failures: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        """When the first failure of a window was, and how many there were; oldest window first."""

    def reached(self, peer: str, username: str) -> bool:
        """Whether this user's logins from that address have failed too often."""
        since, count = self._failures.get(_pair(peer, username), (0.0, 0))
        return count >= FAILURES_MAX and self._clock() < since + WINDOW_S

    def failed(self, peer: str, username: str) -> None:
        """A login was refused for its user name or its password."""
        pair = _pair(peer, username)
        now = self._clock()
        since, count = self._failures.get(pair, (now, 0))
        if now >= since + WINDOW_S:
            del self._failures[pair]
            since, count = now, 0
        self._failures[pair] = since, count + 1
        if len(self._failures) > _PAIRS_MAX:
            self._failures.popitem(last=False)


def _pair(peer: str, username: str) -> bytes:
    address = peer.encode()
    return hashlib.blake2b(
        len(address).to_bytes(4, "big") + address + wire(username), digest_size=16
    ).digest()
