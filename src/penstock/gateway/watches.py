"""The things that a gateway looks at in turns while it serves: certificates, the lease, its memory."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from penstock import logs
from penstock.config import Config
from penstock.errors import ConfigError
from penstock.gateway.layer_options import memory_limit
from penstock.log_core.log import Log
from penstock.memory import SAMPLE_S, MemoryAlarm
from penstock.protocols.tls.contexts import Tls
from penstock.subscriptions.tick.tick import Tick

if TYPE_CHECKING:
    from penstock.cluster.replica import Replica

logger = logging.getLogger("penstock.server")

__all__ = ["keep_lease", "watch_files", "watch_memory"]

_LOOK_AT_FILES_S: Final = 2.0
"""How often the files of certificates are looked at for changes."""
_LEASE_LOOK_S: Final = 0.1


def watch_files(tls: Tls, tick: Tick) -> None:
    """Read the files of `tls` again when they change; after a mistake the old ones hold."""

    def reload() -> None:
        try:
            tls.reload()
        except ConfigError as error:
            logger.error("the certificates were not reloaded: %s", error)
        else:
            logger.info("the certificates were reloaded")

    def look() -> None:
        if tls.changed():
            reload()

    tick.every(_LOOK_AT_FILES_S, look)


def keep_lease(replica: Replica, log: Log, tick: Tick) -> None:
    """Hand out messages only as long as no other node may have taken over; publishers wait from half-way on.

    So publishers that are faster than Kafka are slowed down before consumers notice. The tick itself looks
    at the time: a process that was frozen hands out nothing when it wakes.
    """

    def look() -> None:
        left_s = replica.lease_s - replica.unanswered_s
        is_late = replica.owner.oldest_s > replica.lease_s / 2
        tick.serve_until(time.perf_counter() + left_s)
        log.set_alarm("journal", "Kafka does not confirm what was written", is_late or left_s < 0)
        replica.serving(left_s >= 0)

    look()
    tick.every(_LEASE_LOOK_S, look)


def watch_memory(config: Config, log: Log, tick: Tick) -> MemoryAlarm:
    """Have publishers wait while the process uses more memory than `server.memory_high_watermark`."""
    limit = memory_limit(config)
    caches = config.log.tail_cache_bytes + config.log.read_cache_bytes + config.log.feed_cache_bytes
    if limit and caches > limit // 2:
        logger.warning(
            "the caches of the log may take more than half of what publishers may fill: lower "
            "log.tail_cache_bytes or raise server.memory_high_watermark",
            extra=logs.fields(caches=caches, memory_limit=limit),
        )

    def switch(on: bool) -> None:
        # One reason whatever the limit is: by it the log knows what is over again.
        log.set_alarm("memory", "more bytes of memory are in use than the high watermark allows", on)

    alarm = MemoryAlarm(limit, switch, clock=time.monotonic)
    tick.every(SAMPLE_S, alarm.check)
    return alarm
