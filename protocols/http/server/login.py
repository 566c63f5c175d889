"""The credentials of a request: HTTP Basic (RFC 7617), or a token as Bearer (RFC 6750): the gateway's
own, or one of OAuth 2, which Basic takes as a password, too.

A page of the gateway logs in by `POST /api/login` and sends a cookie from then on (`web_sessions`), which
counts where there is no Authorization header. Cookies are sent to every port of a host, so its name has the
port: the pages of two gateways on one machine do not log each other out. Under TLS the prefix `__Host-` keeps
anybody who answers for the same host without TLS from setting it (RFC 6265bis 4.1.3.2).

A connection remembers the credentials that were right last, until any user is changed (`Users.changes`), so
that a changed password or a deleted user counts at once.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final
from urllib.parse import urlsplit

from penstock.protocols.http.server.messages import HttpError, Request

__all__ = ["bearer", "cookie_name", "cookie_of", "credentials", "session_of"]

_MAX: Final = 12 << 10
"""Bytes of credentials; a token of OAuth 2 may be long."""


def check_ascii(header: str) -> None:
    """Refuse an Authorization header that no scheme could have made (RFC 9110 11.4). Raises HttpError 400."""
    if not header.isascii():
        raise HttpError(400, "malformed", "the Authorization header has bytes that are not ASCII")


def bearer(header: str) -> str | None:
    """The token of an Authorization header; None: it has none. Raises HttpError 400: it is not ASCII."""
    check_ascii(header)
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and len(token) <= _MAX else None


def credentials(header: str) -> tuple[str, bytes]:
    """User name and password of an Authorization header.

    Raises:
        HttpError: 401, it has none, or not as Basic; 400, it is not ASCII.

    """
    check_ascii(header)
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _MAX:
        raise HttpError(401, "not_authorized", "Not logged in; send a user name and password (Basic)")
    try:
        raw = base64.b64decode(encoded.strip(), validate=True)
        name, colon, password = raw.partition(b":")
        username = name.decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        colon, username, password = b"", "", b""
    if not colon:
        raise HttpError(401, "not_authorized", "the Basic credentials cannot be read")
    return username, password


def cookie_name(request: Request) -> str:
    """The name of the cookie with the session, for the page that makes the request."""
    try:
        port = urlsplit(f"//{request.headers.get('host', '')}").port or ""
    except ValueError:
        port = ""
    return f"__Host-penstock-{port}" if request.secure else f"penstock-{port}"


def session_of(request: Request) -> str | None:
    """The session that a request is made in; None: it has none, or logs in otherwise."""
    return None if "authorization" in request.headers else cookie_of(request, cookie_name(request))


def cookie_of(request: Request, wanted: str) -> str | None:
    """The value of a cookie; None: the request has none of that name."""
    for pair in request.headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            return value
    return None
