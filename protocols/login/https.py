"""Requests by HTTPS to an issuer of tokens.

The server's certificate is verified and redirects are not followed: what comes back comes from where the
configuration says, or nothing does. Neither size nor time is without a bound. These calls block.
"""

from __future__ import annotations

import ssl
import time
import urllib.request
from typing import IO, Any, Final

from penstock.errors import ConfigError

__all__ = ["fetch", "trusting"]

_BYTES_MAX: Final = 1 << 20
_FETCH_S: Final = 10.0


def trusting(ca_file: str) -> ssl.SSLContext:
    """TLS that trusts the CAs in a file; "": those of the system.

    Raises:
        ConfigError: they cannot be used.

    """
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ConfigError(
            f"{ca_file} is no file of CA certificates: {error}",
            key="oauth.ca_file",
            remedy="give the CA of the issuer as PEM",
        ) from None


def fetch(url: str, tls: ssl.SSLContext, form: bytes | None = None) -> bytes:
    """The body of the answer to a GET, or to a POST of a form.

    Raises:
        OSError, ValueError: there is none, it is an error, or it is too long.

    """
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls), _NoRedirects())
    ends = time.monotonic() + _FETCH_S
    pieces, size = [], 0
    request = urllib.request.Request(url, form, {"accept": "application/json"})
    with opener.open(request, timeout=_FETCH_S) as answer:
        while piece := answer.read1(65536):
            pieces.append(piece)
            size += len(piece)
            if size > _BYTES_MAX or time.monotonic() > ends:
                raise ValueError(f"it sends more than {_BYTES_MAX} bytes, or for over {_FETCH_S:.0f} s")
    return b"".join(pieces)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None
