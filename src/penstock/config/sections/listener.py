"""Shared by sections with listeners: the addresses and their parts."""

from __future__ import annotations

from dataclasses import field

from penstock.config.kinds import Address, Listen, option
from penstock.lazy_dataclass import dataclass

__all__ = ["Listener", "TlsListener"]


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
