"""Checks definitions before an import and finds all mistakes before anything changes.

A thing is judged by itself and by what is there: whether its vhost and user are there or in the file, whether
a queue, an exchange or a policy can be so, and whether one that is there is so already. Faults that only
show when it is done (ends of bindings, definitions of front ends) are not found here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError
from penstock.protocols.http.management.context import table_of, text_of
from penstock.protocols.http.management.definitions.kinds import (
    COMPONENTS,
    Defined,
    exchange_of,
    is_own,
    is_session,
    limits_of,
    named,
    queue_of,
    vhost_said,
)
from penstock.protocols.http.management.resources.users import stored_hash, tags_of
from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.listening.definitions import OF_FRONTS, Item
from penstock.router.administration import check_name
from penstock.router.exchanges.arguments import check_exchange, check_exchange_type, check_same_exchange
from penstock.router.limits.limits import USER_LIMITS, VHOST_LIMITS, check_limits
from penstock.router.parameters import Parameter
from penstock.router.policies.policies import checked
from penstock.router.queues.arguments import check_arguments

if TYPE_CHECKING:
    from penstock.router.broker import Broker

__all__ = ["check"]

_AT_ONCE: Final = 200
"""Things looked at before the loop does something else."""
_LIMITS: Final = {"vhosts": VHOST_LIMITS, "users": USER_LIMITS}
_NAMED: Final = 20
"""Mistakes that an answer names."""


async def check(
    broker: Broker, told: Callable[[PenstockError], str], file: Defined, *, conflicts: bool = True
) -> None:
    """Look at all of a file.

    Args:
        broker: Where to.
        told: Words a refusal of the broker.
        file: The definitions to import.
        conflicts: Whether queues and exchanges that are there with other properties are mistakes.

    Raises:
        HttpError: 400, each thing that is wrong is named, up to 20 of them.

    """
    checks = _Checks(broker, file, conflicts=conflicts)
    mistakes: list[str] = []
    seen = 0
    for part, judge in checks.by_part.items():
        for at, item in enumerate(file.items(part)):
            where = f"{part}: {named(item)}"
            try:
                checks.place(part, item)
                judge(item)
                where = f"{part}[{at}].limits: {named(item)}"
                checks.limits(part, item)
            except HttpError as error:
                mistakes.append(f"{where}: {error.detail}")
            except PenstockError as error:
                mistakes.append(f"{where}: {told(error)}")
            seen += 1
            if seen % _AT_ONCE == 0:
                await asyncio.sleep(0)
    if mistakes:
        more = [f"and {len(mistakes) - _NAMED} more"] if len(mistakes) > _NAMED else []
        raise HttpError(400, "bad_request", "; ".join([*mistakes[:_NAMED], *more]))


class _Checks:
    """How the things of each list are judged; each raises HttpError or PenstockError."""

    def __init__(self, broker: Broker, file: Defined, *, conflicts: bool) -> None:
        self._broker = broker
        self._file = file
        self._conflicts = conflicts
        self._vhosts = {*broker.names(), *(text_of(item, "name") for item in file.items("vhosts"))}
        self._users = {*broker.users.names(), *(text_of(item, "name") for item in file.items("users"))}
        self.by_part: dict[str, Callable[[Item], None]] = {
            "vhosts": self._vhost,
            "users": self._user,
            "permissions": self._permission,
            "topic_permissions": self._permission,
            "policies": self._policy,
            "parameters": self._parameter,
            "queues": self._queue,
            "exchanges": self._exchange,
            "bindings": self._binding,
            **dict.fromkeys(OF_FRONTS, self._any),
        }

    def place(self, part: str, item: Item) -> None:
        """Things of a vhost need one that is there, or in the file."""
        permission = part in ("permissions", "topic_permissions")
        if part == "parameters" and item.get("component") not in COMPONENTS:
            return
        if part in ("vhosts", "users") or (self._file.vhost is not None and not permission):
            return
        vhost = text_of(item, "vhost")
        if vhost not in self._vhosts:
            told = f"vhost '{vhost}' does not exist; please import virtual host definitions first"
            raise HttpError(400, "bad_request", told)

    def _any(self, item: Item) -> None:
        """The part of a front end, which checks it itself."""

    def _vhost(self, item: Item) -> None:
        if self._file.vhost is not None:
            return  # it is not imported
        name, said = text_of(item, "name"), vhost_said(item)
        worker = None if self._broker.knows(name) else said["worker"]
        self._broker.administration.check_vhost(name, said["default_queue_type"], worker)

    def limits(self, part: str, item: Item) -> None:
        """Those that a vhost or a user names itself."""
        if self._file.vhost is None and part in _LIMITS:
            check_limits(limits_of(item), _LIMITS[part])

    def _user(self, item: Item) -> None:
        check_name("user", text_of(item, "name"))
        if "password_hash" in item:
            stored_hash(item)
        tags_of(item.get("tags", []))

    def _permission(self, item: Item) -> None:
        if text_of(item, "user") not in self._users:
            raise HttpError(400, "bad_request", "no such user")

    def _parameter(self, item: Item) -> None:
        value = item.get("value")
        match item.get("component"):
            case "vhost-limits" if isinstance(value, dict):
                check_limits(value, VHOST_LIMITS)
            case "operator_policy" if isinstance(value, dict):
                self._policy({**value, "name": item.get("name")}, operator=True)
            case str(component) if component in COMPONENTS and isinstance(value, dict | list):
                vhost, name = self._file.vhost_of(item), text_of(item, "name")
                self._broker.parameters.checked(Parameter(vhost, component, name, value, ""))

    def _policy(self, item: Item, *, operator: bool = False) -> None:
        checked(
            text_of(item, "name"),
            item.get("pattern"),
            table_of(item, "definition"),
            item.get("priority", 0),
            item.get("apply-to", "all"),
            operator=operator,
        )

    def _queue(self, item: Item) -> None:
        name, place, said = text_of(item, "name"), self._file.vhost_of(item), queue_of(item)
        if not is_own(name) or is_session(name):
            return
        vhost = self._broker.vhosts.get(place)
        if vhost is None:  # it is in the file, or another worker's
            check_arguments(
                name=name,
                vhost=place,
                exclusive=False,
                server_named=False,
                table=said["arguments"],
                durable=said["durable"],
                auto_delete=said["auto_delete"],
            )
        elif self._conflicts or name not in vhost.queues:
            vhost.check_queue(name, **said)

    def _exchange(self, item: Item) -> None:
        name, place, said = text_of(item, "name"), self._file.vhost_of(item), exchange_of(item)
        if not is_own(name):
            return
        vhost = self._broker.vhosts.get(place)
        found = None if vhost is None else vhost.exchanges.get(name)
        check_exchange_type(said["type_"], said["arguments"], name, place)
        if found is None:
            check_exchange(said["type_"], said["arguments"], name, place)
        elif self._conflicts:
            check_same_exchange(found, vhost=place, **said)

    def _binding(self, item: Item) -> None:
        table_of(item)
