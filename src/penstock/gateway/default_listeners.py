"""The listeners that are on by default beside AMQP and MQTT: HTTP, management, native, metrics.

They are on so that the commands, the SDK and Prometheus find a gateway that was just started. Nobody asked
for one that has its default address, so it must not keep the gateway from starting: if another program has
the address, the listener is off, and the log says so. An address that some source sets must be free.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection
from typing import Final

from penstock.config import Config, Loaded
from penstock.config.sources import DEFAULT
from penstock.errors import StartError
from penstock.protocols.listening.listener import listening_socket

__all__ = ["SECTIONS", "unavailable", "without"]

SECTIONS: Final = ("http", "management", "native", "metrics")

logger = logging.getLogger("penstock.server")


def unavailable(loaded: Loaded) -> tuple[str, ...]:
    """The sections whose default address cannot be listened on now; each is a warning in the log."""
    found = []
    for section in SECTIONS:
        address = getattr(loaded.config, section).address
        if loaded.origins[f"{section}.listen"] != DEFAULT or address is None:
            continue
        try:
            listening_socket(section, address.host, address.port, listen=False).close()
        except StartError as error:
            found.append(section)
            why = error.message.removeprefix(f"{section}: ")
            logger.warning(
                '%s is off: %s; set %s.listen to another address, or to "" for off', section, why, section
            )
    return tuple(found)


def without(config: Config, sections: Collection[str]) -> Config:
    """`config` with the listeners of these sections off."""
    off = {section: dataclasses.replace(getattr(config, section), listen="") for section in sections}
    return dataclasses.replace(config, **off)
