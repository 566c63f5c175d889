"""The address of a gateway: `penstock://user:password@host:port/vhost`, `penstocks://` with TLS."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.sdk.errors import ClientError

__all__ = ["PORT", "TLS_PORT", "Target", "parse_url"]

PORT: Final = 15690
TLS_PORT: Final = 15691


class Target(NamedTuple):
    """A gateway, and who connects."""

    host: str
    port: int
    tls: bool
    user: str
    password: str
    vhost: str

    @property
    def address(self) -> str:
        """Without user and password."""
        return f"penstock{'s' if self.tls else ''}://{self.host}:{self.port}"


def parse_url(url: str) -> Target:
    """The parts of a URL; the user is guest, the vhost "/" unless it says otherwise.

    Raises:
        ClientError: it is no URL of a gateway.

    """
    if not isinstance(url, str):
        raise TypeError(f"an address of a gateway is text, not {type(url).__name__}")
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ClientError(
            "the host of the address is none", remedy="write an address of IPv6 in brackets: penstock://[::1]"
        ) from error
    if parts.query or parts.fragment:
        # Not shown: a password has such characters.
        raise ClientError(
            "an address of a gateway has nothing behind a ? or #",
            remedy="write options as arguments of connect; in a password or vhost %3F is ? and %23 is #",
        )
    try:
        port = parts.port
    except ValueError:
        # Not with what it is: behind a / in a password it is a part of that.
        raise ClientError(
            f"the port of {parts.hostname!r} is none",
            remedy=f"write a number up to 65535, or none for {PORT} ({TLS_PORT} with TLS); in a password "
            "%2F is /, %40 is @ and %3A is :",
        ) from None
    if parts.scheme not in ("penstock", "penstocks") or not parts.hostname:
        raise ClientError(
            f"{parts.scheme or url!r} is no address of a gateway",
            remedy="write penstock://user:password@host:port/vhost, or penstocks:// for TLS",
        )
    tls = parts.scheme == "penstocks"
    return Target(
        parts.hostname,
        port or (TLS_PORT if tls else PORT),
        tls,
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        unquote(parts.path[1:]) or "/",
    )
