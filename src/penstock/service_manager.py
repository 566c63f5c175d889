"""Tells the service manager how the gateway is, by the protocol of systemd's sd_notify(3).

The manager gives the path of a datagram socket in NOTIFY_SOCKET, and in WATCHDOG_USEC the time within which
it wants to hear that the gateway is alive. Without NOTIFY_SOCKET nothing is sent. A worker process sends
nothing: its supervisor speaks for all.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

__all__ = ["ServiceManager"]

logger: Final = logging.getLogger("penstock.server")


class ServiceManager:
    """The messages of this process to the manager that started it."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Read the manager's variables, by default those of the process."""
        variables = os.environ if environ is None else environ
        self._path = variables.get("NOTIFY_SOCKET", "")
        self.alive_every_s = 0.0
        """Seconds between two calls of `alive`: half of what the manager allows; 0: it does not watch."""
        wanted = variables.get("WATCHDOG_USEC", "")
        pid = variables.get("WATCHDOG_PID", "")
        if self._path and wanted.isdigit() and pid in ("", str(os.getpid())):
            self.alive_every_s = int(wanted) / 2_000_000

    def ready(self, status: str) -> None:
        """Clients can connect; `status` is one line for `systemctl status`."""
        self._send(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """The process does its work."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The gateway ends."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def _send(self, text: str) -> None:
        if not self._path:
            return
        # A name that begins with @ is in the abstract namespace: its first byte is 0.
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto(text.encode(), address)
        except OSError as error:
            # The gateway goes on serving: the manager acts by itself on what it does not hear.
            logger.warning("the service manager was not told %r: %s", text.partition("\n")[0], error)
