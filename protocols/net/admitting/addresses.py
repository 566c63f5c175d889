"""Numeric addresses of peers, as the rules about them see them."""

from __future__ import annotations

import functools
import ipaddress

__all__ = ["address_of", "is_loopback"]


@functools.lru_cache(maxsize=1024)  # each connection asks several times
def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address written so, an IPv4 one for one that is mapped into IPv6; None = it is none."""
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@functools.lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether a peer with this numeric address is on this machine."""
    address = address_of(host)
    return address is not None and address.is_loopback
