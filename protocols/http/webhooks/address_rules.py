"""Addresses that webhooks may reach: no private networks, whatever a URL or the name service says. Pure.

A URL is checked when it is configured; the addresses of its host are checked at every new connection, which
is then made to a checked address and to no other (`client`). So a name that answers with another address the
next time (DNS rebinding) gains nothing. All addresses of a name must be fit: a name that mixes a public and a
private one is refused, not sorted.

An IPv6 address that carries an IPv4 address is judged by that one: mapped ::ffff:0:0/96, NAT64 64:ff9b::/96
(RFC 6052), 6to4 2002::/16 (RFC 3056). Besides these only 2000::/3 is public at all.

Source: IANA's special-purpose address registries for IPv4 and IPv6 (RFC 6890); CloudEvents HTTP webhook 1.0,
section 4 (abuse protection).
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

from penstock.lazy_dataclass import dataclass

__all__ = ["Forbidden", "Guard", "Target"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_URL_MAX: Final = 2048
_REFUSED_V4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_PUBLIC_V6: Final = IPv6Network("2000::/3")
_REFUSED_V6: Final = tuple(
    # 2001::/23 has Teredo, ORCHID, benchmarking: nothing that serves HTTP.
    IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "3fff::/20")
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_PORTS: Final = {"http": 80, "https": 443}


class Forbidden(Exception):
    """A webhook may not go there; the text says why, and what would allow it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart."""

    scheme: str
    host: str
    """In ASCII; an IPv6 address without its brackets."""
    port: int
    path: str
    """With the query, as it is sent."""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def judged(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, or itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        if address in _SIX_TO_FOUR:
            return IPv4Address((int(address) >> 80) & 0xFFFFFFFF)
    return address


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules of one gateway."""

    allow: tuple[Network, ...] = ()
    """Networks that may be reached although they are private, at any port and without TLS."""
    refuse: tuple[Network, ...] = ()
    """Networks that may not be reached although they are public."""
    ports: frozenset[int] = frozenset({80, 443})
    """Ports elsewhere."""
    allow_http: bool = False
    """Whether URLs elsewhere may go without TLS."""

    def target(self, url: str) -> Target:
        """Take a URL apart.

        Raises:
            Forbidden: it is none that a webhook can have, wherever it leads.

        """
        if len(url) > _URL_MAX or any(not "!" <= char <= "~" for char in url):
            raise Forbidden(f"the URL has more than {_URL_MAX} characters, or some that must be escaped")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise Forbidden(f"the URL cannot be read: {error}") from error
        if parts.scheme not in _PORTS:
            raise Forbidden(f"the URL begins with https:// (or http://), not {parts.scheme[:20]!r}")
        if parts.username is not None or parts.password is not None:
            raise Forbidden("the URL has a user name: send credentials in `headers`")
        if not parts.hostname or "%" in parts.hostname:
            raise Forbidden("the URL has no host, or one with a zone")
        if parts.fragment or port == 0:
            raise Forbidden("the URL has a fragment, or port 0")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        target = Target(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], path)
        try:
            literal = ip_address(target.host)
        except ValueError:
            return target
        self.permit(target, [str(literal)])
        return target

    def permit(self, target: Target, addresses: Sequence[str]) -> None:
        """Check all addresses that the target's host has.

        Raises:
            Forbidden: it has none, or one of them may not be reached.

        """
        if not addresses:
            raise Forbidden(f"{target.host} has no address")
        for text in addresses:
            try:
                address = ip_address(text)
            except ValueError as error:
                raise Forbidden(f"{target.host} has an address that is none, {text[:60]!r}") from error
            self._permit(target, address)

    def _permit(self, target: Target, address: Address) -> None:
        real = judged(address)
        for network in self.refuse:
            if address in network or real in network:
                raise Forbidden(f"{target.host} is at {address}, refused by webhooks.refuse_networks")
        if any(real in network for network in self.allow):
            return
        if not _is_public(real):
            raise Forbidden(
                f"{target.host} is at {address}, which is not a public address: "
                "webhooks.allow_networks can allow it"
            )
        if target.port not in self.ports:
            raise Forbidden(f"port {target.port} is not among webhooks.ports")
        if target.scheme != "https" and not self.allow_http:
            raise Forbidden("without TLS: write https://, or set webhooks.allow_http")


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _REFUSED_V6)
