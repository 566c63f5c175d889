"""SIGHUP: read the configuration again, and apply what can change while the gateway serves.

    server.log_level    at once
    tls.*               the files of certificates; new connections get them
    mqtt.acl_file       the rules in the file, also for what goes on
    auth.users          listed users follow the configuration, as at a start
    limits              those of connections and of memory in `server`, and of one connection in `amqp`,
                        `mqtt` and `native`: connections that are open stay, with the limits they had;
                        how much traffic the log keeps, and how many events

A mistake in any source changes nothing. Other options that changed are named in the log: they need a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock import logs
from penstock.config import Config
from penstock.config.sources import Loaded, all_options
from penstock.errors import PenstockError
from penstock.protocols.mqtt.auth.acl import AclFile

if TYPE_CHECKING:
    from penstock.protocols.tls.contexts import Tls
    from penstock.router.broker import Broker

__all__ = ["LIMITS", "Reloader"]

LIMITS: Final = frozenset(
    {
        "server.max_connections",
        "server.max_connections_per_address",
        "server.accept_rate_per_address",
        "server.proxy_networks",
        "server.memory_high_watermark",
        "server.coalesce_us",
        "log.traffic_retention_bytes",
        "log.traffic_retention_s",
        "events.retention_bytes",
        "events.retention_s",
        "amqp.frame_max",
        "amqp.channel_max",
        "amqp.heartbeat_s",
        "amqp.max_message_bytes",
        "mqtt.max_packet_bytes",
        "mqtt.max_inflight",
        "mqtt.topic_alias_maximum",
        "mqtt.session_expiry_max_s",
        "mqtt.max_connect_rate",
        "mqtt.max_message_rate",
        "mqtt.max_byte_rate",
        "mqtt.keepalive_max_s",
        "native.max_frame_bytes",
        "native.max_unacked",
        "native.heartbeat_s",
    }
)
_LIVE: Final = LIMITS | {"server.log_level", "auth.users"}

logger = logging.getLogger("penstock.server")


class Reloader:
    """Reads the sources of the configuration again. Loop thread only."""

    def __init__(
        self,
        config: Config,
        load: Callable[[], Config],
        broker: Broker,
        tls: Tls | None,
        *,
        limits: Callable[[Config], None],
        owns_users: bool = True,
    ) -> None:
        """Args:
        config: The configuration in force.
        load: Reads the sources; raises ConfigError.
        broker: Whose users and rights change.
        tls: The certificates; None: there are none.
        limits: Puts the options of LIMITS in force.
        owns_users: This process has the users in its log.

        """
        self._limits = limits
        self._config = config
        self._load = load
        self._broker = broker
        self._tls = tls
        self._owns_users = owns_users
        self._task: asyncio.Task[None] | None = None

    def reload(self) -> None:
        """Do it, unless the one before is still under way."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._reload())

    async def close(self) -> None:
        """Wait for one that is under way."""
        if self._task is not None:
            await self._task

    async def _reload(self) -> None:
        try:
            config = await asyncio.to_thread(self._load)
            acl = self._acl(config)
            if self._tls is not None:
                self._tls.reload()
        except PenstockError as error:
            logger.error("the configuration was not reloaded: %s", error)
            return
        before, self._config = self._config, config
        changed = _changed(before, config)
        logs.set_level(config.server.log_level)
        if LIMITS.intersection(changed):
            self._limits(config)
        if self._tls is not None:
            logger.info("the certificates were reloaded")
        if acl is not None:
            self._broker.authorizer.topic_guard = acl
            self._broker.rights_changed()
        if "auth.users" in changed and self._owns_users:
            await self._broker.follow_users(config.auth.users)
        live = {"mqtt.acl_file"} if acl is not None else set()
        restart = [name for name in changed if name not in _LIVE | live]
        logger.info(
            "the configuration was reloaded",
            extra=logs.fields(
                changed=",".join(changed) or "-",
                needs_restart=",".join(restart) or "-",
            ),
        )

    def _acl(self, config: Config) -> AclFile | None:
        """The rules of the ACL file, read again; None: there was none, or there is none."""
        if not (self._config.mqtt.acl_file and config.mqtt.acl_file):
            return None
        return AclFile.read(config.mqtt.acl_file, self._broker.users.default_user)


def _changed(before: Config, after: Config) -> list[str]:
    old, new = Loaded(before, {}), Loaded(after, {})
    return [option.name for option in all_options() if old.value(option) != new.value(option)]
