"""Admission: decides by address who may connect, before a byte is read; one for all listeners of the process.

Counts the connections of each address and how quickly they come (a token bucket). Peers on loopback are not
limited. An IPv6 peer counts as its /64, which is what one customer gets. It also knows the networks of
trusted proxies: whoever comes from there says first for whom it speaks (`proxy.py`), and it is that address
which counts.

Memory: an entry per address that is connected, or was in the last seconds.
"""

from __future__ import annotations

import functools
import ipaddress
import time
from collections.abc import Callable, Sequence
from typing import Final

from penstock.protocols.net.admitting.addresses import address_of, is_loopback

__all__ = ["LIMITS", "MAX_CONNECTIONS", "Admission"]

MAX_CONNECTIONS: Final = "server.max_connections"
MAX_PER_ADDRESS: Final = "server.max_connections_per_address"
ACCEPT_RATE: Final = "server.accept_rate_per_address"
LIMITS: Final = (MAX_CONNECTIONS, MAX_PER_ADDRESS, ACCEPT_RATE)
"""The options by which a connection may be refused before a byte is read."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_BURST_S: Final = 2.0
"""An address may at once have as many connections accepted as come in so many seconds at its rate."""
_SWEEP_AT: Final = 4096
"""Entries at which those that say nothing any more are taken out."""


class _Peer:
    __slots__ = ("at", "count", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.count = 0
        self.tokens = tokens
        self.at = at


class Admission:
    """See the module text."""

    def __init__(
        self,
        *,
        proxy_networks: Sequence[str] = (),
        max_per_address: int = 0,
        rate_per_address: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`proxy_networks` in CIDR notation; `rate_per_address` per second; 0 = no limit."""
        self._clock = clock
        self._peers: dict[str, _Peer] = {}
        self._sweep_at = _SWEEP_AT
        self.change(proxy_networks, max_per_address, rate_per_address)

    def change(self, proxy_networks: Sequence[str], max_per_address: int, rate_per_address: float) -> None:
        """Other limits for connections that come from now on."""
        self._proxies: list[Network] = [ipaddress.ip_network(network) for network in proxy_networks]
        self.has_proxies = bool(self._proxies)
        """Whether some peers speak for others."""
        self._max = max_per_address
        self._rate = rate_per_address

    def is_proxy(self, host: str) -> bool:
        """Whether a peer with this numeric address must begin with a PROXY header."""
        if not self._proxies:
            return False
        address = address_of(host)
        return address is not None and any(address in network for network in self._proxies)

    def enter(self, host: str, *, proxied: bool = False) -> str | None:
        """Count a connection of this address in; `leave` follows unless it is refused.

        Returns:
            None, or why it is refused: the option that says so.

        """
        if not proxied and is_loopback(host):
            return None
        key = _key(host)
        now = self._clock()
        peer = self._peers.get(key)
        if peer is None:
            self._sweep(now)
            peer = self._peers[key] = _Peer(max(self._rate * _BURST_S, 1.0), now)
        if self._rate:
            peer.tokens = min(peer.tokens + (now - peer.at) * self._rate, max(self._rate * _BURST_S, 1.0))
            peer.at = now
            if peer.tokens < 1.0:
                return ACCEPT_RATE
            peer.tokens -= 1.0
        if self._max and peer.count >= self._max:
            return MAX_PER_ADDRESS
        peer.count += 1
        return None

    def leave(self, host: str) -> None:
        """A connection that was let in is gone."""
        peer = self._peers.get(_key(host))
        if peer is not None and peer.count:
            peer.count -= 1

    @property
    def remembered(self) -> int:
        """Addresses remembered."""
        return len(self._peers)

    def _sweep(self, now: float) -> None:
        if len(self._peers) < self._sweep_at:
            return
        gone = [key for key, peer in self._peers.items() if not peer.count and now - peer.at > _BURST_S]
        for key in gone:
            del self._peers[key]
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._peers))


@functools.lru_cache(maxsize=1024)
def _key(host: str) -> str:
    address = address_of(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address or host)
