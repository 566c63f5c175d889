"""The section `links`: shovels and bridges to other brokers."""

from __future__ import annotations

from dataclasses import field

from penstock.config.bridges import Bridge, Bridges
from penstock.config.kinds import Count, option
from penstock.lazy_dataclass import dataclass

__all__ = ["Links"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Links to other brokers; see docs/how-to/shovels.md. You make shovels over HTTP."""

    max_links: int = field(
        default=200,
        metadata=option(
            Count(0, 10_000),
            "Shovels there may be, in all vhosts of a worker together, and links of federation as many "
            "again. Each holds two connections. 0 = none can be made.",
            when="you need more shovels, or users shall make none (0)",
        ),
    )
    bridges: tuple[Bridge, ...] = field(
        default=(),
        metadata=option(
            Bridges(),
            "Bridges to other MQTT brokers, with the names that Mosquitto has for them; see "
            "docs/how-to/bridges.md.",
            when="another MQTT broker shall share topics with this one",
            secret=True,
        ),
    )
