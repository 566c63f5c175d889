"""Permissions per vhost and per topic, and the one authorizer that every protocol asks.

Owns the tables `permission` and `topic_permission`.

A permission is a regular expression searched in the name, as in RabbitMQ; the empty one matches the empty
name only. A topic permission narrows it on one topic exchange. It is searched in the routing key of a
message (write) or of a binding (read). A user without one for an exchange may use every key there.
`{username}`, `{vhost}` and `{client_id}` in it stand for literal text; `{client_id}` is meaningful for
MQTT clients only. A user who logged in by an OAuth 2 token has `grants` instead of both.

Decisions are made on names. Nothing is looked up, so a refusal does not reveal what exists. Decisions are
not stored here: a route keeps the decision about its key, and `changed` says when those of a vhost must be
made again.

Source: RabbitMQ's access control documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, Literal

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import decode_table, encode_table
from penstock.router.authorization.identity import BROKER, Identity
from penstock.router.authorization.patterns import Pattern, compile_pattern
from penstock.router.errors import InvalidRegex, Operation
from penstock.router.exchanges.exchanges import MQTT_EXCHANGE
from penstock.router.names import filter_of_binding, text, wire
from penstock.router.rows import Tables, row_key

if TYPE_CHECKING:
    from penstock.router.authorization.topic_rules import TopicGuard

__all__ = ["Authorizer", "Permission", "TopicOperation", "TopicPermission"]

TopicOperation = Literal["write", "read"]

_VARIABLE: Final = re.compile(r"\{(username|vhost|client_id)\}")


@dataclass(frozen=True, slots=True)
class Permission:
    """A user's permissions in a vhost: a regular expression on names per operation."""

    configure: str = ".*"
    write: str = ".*"
    read: str = ".*"


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """A user's permissions on a topic exchange: a regular expression on routing keys per operation."""

    write: str = ".*"
    read: str = ".*"


class Authorizer:
    """Decides for every protocol what an identity may do; it knows names, not things."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._permissions: dict[tuple[str, str], Permission] = {}
        self._compiled: dict[tuple[str, str], dict[Operation, Pattern | None]] = {}
        self._topics: dict[tuple[str, str], dict[str, TopicPermission]] = {}
        self.topic_permitted: Final = self._topics.keys()
        """The users and vhosts with topic permissions."""
        self.topic_guard: TopicGuard | None = None
        """Further rules on the topics of `MQTT_EXCHANGE`; set before anybody connects."""
        self.changed: Callable[[str, str], None] = lambda _user, _vhost: None
        """Called with the user and the vhost whose permissions changed."""
        for _, value in tables.items("permission"):
            row = decode_table(value)
            vhost, user = str(row.pop("vhost")), str(row.pop("user"))
            self._keep(user, vhost, Permission(**row))
        for _, value in tables.items("topic_permission"):
            row = decode_table(value)
            vhost, user, exchange = (str(row.pop(name)) for name in ("vhost", "user", "exchange"))
            self._topics.setdefault((user, vhost), {})[exchange] = TopicPermission(**row)

    # Decisions

    def allow(self, identity: Identity, vhost: str, operation: Operation, resource: str) -> bool:
        """Whether the identity may do `operation` on the exchange or queue of this name.

        The default exchange has the name `amq.default` here, as in RabbitMQ.
        """
        if identity.grants is not None:
            return identity.grants.allow(vhost, operation, resource or "amq.default")
        permission = self._compiled.get((identity.username, vhost))
        if permission is None or identity is BROKER:
            return identity is BROKER
        pattern = permission[operation]
        return pattern is None or pattern.search(wire(resource or "amq.default")) is not None

    def allow_topic(
        self,
        identity: Identity,
        vhost: str,
        operation: TopicOperation,
        exchange: str,
        key: bytes,
        topic: str | None = None,
    ) -> bool:
        """Whether the identity may use this routing key on a topic exchange that it may write to or read.

        `key` is a message's routing key for "write" and a binding's for "read", as AMQP has it: who has a
        topic or a filter turns it into a key first (`names.dotted`, `names.binding_key`). For "write" it may
        be a binding's, too: one that leads to the exchange. `topic` is the topic or filter itself, where the
        peer named that and nothing wider is meant; the guard is asked about it. A filter is a session's
        then, whose deliveries are looked at one by one if the guard `filters`.
        """
        if not self._may_use_key(identity, vhost, operation, exchange, key):
            return False
        guard = self.topic_guard
        if guard is None or exchange != MQTT_EXCHANGE or identity is BROKER or not identity.guarded:
            return True
        if topic is not None and operation == "read":
            return guard.may_subscribe(identity, topic, vhost=vhost)
        if topic is not None:
            return guard.allow(identity, operation, topic, vhost=vhost)
        return guard.allow(identity, operation, text(filter_of_binding(key)), by_key=True, vhost=vhost)

    def _may_use_key(
        self, identity: Identity, vhost: str, operation: TopicOperation, exchange: str, key: bytes
    ) -> bool:
        if identity.grants is not None:
            return identity.grants.allow_topic(vhost, operation, exchange, key)
        permission = self._topic(identity.username, vhost, exchange)
        if permission is None:
            return True
        pattern = permission.write if operation == "write" else permission.read
        if pattern == ".*":
            return True
        values = {"username": identity.username, "vhost": vhost}
        if identity.client_id:
            values["client_id"] = identity.client_id

        def literal(found: re.Match[str]) -> str:
            return re.escape(values.get(found[1], found[0]))

        try:
            return compile_pattern(_VARIABLE.sub(literal, pattern) or "^$").search(key) is not None
        except InvalidRegex:
            # Well-formed when it was set: a name that is no UTF-8, or too long with it.
            return False

    def looks_at_topics(self, identity: Identity, vhost: str, exchange: str) -> bool:
        """Whether the identity may write to a topic exchange, that it may write to, by some topics only."""
        if identity.grants is not None or self.topic_guard is not None:
            return True
        permission = self._topic(identity.username, vhost, exchange)
        return permission is not None and permission.write != ".*"

    def depends_on_client(self, username: str, vhost: str, exchange: str) -> bool:
        """Whether what the user may write to a topic exchange depends on the client id it connects with."""
        permission = self._topic(username, vhost, exchange)
        return permission is not None and "{client_id}" in permission.write

    def enter(self, identity: Identity, vhost: str) -> bool:
        """Whether the identity may use the vhost at all."""
        if identity.grants is not None:
            return identity.grants.enter(vhost)
        return (identity.username, vhost) in self._permissions

    def _topic(self, user: str, vhost: str, exchange: str) -> TopicPermission | None:
        permissions = self._topics.get((user, vhost))
        return None if permissions is None else permissions.get(exchange)

    # Administration

    def permissions(self) -> Iterator[tuple[str, str, Permission]]:
        """(user, vhost, permission) of all."""
        return ((user, vhost, one) for (user, vhost), one in self._permissions.items())

    def topic_permissions(self) -> Iterator[tuple[str, str, str, TopicPermission]]:
        """(user, vhost, exchange, permission) of all."""
        return (
            (user, vhost, exchange, one)
            for (user, vhost), exchanges in self._topics.items()
            for exchange, one in exchanges.items()
        )

    def set(self, user: str, vhost: str, permission: Permission) -> int:
        """Say what a user may do in a vhost; the LSN to wait for.

        Raises:
            InvalidRegex: a pattern is no regular expression; nothing was changed.

        """
        self._keep(user, vhost, permission)
        row = {"vhost": vhost, "user": user, **asdict(permission)}
        lsn = self._tables.put("permission", row_key(vhost, user), encode_table(row))
        self.changed(user, vhost)
        return lsn

    def clear(self, user: str, vhost: str) -> int:
        """The user may not use the vhost any more; the LSN to wait for, 0 when it might not before."""
        if self._permissions.pop((user, vhost), None) is None:
            return 0
        del self._compiled[user, vhost]
        lsn = self._tables.delete("permission", row_key(vhost, user))
        self.changed(user, vhost)
        return lsn

    def set_topic(self, user: str, vhost: str, exchange: str, permission: TopicPermission) -> int:
        """Say which keys a user may use on a topic exchange; the LSN to wait for.

        Raises:
            InvalidRegex: a pattern is no regular expression; nothing was changed.

        """
        for pattern in (permission.write, permission.read):
            compile_pattern(pattern)
        self._topics.setdefault((user, vhost), {})[exchange] = permission
        row = {"vhost": vhost, "user": user, "exchange": exchange, **asdict(permission)}
        lsn = self._tables.put("topic_permission", row_key(vhost, user, exchange), encode_table(row))
        self.changed(user, vhost)
        return lsn

    def clear_topic(self, user: str, vhost: str, exchange: str | None = None) -> int:
        """The user may use every key on the exchange again (None: on all of the vhost); the LSN to wait for,
        0 when it might before.
        """
        permissions = self._topics.get((user, vhost), {})
        lsn = 0
        for name in [name for name in permissions if exchange in (None, name)]:
            del permissions[name]
            lsn = self._tables.delete("topic_permission", row_key(vhost, user, name))
        if not permissions:
            self._topics.pop((user, vhost), None)
        if lsn:
            self.changed(user, vhost)
        return lsn

    def forget_user(self, user: str) -> int:
        """Clear everything about a user that is deleted; the LSN to wait for."""
        return self._forget([place for place in {*self._permissions, *self._topics} if place[0] == user])

    def forget_vhost(self, vhost: str) -> int:
        """Clear everything about a vhost that is deleted; the LSN to wait for."""
        return self._forget([place for place in {*self._permissions, *self._topics} if place[1] == vhost])

    def _forget(self, places: list[tuple[str, str]]) -> int:
        return max((max(self.clear(*place), self.clear_topic(*place)) for place in places), default=0)

    def _keep(self, user: str, vhost: str, permission: Permission) -> None:
        """Raises InvalidRegex."""
        self._compiled[user, vhost] = {
            "configure": _compiled(permission.configure),
            "write": _compiled(permission.write),
            "read": _compiled(permission.read),
        }
        self._permissions[user, vhost] = permission


def _compiled(pattern: str) -> Pattern | None:
    """The pattern, None for the one that matches everything."""
    # An empty permission is none at all: RabbitMQ reads it as ^$.
    return None if pattern == ".*" else compile_pattern(pattern or "^$")
