"""Options of all webhooks together, from the configuration's section `webhooks`."""

from __future__ import annotations

import ssl
from ipaddress import ip_network

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.webhooks.address_rules import Guard
from penstock.protocols.http.webhooks.security.secrets import Seal

__all__ = ["WebhookOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """Named as the options of the configuration."""

    allow_networks: tuple[str, ...] = ()
    refuse_networks: tuple[str, ...] = ()
    allow_http: bool = False
    ports: tuple[int, ...] = (80, 443)
    ca_file: str = ""
    key_file: str = ""
    """The key that secrets are sealed with in the log; "" = they lie there as they are."""
    origin: str = ""
    """The origin that receivers are asked by the handshake to allow; "" = the name of this machine."""

    def guard(self) -> Guard:
        """The rules for addresses."""
        allow, refuse = (
            tuple(ip_network(network) for network in networks)
            for networks in (self.allow_networks, self.refuse_networks)
        )
        return Guard(allow, refuse, frozenset(self.ports), self.allow_http)

    def seal(self) -> Seal | None:
        """The keys that seal secrets. Raises ConfigError."""
        return Seal(self.key_file) if self.key_file else None

    def tls(self) -> ssl.SSLContext:
        """For https. Raises OSError when `ca_file` cannot be read."""
        context = ssl.create_default_context()
        if self.ca_file:
            context.load_verify_locations(self.ca_file)
        return context
