"""Administration: changes of users, vhosts, permissions, limits and policies. They are durable and take
effect at once.

A method returns the LSN to wait for before the change is promised, or 0 if nothing changed. The caller has
checked the permission: the rule is RabbitMQ's tags (`policymaker` for policies, `administrator` for the
rest), not permissions. A change also ends what it forbids: connections of a deleted user or vhost are
closed with RabbitMQ's texts, and changed permissions are checked again
(`Connections.permissions_changed`).

Source: RabbitMQ's rabbit_auth_backend_internal, rabbit_vhost, rabbit_connection_tracking.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from penstock.router.authorization.permissions import Permission, TopicPermission
from penstock.router.errors import InvalidParameter, NotFound
from penstock.router.limits.limits import USER_LIMITS, VHOST_LIMITS, Limits, check_limits
from penstock.router.names import wire
from penstock.router.policies.definitions import EFFECTLESS
from penstock.router.policies.policies import PolicyKind, checked
from penstock.router.queues.arguments import TYPES
from penstock.router.vhost.state import VhostMetadata

if TYPE_CHECKING:
    from penstock.router.broker import Broker

__all__ = ["Administration", "check_name"]

logger = logging.getLogger("penstock.router")

_NAME_MAX: Final = 255


class Administration:
    """See the module. `Broker.administration`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._users = broker.users
        self._authorizer = broker.authorizer

    # Users

    def put_user(self, name: str, stored: str, tags: Iterable[str] = ()) -> int:
        """Make or change a user.

        `stored` is a hash that `Users.hash` made or `passwords.rabbitmq_hash` took over, or "" for one who
        cannot log in with a password. Connections of the user have the new tags at once and are not closed.

        Raises:
            InvalidParameter: the name is empty or longer than 255 bytes.

        """
        check_name("user", name)
        lsn = self._users.set_user(name, stored, tags)
        self._schedule()
        self._tell(user=name)
        return lsn

    def delete_user(self, name: str) -> int:
        """Remove a user with its permissions and limits; its connections are closed.

        Raises:
            NotFound: there is none.

        """
        self._known_user(name)
        with self._broker.log.unit():
            lsn = self._users.delete_user(name)
            for member in self._broker.connections.of(user=name):
                member.force_close(f"user '{name}' is deleted")
            lsn = max(
                lsn,
                self._authorizer.forget_user(name),
                self._broker.tokens.forget_user(name),
                self._broker.web_sessions.forget_user(name),
            )
        self._schedule()
        return lsn

    def set_user_limits(self, name: str, limits: Mapping[str, object]) -> int:
        """Set these limits of a user (`limits.USER_LIMITS`), and leave its others.

        Raises:
            NotFound: there is no such user.
            InvalidParameter: there is no such limit, or it is no number.

        """
        self._known_user(name)
        checked = check_limits(limits, USER_LIMITS)
        self._schedule()
        return self._users.set_limits(name, {**self._users.limits(name), **checked})

    def clear_user_limits(self, name: str, limit: str | None = None) -> int:
        """Take a limit of a user back; None: all.

        Raises:
            NotFound: there is no such user.

        """
        self._known_user(name)
        self._schedule()
        kept = {key: value for key, value in self._users.limits(name).items() if limit not in (None, key)}
        return self._users.set_limits(name, kept)

    def _known_user(self, name: str) -> None:
        if self._users.identity(name) is None:
            raise NotFound("user", name, "")

    # Permissions

    def set_permission(self, user: str, vhost: str, permission: Permission) -> int:
        """Say what a user may do in a vhost.

        Raises:
            NotFound: there is no such user or vhost.
            InvalidRegex: a pattern is no regular expression; nothing was changed.

        """
        self._known(user, vhost)
        self._schedule()
        return self._authorizer.set(user, vhost, permission)

    def clear_permission(self, user: str, vhost: str) -> int:
        """The user may not use the vhost any more; its connections there are closed. Raises NotFound."""
        self._known(user, vhost)
        self._schedule()
        return self._authorizer.clear(user, vhost)

    def set_topic_permission(self, user: str, vhost: str, exchange: str, permission: TopicPermission) -> int:
        """Say which keys a user may use on a topic exchange. Raises NotFound and InvalidRegex."""
        self._known(user, vhost)
        self._schedule()
        return self._authorizer.set_topic(user, vhost, exchange, permission)

    def clear_topic_permission(self, user: str, vhost: str, exchange: str | None = None) -> int:
        """The user may use every key on the exchange (None: on each of the vhost) again. Raises NotFound."""
        self._known(user, vhost)
        self._schedule()
        return self._authorizer.clear_topic(user, vhost, exchange)

    def _known(self, user: str, vhost: str) -> None:
        self._known_user(user)
        if not self._broker.knows(vhost):
            raise NotFound("vhost", vhost, vhost)

    # Vhosts

    def put_vhost(
        self,
        name: str,
        *,
        description: str | None = None,
        tags: Iterable[str] | None = None,
        default_queue_type: str | None = None,
        worker: object = None,
    ) -> int:
        """Make a vhost, or change what is said of it; what is None stays as it is.

        `worker`, a number, says which one a new vhost belongs to; without, one with the fewest has it. It is
        checked as it comes (of JSON).

        Raises:
            InvalidParameter: the name is empty or longer than 255 bytes, there is no such queue type or
                worker, or the vhost belongs to another worker.

        """
        self.check_vhost(name, default_queue_type, worker)
        broker = self._broker
        found = broker.vhosts.get(name)
        metadata, limits, home = VhostMetadata(), dict[str, int](), broker.elsewhere(name)
        if found is not None:
            metadata = found.metadata
        elif home is not None:
            metadata, limits = _said(broker.vhost_row(name))
        before = metadata if broker.knows(name) else None
        if description is not None:
            metadata = replace(metadata, description=description)
        if tags is not None:
            metadata = replace(metadata, tags=tuple(tags))
        if default_queue_type is not None:
            kind = "" if default_queue_type == "undefined" else default_queue_type
            metadata = replace(metadata, default_queue_type=kind)
        if metadata == before:
            return 0
        self._schedule()
        if before is None:
            home = worker if isinstance(worker, int) else broker.place()
        if home not in (None, broker.options.worker):
            return broker.put_elsewhere(_row(name, metadata, limits, home))
        vhost = found or broker.add_vhost(name)
        vhost.metadata = metadata
        return broker.save_vhost(vhost)

    def check_vhost(self, name: str, default_queue_type: str | None, worker: object) -> None:
        """Whether `put_vhost` takes these; raises what it does."""
        check_name("vhost", name)
        if default_queue_type not in (None, "", "undefined", *TYPES):
            raise InvalidParameter(
                f"Unsupported queue type '{default_queue_type}'", f"use {', '.join(TYPES)}"
            )
        if worker is not None:
            _check_worker(self._broker, name, worker)

    def delete_vhost(self, name: str) -> int:
        """Remove a vhost with all that is in it; its connections are closed.

        Another worker's is only forgotten: that worker has removed it before.

        Raises:
            NotFound: there is none.

        """
        if self._broker.elsewhere(name) is not None:
            self._schedule()
            with self._broker.log.unit():
                return max(self._authorizer.forget_vhost(name), self._broker.remove_elsewhere(name))
        vhost = self._broker.vhost(name)
        with self._broker.log.unit():
            for member in self._broker.connections.of(vhost=name):
                member.force_close(f"vhost '{name}' is deleted")
            lsn = vhost.clear()
            # MQTT sessions end with the permission of their user.
            lsn = max(lsn, self._authorizer.forget_vhost(name), self._broker.remove_vhost(vhost))
        self._schedule()
        return lsn

    def set_vhost_limits(self, name: str, limits: Mapping[str, object]) -> int:
        """Set these limits of a vhost (`limits.VHOST_LIMITS`), and leave its others.

        Raises:
            NotFound: there is no such vhost.
            InvalidParameter: there is no such limit, or it is no number.

        """
        checked = check_limits(limits, VHOST_LIMITS)
        return self._change_limits(name, lambda before: {**before, **checked})

    def clear_vhost_limits(self, name: str, limit: str | None = None) -> int:
        """Take a limit of a vhost back; None: all. Raises NotFound."""
        return self._change_limits(
            name, lambda before: {key: value for key, value in before.items() if limit not in (None, key)}
        )

    def _change_limits(self, name: str, change: Callable[[Limits], Limits]) -> int:
        broker = self._broker
        self._schedule()
        if (worker := broker.elsewhere(name)) is not None:
            metadata, limits = _said(broker.vhost_row(name))
            return broker.put_elsewhere(_row(name, metadata, change(limits), worker))
        vhost = broker.vhost(name)
        vhost.set_limits(change(vhost.limits))
        return broker.save_vhost(vhost)

    # Policies

    def put_policy(
        self,
        vhost: str,
        name: str,
        *,
        pattern: object,
        definition: object,
        priority: object = 0,
        apply_to: object = "all",
        operator: bool = False,
    ) -> int:
        """Make or change a policy or an operator policy; what it is for lives by it at once.

        Values are checked as they come (of JSON).

        Raises:
            NotFound: there is no such vhost.
            InvalidParameter: there is no such policy, in RabbitMQ's words; nothing was changed.

        """
        found = self._broker.vhost(vhost)
        policy = checked(name, pattern, definition, priority, apply_to, operator=operator)
        if ignored := sorted(EFFECTLESS & policy.definition.keys()):
            logger.warning(
                "policy %r in vhost %r: %s is kept and has no effect here", name, vhost, ", ".join(ignored)
            )
        return found.set_policy("operator_policy" if operator else "policy", policy)

    def delete_policy(self, vhost: str, name: str, *, operator: bool = False) -> int:
        """Take a policy or an operator policy back.

        Raises:
            NotFound: there is no such vhost or policy.

        """
        found = self._broker.vhost(vhost)
        kind: PolicyKind = "operator_policy" if operator else "policy"
        if found.policies.get(kind, name) is None:
            raise NotFound("policy", name, vhost)
        return found.delete_policy(kind, name)

    # Inside

    def _schedule(self) -> None:
        self._broker.tick.schedule()

    def _tell(self, user: str) -> None:
        for member in self._broker.connections.of(user=user):
            member.permissions_changed()


def _said(row: dict[str, Any]) -> tuple[VhostMetadata, dict[str, int]]:
    """Describe a vhost by its row."""
    limits: dict[str, int] = row.get("limits", {})
    kept = {key: row[key] for key in ("description", "tags", "default_queue_type") if key in row}
    return VhostMetadata(**{**kept, "tags": tuple(row.get("tags", ()))}), limits


def _row(name: str, metadata: VhostMetadata, limits: Limits, worker: int | None) -> dict[str, Any]:
    """The row of a vhost of another worker."""
    return {"name": name, **asdict(metadata), "limits": limits, "worker": worker}


def _check_worker(broker: Broker, name: str, worker: object) -> None:
    """Whether a vhost may be put there."""
    count = broker.options.workers
    if not isinstance(worker, int) or isinstance(worker, bool) or not 0 <= worker < count:
        raise InvalidParameter(
            f"there is no worker {worker!r}",
            f"use a number from 0 to {count - 1}; server.workers is {count}",
        )
    home = broker.elsewhere(name)
    home = broker.options.worker if home is None else home
    if broker.knows(name) and worker != home:
        raise InvalidParameter(
            f"vhost '{name}' belongs to worker {home}",
            "stop the gateway and have it moved with `penstock log move`",
        )


def check_name(kind: str, name: str) -> None:
    """Whether a user or vhost may be called so. Raises InvalidParameter."""
    if not 1 <= len(wire(name)) <= _NAME_MAX:
        raise InvalidParameter(f"a {kind} needs a name of 1 to {_NAME_MAX} bytes", "give it another name")
