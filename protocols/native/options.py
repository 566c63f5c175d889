"""Options of the native front end, with the key names of the configuration's section `native`."""

from __future__ import annotations

from typing import Final

from penstock.lazy_dataclass import dataclass

__all__ = ["CHOOSERS_MAX", "CONTROL_MAX", "HANDLES_MAX", "LOGIN_MAX", "SINGLES_MAX", "NativeOptions"]

LOGIN_MAX: Final = 16 << 10
"""Bytes of a frame before the login is complete; a password may be a token."""
CONTROL_MAX: Final = 65_536
"""Bytes of a frame of JSON."""
HANDLES_MAX: Final = 10_000
"""Producers and consumers of one connection."""
CHOOSERS_MAX: Final = 1_000
"""Consumers of a subscription whose kind looks at all when one comes or goes: failover, key_shared."""
SINGLES_MAX: Final = 10_000
"""Records of a batch that must be looked at one by one; a tenth of a second at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeOptions:
    """Limits of native connections."""

    listen: str = ""
    """HOST:PORT; "" = off."""
    tls_listen: str = ""
    """HOST:PORT for TLS; "" = off."""
    max_frame_bytes: int = 16 << 20
    """The largest frame taken; a batch is one frame."""
    max_unacked: int = 50_000
    """Deliveries that one consumer may have out."""
    heartbeat_s: float = 30.0
    """A connection that was silent for so long is asked whether it is there, and closed after twice that."""
