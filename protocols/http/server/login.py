"""The credentials of a request: HTTP Basic (RFC 7617), or a token as Bearer (RFC 6750): the gateway's
own, or one of OAuth 2, which Basic takes as a password, too.

A connection remembers the credentials that were right last, until any user is changed (`Users.changes`), so
that a changed password or a deleted user counts at once.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from penstock.protocols.http.server.messages import HttpError

__all__ = ["bearer", "credentials"]

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
