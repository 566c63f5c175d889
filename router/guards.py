"""The port for further rules on MQTT topics, asked wherever topic permissions are; front ends provide one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.router.identity import Identity
    from penstock.router.permissions import TopicOperation

__all__ = ["TopicGuard"]


class TopicGuard(Protocol):
    """Rules that an MQTT client is held to besides its permissions."""

    @property
    def individual(self) -> bool:
        """Whether clients of one user may have different rights."""

    @property
    def slow(self) -> bool:
        """Whether decisions may take long: then each publish is asked about by itself, in Python, after the
        front end has waited for the decision.
        """

    def allow(self, identity: Identity, operation: TopicOperation, topic: str) -> bool:
        """Whether the identity may publish to this topic ("write") or subscribe to this filter ("read")."""
