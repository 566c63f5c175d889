"""The management API put together: every group of paths on one app."""

from __future__ import annotations

from penstock.protocols.http.audit import handlers as audit
from penstock.protocols.http.management import (
    application,
    links,
    live,
    logins,
    oauth_login,
    sessions,
    webhooks,
)
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.definitions import definitions
from penstock.protocols.http.management.node import (
    certificates,
    feature_flags,
    health,
    log_level,
    overview,
    recording,
)
from penstock.protocols.http.management.openapi import page as openapi
from penstock.protocols.http.management.resources import (
    connections,
    dead_letters,
    delayed_hours,
    exchanges,
    may,
    messages,
    parameters,
    publishers,
    queues,
    readers,
    retained,
    users,
    vhosts,
)

__all__ = ["add_management"]

_GROUPS = (
    overview,
    health,
    application,
    feature_flags,
    log_level,
    recording,
    logins,
    sessions,
    oauth_login,
    certificates,
    queues,
    exchanges,
    connections,
    messages,
    dead_letters,
    delayed_hours,
    retained,
    publishers,
    users,
    may,
    vhosts,
    parameters,
    definitions,
    webhooks,
    links,
    readers,
    audit,
    live,
    openapi,
)


def add_management(api: Management) -> None:
    """Serve the API on the app of `api`, and begin to sample."""
    for group in _GROUPS:
        group.add(api)
    api.sampler.start()
