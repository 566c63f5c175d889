"""Shared by sections with listeners: the addresses and their parts."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from penstock.config.kinds import Address, Listen, Names, option
from penstock.lazy_dataclass import dataclass

__all__ = ["WS_ORIGINS", "WS_PATHS", "Listener", "TlsListener"]

WS_PATHS: Final = option(
    Names(),
    'Paths at which WebSocket clients may connect; "*" = any.',
    when="clients are set to another path",
)
WS_ORIGINS: Final = option(
    Names(),
    'Origins of pages whose scripts may connect over WebSocket, such as "https://example.org"; empty = any. '
    "Clients that send no Origin are no browsers and may always connect.",
    when="only your own pages may connect",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Options of every front end."""

    listen: str = field(default="", metadata=option(Listen(), "", when=""))

    @property
    def address(self) -> Address | None:
        """`listen` taken apart; None = off."""
        return Address.parse(self.listen) if self.listen else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsListener(Listener):
    """Options of a front end with TLS."""

    tls_listen: str = field(default="", metadata=option(Listen(), "", when=""))

    @property
    def tls_address(self) -> Address | None:
        """`tls_listen` taken apart; None = off."""
        return Address.parse(self.tls_listen) if self.tls_listen else None
