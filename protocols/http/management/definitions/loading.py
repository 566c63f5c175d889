"""Definitions, as RabbitMQ's definitions.json has them, into the broker: by the API, or from a file at start.

All that can be known beforehand is checked before anything changes (`checking`); then things are put in the
order in which they need one another: vhosts, users, permissions, limits, policies, queues, exchanges,
bindings. An equal object that is there already stays as it is; queues and exchanges that differ are a mistake
of the file, as in RabbitMQ. A mistake that only shows when a thing is put ends the import where it stands.
Predeclared exchanges (`amq.*`) are left out. Things that penstock does not have (parameters of plug-ins,
unknown keys) are left out and logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import ConfigError, PenstockError
from penstock.logs import fields
from penstock.protocols.http.management.context import fields_of, table_of, text_of
from penstock.protocols.http.management.definitions.checking import check
from penstock.protocols.http.management.definitions.kinds import (
    COMPONENTS,
    IN_VHOSTS,
    Defined,
    exchange_of,
    is_own,
    is_session,
    limits_of,
    named,
    queue_of,
    vhost_said,
)
from penstock.protocols.http.management.resources.parameters import GLOBAL_TABLE
from penstock.protocols.http.management.resources.users import stored_hash, tags_of
from penstock.protocols.http.server.app import ErrorTexts, HttpApp
from penstock.protocols.http.server.messages import HttpError, parsed
from penstock.protocols.http.shared.traffic import kept
from penstock.protocols.listening.definitions import Item, Part
from penstock.router.arguments import encode_table
from penstock.router.authorization.identity import BROKER, Actor
from penstock.router.authorization.permissions import Permission, TopicPermission
from penstock.router.errors import NotFound
from penstock.router.parameters import Parameter
from penstock.router.rows import row_key

if TYPE_CHECKING:
    from penstock.router.broker import Broker

__all__ = ["Import", "load_file", "load_parts"]

logger: Final = logging.getLogger("penstock.http")

_AT_ONCE: Final = 200
"""Things made before the loop does something else."""


async def load_file(broker: Broker, words: ErrorTexts, path: str, *, default_user: str = "") -> Import:
    """Import a file at start, before anybody can connect; but for what front ends keep: see `load_parts`.

    Args:
        default_user: The user that new data was given just now; it goes when the file brings users.

    Raises:
        ConfigError: it cannot be read, or is wrong; the thing and the reason are named.

    """
    option = "management.load_definitions"
    try:
        body = fields_of(parsed(Path(path).read_bytes()))
        importing = Import(broker, HttpApp(words).told, body, user=option)
        await importing.check()
        users = {user.get("name") for user in body.get("users", [])}
        if default_user and users and default_user not in users and broker.options.worker == 0:
            broker.administration.delete_user(default_user)
        note = partial(
            broker.audit.note,
            "definitions.import",
            user=f"({option})",
            peer="",
            protocol="file",
            target={"file": path},
        )
        note(result="begun")
        await importing.run()
        note()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", key=option) from error
    except HttpError as error:
        raise ConfigError(f"{path}: {error.detail}", key=option) from error
    return importing


async def load_parts(importing: Import, path: str, parts: Mapping[str, Part]) -> None:
    """The rest of `load_file`, once there are front ends. Raises ConfigError."""
    try:
        await importing.run_parts(parts)
    except HttpError as error:
        raise ConfigError(f"{path}: {error.detail}", key="management.load_definitions") from error


class Import:
    """One import: `check` looks at everything, `run` then does it."""

    def __init__(
        self,
        broker: Broker,
        told: Callable[[PenstockError], str],
        body: Item,
        *,
        user: str,
        vhost: str | None = None,
        parts: Mapping[str, Part] | None = None,
    ) -> None:
        """One import.

        Args:
            broker: Where to.
            told: Words a refusal of the broker.
            body: The file.
            user: The user who imports, for the log.
            vhost: Into this one only.
            parts: The definitions of front ends; None: they are loaded later.

        """
        self._parts = parts or {}
        self._broker = broker
        self._told = told
        self.file = Defined(body, vhost)
        self._user = user
        # An administrator imports what others may use: no permission is asked for, as in RabbitMQ.
        self._actor = Actor(BROKER, self)
        self._done = 0
        self._lsn = 0
        self.elsewhere: dict[int, dict[str, list[Item]]] = {}
        """After `run`: by worker and part, what belongs into vhosts of other workers."""

    async def run(self) -> None:
        """Do it all, and wait for the disk.

        Raises:
            HttpError: 400, the file is wrong; what is and why are named.

        """
        await self.check()
        admin = self._broker.administration
        if self.file.vhost is None and self._in_common:
            await self._each("vhosts", self._put_vhost)
            await self._each("users", self._put_user)
            await self._each(
                "permissions",
                lambda item: admin.set_permission(
                    text_of(item, "user"),
                    text_of(item, "vhost"),
                    Permission(*(text_of(item, name) for name in ("configure", "write", "read"))),
                ),
            )
            await self._each("global_parameters", self._put_global)
        await self._each("parameters", self._put_parameter)
        await self._each("policies", self._put_policy)
        await self._each("queues", self._put_queue)
        await self._each("exchanges", self._put_exchange)
        if self.file.vhost is None and self._in_common:
            await self._each(
                "topic_permissions",
                lambda item: admin.set_topic_permission(
                    text_of(item, "user"),
                    text_of(item, "vhost"),
                    text_of(item, "exchange"),
                    TopicPermission(text_of(item, "write"), text_of(item, "read")),
                ),
            )
        await self._each("bindings", self._put_binding)
        await self.run_parts(self._parts)
        logger.info(
            "definitions imported",
            extra=fields(user=self._user, vhost=self.file.vhost or "*", things=self._done),
        )
        unknown = self.file.unknown()
        if unknown:
            logger.warning("definitions: left out what is not known here", extra=fields(keys=unknown))

    async def run_parts(self, parts: Mapping[str, Part]) -> None:
        """The parts of front ends: at a start they are not there yet when the rest is done."""
        for name, part in parts.items():
            await self._each(name, partial(self._put_part, part))
        await kept(self._broker, self._lsn)

    def _put_part(self, part: Part, item: Item) -> int:
        vhost = self._broker.vhosts[self.file.vhost_of(item)]
        return part.load(vhost, {key: value for key, value in item.items() if key != "vhost"})

    async def _each(self, part: str, put: Callable[[Item], int]) -> None:
        for item in self.file.items(part):
            if part in IN_VHOSTS and not self._is_mine(part, item):
                continue
            try:
                self._lsn = max(self._lsn, put(item))
            except (PenstockError, HttpError) as error:
                told = error.detail if isinstance(error, HttpError) else self._told(error)
                raise HttpError(400, "bad_request", f"{part}: {named(item)}: {told}") from error
            self._done += 1
            if self._done % _AT_ONCE == 0:
                self._broker.tick.schedule()
                await asyncio.sleep(0)
        self._broker.tick.schedule()

    @property
    def _in_common(self) -> bool:
        """Whether this worker changes what all workers have in common."""
        return self._broker.options.worker == 0

    def _is_mine(self, part: str, item: Item) -> bool:
        """Whether this worker puts something of a vhost; if not, it is noted for the one that does."""
        if part == "parameters" and item.get("component") == "vhost-limits":
            return self._in_common
        vhost = self.file.vhost_of(item)
        worker = self._broker.elsewhere(vhost)
        if worker is not None:
            self.elsewhere.setdefault(worker, {}).setdefault(part, []).append({**item, "vhost": vhost})
        return worker is None

    async def check(self, *, conflicts: bool = True) -> None:
        """Everything that can be known without changing anything; see `checking`. Raises HttpError 400."""
        await check(self._broker, self._told, self.file, conflicts=conflicts)

    # One thing each; the LSN to wait for

    def _put_vhost(self, item: Item) -> int:
        admin = self._broker.administration
        name = text_of(item, "name")
        said = vhost_said(item)
        if self._broker.knows(name):
            said["worker"] = None
        lsn = admin.put_vhost(name, **said)
        if limits := limits_of(item):
            lsn = max(lsn, admin.set_vhost_limits(name, limits))
        return lsn

    def _put_user(self, item: Item) -> int:
        admin = self._broker.administration
        name = text_of(item, "name")
        stored = stored_hash(item) if "password_hash" in item else ""
        lsn = admin.put_user(name, stored, tags_of(item.get("tags", [])))
        if limits := limits_of(item):
            lsn = max(lsn, admin.set_user_limits(name, limits))
        return lsn

    def _put_global(self, item: Item) -> int:
        name = text_of(item, "name")
        row = encode_table({"name": name, "value": item.get("value")})
        return self._broker.log.tables.put(GLOBAL_TABLE, row_key(name), row)

    def _put_parameter(self, item: Item) -> int:
        admin = self._broker.administration
        component, value = text_of(item, "component"), item.get("value")
        vhost = self.file.vhost_of(item)
        if component not in COMPONENTS or not isinstance(value, dict | list):
            logger.warning(
                "definitions: a parameter of a plug-in is left out",
                extra=fields(component=component, name=item.get("name")),
            )
            return 0
        if component == "vhost-limits" and isinstance(value, dict):
            return admin.set_vhost_limits(vhost, value)
        if component == "operator_policy" and isinstance(value, dict):
            return self._policy({**value, "name": item.get("name")}, vhost, operator=True)
        user = self._user if self._broker.users.identity(self._user) is not None else ""
        return self._broker.parameters.put(Parameter(vhost, component, text_of(item, "name"), value, user))

    def _put_policy(self, item: Item) -> int:
        return self._policy(item, self.file.vhost_of(item), operator=False)

    def _policy(self, item: Item, vhost: str, *, operator: bool) -> int:
        return self._broker.administration.put_policy(
            vhost,
            text_of(item, "name"),
            pattern=item.get("pattern"),
            definition=table_of(item, "definition"),
            priority=item.get("priority", 0),
            apply_to=item.get("apply-to", "all"),
            operator=operator,
        )

    def _put_queue(self, item: Item) -> int:
        vhost = self._broker.vhosts[self.file.vhost_of(item)]
        name = text_of(item, "name")
        if not is_own(name):
            return 0
        if is_session(name):
            # Without its client nobody would ever take from it. The client subscribes anew when it connects.
            logger.warning(
                "definitions: the session of an MQTT client is left out",
                extra=fields(vhost=vhost.name, queue=name),
            )
            return 0
        return vhost.declare_queue(name, actor=self._actor, **queue_of(item)).lsn

    def _put_exchange(self, item: Item) -> int:
        vhost = self._broker.vhosts[self.file.vhost_of(item)]
        name = text_of(item, "name")
        if not is_own(name):
            return 0
        return vhost.declare_exchange(name, actor=self._actor, **exchange_of(item))

    def _put_binding(self, item: Item) -> int:
        vhost = self._broker.vhosts[self.file.vhost_of(item)]
        kind = text_of(item, "destination_type", "queue")
        if text_of(item, "source") == "":
            return 0  # every queue has this one
        bind = vhost.bind_exchange if kind == "exchange" else vhost.bind_queue
        source, destination = text_of(item, "source"), text_of(item, "destination")
        try:
            return bind(destination, source, text_of(item, "routing_key", ""), self._actor, table_of(item))
        except NotFound:
            # RabbitMQ leaves internal exchanges out of its export, and not the bindings to them.
            logger.warning(
                "definitions: a binding without one of its ends is left out",
                extra=fields(vhost=vhost.name, source=source, destination=destination, kind=kind),
            )
            return 0
