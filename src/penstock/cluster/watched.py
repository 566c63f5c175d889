"""The owner's side of a watch: standbys keep a connection to it, whose end says that the process ended.

Each connection gets the offset of the owner's CLAIM, 8 bytes, big-endian, and nothing more. Nothing is read.
If one ends while the owner lives, `on_end` has it send a sign of life: the standby may see the same end.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.config import Address
from penstock.errors import StartError
from penstock.protocols.listening.listener import listening_socket

__all__ = ["CLAIM_BYTES", "Watched"]

_LOG: Final = logging.getLogger("penstock.cluster")

CLAIM_BYTES: Final = 8
_CONNECTIONS_MAX: Final = 64
_OPTION: Final = "watch_listen"


class Watched:
    """Listens until it is closed. A port that cannot be had is no reason not to serve."""

    def __init__(self, listen: Address | None, host: str, claim: int) -> None:
        """`listen`: None = any free port; `host`: where the other nodes reach this one."""
        self.on_end: Callable[[], object] = lambda: None
        """Told, by a thread, when a standby's connection ended."""
        self.address = ""
        """Where standbys connect; empty: nowhere."""
        self._claim = claim.to_bytes(CLAIM_BYTES, "big")
        self._connections: set[socket.socket] = set()
        self._thread: threading.Thread | None = None
        self._ends = False
        try:
            self._listening = _listen(listen, host)
        except StartError as error:
            _LOG.warning("a dead machine is noticed late, since nobody can watch this node: %s", error)
            return
        self.address = str(Address(host, self._listening.getsockname()[1]))
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="penstock-watched", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if self._ends:
                        return
                    if key.fileobj is self._listening:
                        self._accept(selector)
                    elif isinstance(key.fileobj, socket.socket):
                        self._lose(key.fileobj, selector)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            made, _ = self._listening.accept()
        except OSError as error:  # it went again, or of file descriptors
            _LOG.debug("a standby's connection cannot be accepted: %s", error)
            return
        made.setblocking(False)
        if len(self._connections) >= _CONNECTIONS_MAX:
            made.close()
            return
        self._connections.add(made)
        selector.register(made, selectors.EVENT_READ)
        with suppress(OSError):  # its end is read next
            made.send(self._claim)

    def _lose(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        """It ended, or says something, which no standby does."""
        selector.unregister(connection)
        self._connections.discard(connection)
        connection.close()
        self.on_end()

    def close(self) -> None:
        """End all connections. The log was released before, or standbys would take the end for a death."""
        if self._thread is None or self._ends:
            return
        self._ends = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        for each in (self._listening, *self._connections):
            each.close()
        os.close(self._wake)


def _listen(listen: Address | None, host: str) -> socket.socket:
    """A listening socket. Raises StartError."""
    if listen is not None:
        return listening_socket("cluster", listen.host, listen.port, option=_OPTION)
    try:
        return listening_socket("cluster", host, 0, option=_OPTION)
    except StartError:  # other nodes reach this one by an address that is not its own
        return listening_socket("cluster", "", 0, option=_OPTION)
