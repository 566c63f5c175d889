"""The section `audit`: who did what."""

from __future__ import annotations

from dataclasses import field

from penstock.config.kinds import GIB, MIB, Bytes, Seconds, Switch, option
from penstock.lazy_dataclass import dataclass

__all__ = ["Audit"]

_YEAR_S = 366 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The audit trail of administration and refused logins; see docs/reference/security.md."""

    enabled: bool = field(
        default=True,
        metadata=option(Switch(), "Whether anything is noted.", when="another system notes who did what"),
    )
    retention_bytes: int = field(
        default=16 * MIB,
        metadata=option(
            Bytes(64 * 1024, GIB),
            "How much of it is kept, about 500 bytes an entry; the oldest go first. Up to 32 MiB of it are "
            "in memory.",
            when="many administrators work with the gateway, and old entries count",
        ),
    )
    retention_s: float = field(
        default=_YEAR_S,
        metadata=option(
            Seconds(0, 100 * _YEAR_S),
            "How long entries are kept, within retention_bytes.",
            when="rules ask for another time",
        ),
    )
