"""Sources of the keys of tokens: a file, or a server by HTTPS.

By HTTPS the server's certificate is verified and redirects are not followed: the keys come from where the
configuration says, or not at all. Neither size nor time is without a bound.
"""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from penstock.errors import ConfigError
from penstock.router.authentication.key_set import KeySetError

__all__ = ["key_source"]

_BYTES_MAX: Final = 1 << 20
_FETCH_S: Final = 10.0


def key_source(file: str, url: str, ca_file: str) -> Callable[[], bytes]:
    """The function that reads the keys; exactly one of `file` and `url` is not empty.

    Raises:
        ConfigError: the CAs cannot be used.

    """
    if file:
        return partial(_read, file)
    try:
        tls = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ConfigError(
            f"{ca_file} is no file of CA certificates: {error}",
            key="oauth.ca_file",
            remedy="give the CA of oauth.jwks_url as PEM",
        ) from None
    return partial(_fetch, url, tls)


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
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls), _NoRedirects())
    ends = time.monotonic() + _FETCH_S
    pieces, size = [], 0
    try:
        with opener.open(url, timeout=_FETCH_S) as answer:
            while piece := answer.read1(65536):
                pieces.append(piece)
                size += len(piece)
                if size > _BYTES_MAX or time.monotonic() > ends:
                    raise KeySetError(
                        f"{url} sends more than {_BYTES_MAX} bytes, or for over {_FETCH_S:.0f} s",
                        remedy="correct oauth.jwks_url",
                    )
    except (OSError, ValueError) as error:
        raise KeySetError(f"{url} cannot be read: {error}", remedy="correct oauth.jwks_url") from None
    return b"".join(pieces)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None
