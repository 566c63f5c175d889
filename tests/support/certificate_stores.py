"""The certificates of the public authorities are read once: that takes httpx 30 ms for each client it makes.

Only clients that are given no certificates of their own share what was read.
"""

from __future__ import annotations

import functools
import os
import ssl
from typing import Any

import httpx
from httpx._transports import default

__all__ = ["keep_stores"]


@functools.cache
def _public(*_variables: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is True and cert is None and trust_env:
        return _public(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return httpx.create_ssl_context(verify, cert, trust_env)


def keep_stores() -> None:
    """From now on clients of this process share one context."""
    default.create_ssl_context = _context
