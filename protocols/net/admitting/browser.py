"""Requests of web pages: which page asks, and whether the name it used for this machine is ours. Pure.

A browser adds credentials that it remembers to requests of any page, and it connects from this machine. So
a page of another site could act as its reader (cross-site request forgery), and a name that an attacker
controls could point to this machine (DNS rebinding). A browser says which page asks:

    Origin          scheme, host and port of the page; with every request that can change something
    Sec-Fetch-Site  cross-site, same-site, same-origin or none; only to https and to loopback addresses
    Host            the name in the URL that the page used

Sources: RFC 6454 (Origin), the Fetch standard (forbidden headers: a script cannot set these three), Fetch
Metadata Request Headers.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import cache, lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

__all__ = ["foreign_page", "is_from_page", "own_host", "same_origin"]

_FOREIGN_SITES: Final = ("cross-site", "same-site")
_HOST_MAX: Final = 300
"""Characters of a Host header: a name has 253 at most, and a port follows. So what is cached is small."""


def is_from_page(headers: Mapping[str, str]) -> bool:
    """Whether a script or a form of a web page made the request; `headers` by lower-case name."""
    return "origin" in headers or headers.get("sec-fetch-site", "none") != "none"


def foreign_page(headers: Mapping[str, str]) -> str | None:
    """The page that made the request when it has another origin than the request's target; None: it has not.

    The text names the page, for the log and for errors.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site in _FOREIGN_SITES:
        return origin or f"another origin ({site})"
    if site == "same-origin" or origin is None:
        # A proxy may have changed Host; the browser's own word is better.
        return None
    return None if same_origin(origin, headers.get("host", "")) else origin


def same_origin(origin: str, host: str) -> bool:
    """Whether the page of an Origin header was loaded from `host`, the Host header of the request."""
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def own_host(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header names this machine with certainty: no other owner of a name can point it here.

    True for loopback names, for addresses, for names without a dot (no public name server answers for those),
    for the machine's own name, for `names` (in lower case, from the configuration), and for no Host at all,
    which browsers always send.
    """
    if not host:
        return True
    return len(host) <= _HOST_MAX and _is_own(host, names)


@lru_cache(256)
def _is_own(host: str, names: frozenset[str]) -> bool:
    """The same for one that is not empty: clients send the same one with each request."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if ("." not in name and name) or name == _machine() or name.endswith(".localhost") or name in names:
        return True
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


@cache
def _machine() -> str:
    return socket.gethostname().lower()
