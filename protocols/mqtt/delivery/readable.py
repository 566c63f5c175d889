"""Looking at each delivery of a subscription that is wider than what its user may read.

`mqtt.acl_file` may deny a part of what a filter matches. The subscription is granted, and the connection's
deliverer asks about each topic; verdicts are remembered there. A connection all of whose filters are
allowed as a whole asks nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.protocols.mqtt.subscriptions.shared import filter_of
from penstock.router.names import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.protocols.mqtt.clients.client import Client

__all__ = ["guard_of"]


def guard_of(client: Client, topics: Iterable[str]) -> Callable[[bytes], bool] | None:
    """Tells whether the session's user may read a topic; None: it may read all these filters."""
    guard, identity, vhost = client.vhost.broker.authorizer.topic_guard, client.identity, client.vhost.name
    if guard is None or not guard.filters or not identity.guarded:
        return None
    if all(guard.allow(identity, "read", filter_of(topic), vhost=vhost) for topic in topics):
        return None
    return lambda topic: guard.allow(identity, "read", text(topic), vhost=vhost)
