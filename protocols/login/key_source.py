"""Sources of the keys of tokens: a file, or a server by HTTPS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from penstock.protocols.login.https import fetch, trusting
from penstock.router.authentication.key_set import KeySetError

__all__ = ["key_source"]

_BYTES_MAX: Final = 1 << 20


def key_source(file: str, url: str, ca_file: str) -> Callable[[], bytes]:
    """The function that reads the keys; exactly one of `file` and `url` is not empty.

    Raises:
        ConfigError: the CAs cannot be used.

    """
    return partial(_read, file) if file else partial(_fetch, url, trusting(ca_file))


def _read(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            found = opened.read(_BYTES_MAX + 1)
    except OSError as error:
        raise KeySetError(
            f"{file} cannot be read: {error.strerror or error}", remedy="give a file with a JSON Web Key Set"
        ) from None
    if len(found) > _BYTES_MAX:
        raise KeySetError(f"{file} has more than {_BYTES_MAX} bytes", remedy="give a JSON Web Key Set")
    return found


def _fetch(url: str, tls: ssl.SSLContext) -> bytes:
    try:
        return fetch(url, tls)
    except (OSError, ValueError) as error:
        raise KeySetError(f"{url} cannot be read: {error}", remedy="correct oauth.jwks_url") from None
