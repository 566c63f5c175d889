"""The publishers that wait or are refused, and why: for an operator who looks at the overview.

    {"what": "gateway", "name": NODE, "effect": "waits", "reason": "the disk is nearly full"}
    {"what": "vhost", "name": V, "effect": "waits" | "refused", "reason": "max-backlog-bytes"}
    {"what": "connection", "name": N, "effect": "waits", "reason": "max-message-rate, max-byte-rate"}

A user sees the vhosts that they may enter, and connections as in their list. At most `MOST` connections are
named; the rates of users and vhosts slow each for a moment only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.router.limits.limits import BACKLOG_BYTES, BACKLOG_REJECT, BYTE_RATE, MESSAGE_RATE

if TYPE_CHECKING:
    from penstock.protocols.http.management.context import Management
    from penstock.protocols.listening.registry import Live

__all__ = ["EFFECTS", "KINDS", "MOST", "blocked"]

MOST: Final = 20
KINDS: Final = ("gateway", "vhost", "connection")
EFFECTS: Final = ("waits", "refused")


def blocked(api: Management, vhosts: Iterable[str], lives: Iterable[Live]) -> list[dict[str, str]]:
    """All that is blocked, of these vhosts and connections."""
    broker = api.broker
    found = [("gateway", api.node, "waits", reason) for reason in broker.log.wait_reasons]
    for vhost in sorted(vhosts):
        if vhost in broker.quotas.full:
            found.append(("vhost", vhost, "waits", BACKLOG_BYTES))
        if vhost in broker.quotas.refusing:
            found.append(("vhost", vhost, "refused", BACKLOG_REJECT))
    slowed = [live.name for live in lives if live.connection.slowed][:MOST]
    found += [("connection", name, "waits", f"{MESSAGE_RATE}, {BYTE_RATE}") for name in slowed]
    return [dict(zip(("what", "name", "effect", "reason"), one, strict=True)) for one in found]
