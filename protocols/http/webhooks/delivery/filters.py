"""Which messages a webhook is for: by routing key, headers and type; all that is said must hold.

{"routing_key": "orders.*.new", "headers": {"shop": "north"}, "types": ["order.created"]}

The routing key is matched as a topic exchange matches it, headers are compared as they are, `types` are the
message's property `type`, which is a CloudEvent's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.router.names import wire
from penstock.router.routes.topics import DottedTrie

if TYPE_CHECKING:
    from penstock.protocols.http.shared.traffic import Shown
    from penstock.protocols.http.webhooks.settings import Filter

__all__ = ["Matcher"]


class Matcher:
    """A filter, ready for use."""

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._keys: DottedTrie[bool] = DottedTrie()
        if wanted.routing_key:
            self._keys.add(wire(wanted.routing_key), lambda: True)

    def matches(self, message: Shown) -> bool:
        """Whether the webhook is for this message."""
        wanted, properties = self._wanted, message.properties
        if wanted.types and properties.get("type") not in wanted.types:
            return False
        if wanted.headers:
            headers = properties.get("headers") or {}
            if any(headers.get(name) != value for name, value in wanted.headers.items()):
                return False
        return not wanted.routing_key or bool(self._keys.match(wire(message.routing_key)))
