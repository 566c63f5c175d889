"""Where a connection of AMQP 0-9-1 goes to, and who logs in."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass
from penstock.protocols.links.amqp.uri import Uri
from penstock.protocols.links.stream import Stream
from penstock.protocols.links.tls import client_tls

if TYPE_CHECKING:
    from penstock.protocols.links.local import Local

__all__ = ["Place", "place_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A broker."""

    connect: Callable[[], Awaitable[Stream]]
    """Raises OSError, LinkError."""
    user: str
    password: str
    external: bool = False
    """Whether the certificate logs in, and no password."""
    heartbeat_s: int = 20
    timeout_s: float = 60.0
    """For the connection and the login."""

    @classmethod
    def tcp(cls, host: str, port: int, user: str, password: str) -> Place:
        """Without TLS."""
        return cls(connect=lambda: Stream.connect(host, port), user=user, password=password)


def place_of(uri: Uri, local: Local, user: str) -> Place:
    """The place of a URI. Without a host it is the gateway itself, where `user` logs in.

    Raises:
        LinkError: a file for TLS cannot be used, or the vhost is not here.
        AuthenticationRefused: there is no such user.

    """
    if not uri.host:
        return Place(
            connect=lambda: local.connect("amqp"),
            user=user,
            password=local.ticket(uri.vhost, user),
            heartbeat_s=0,
            timeout_s=uri.timeout_s,
        )
    tls: ssl.SSLContext | None = None
    names = uri.parameters
    if uri.tls:
        tls = client_tls(
            ca_file=names.get("cacertfile", ""),
            cert_file=names.get("certfile", ""),
            key_file=names.get("keyfile", ""),
            verify=names.get("verify") != "verify_none",
        )
    return Place(
        connect=lambda: Stream.connect(uri.host, uri.port, tls, names.get("server_name_indication")),
        user=uri.user,
        password=uri.password,
        external=names.get("auth_mechanism", "").lower() == "external",
        heartbeat_s=uri.heartbeat_s,
        timeout_s=uri.timeout_s,
    )
