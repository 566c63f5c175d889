"""A standby's side of a watch: one connection to the owner, and tries to connect again when it ends.

`evidence` judges these events. The tries go to the very address that was reached, so no change of a
name's address takes part in it.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from typing import Final, NamedTuple

from penstock.cluster.evidence import Evidence
from penstock.cluster.watched import CLAIM_BYTES
from penstock.config import Address

__all__ = ["Watch"]

_LOG: Final = logging.getLogger("penstock.cluster")

_ANSWER_S: Final = 1.0
_AGAIN_SOON_S: Final = 0.04
_AGAIN_S: Final = 1.0
_SOON_S: Final = 5.0
"""For so long behind the end of a connection, tries follow each other quickly."""
_ALIVE_S: Final = (30, 10, 3)
"""Devices between the nodes forget connections on which nothing passes: probes of TCP keep them."""


class _Owner(NamedTuple):
    """The one to watch."""

    claim: int
    address: str


class Watch:
    """Of one owner at a time, in a thread of its own that begins with the first one."""

    def __init__(self) -> None:
        self._owner: _Owner | None = None
        self._evidence = Evidence(-1)
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ends = False
        self._ended_at = -_SOON_S
        self._thread: threading.Thread | None = None

    def follow(self, claim: int, address: str) -> None:
        """Watch the owner of a claim; an empty address: nobody, as if it were not there."""
        owner = _Owner(claim, address) if address else None
        if owner == self._owner:
            return
        with self._lock:
            self._owner, self._evidence = owner, Evidence(claim)
        os.eventfd_write(self._wake, 1)
        if self._thread is None and owner is not None:
            self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)
            self._thread.start()

    @property
    def lost(self) -> bool:
        """The connection to the owner has just ended, and there is no new one yet."""
        return self._evidence.lost and time.monotonic() - self._ended_at < _SOON_S

    def is_gone(self, claim: int) -> bool:
        """Whether the process of the owner of this claim has ended."""
        with self._lock:
            evidence = self._evidence
            return evidence.claim == claim and evidence.is_gone

    def stop(self) -> None:
        """Watch nobody any more."""
        self._ends = True
        os.eventfd_write(self._wake, 1)
        if self._thread is not None:
            self._thread.join()
        os.close(self._wake)

    # The thread

    def _run(self) -> None:
        while not self._ends:
            with self._lock:
                owner, evidence = self._owner, self._evidence
            if owner is None:
                self._woken(None)
            else:
                self._watch(owner, evidence)

    def _woken(self, seconds: float | None, connection: socket.socket | None = None) -> bool:
        """Wait for another owner to watch, or for something of the connection; whether there may be one."""
        ends: list[int | socket.socket] = [self._wake] if connection is None else [self._wake, connection]
        ready, _, _ = select.select(ends, [], [], seconds)
        if self._wake in ready:
            os.eventfd_read(self._wake)
        return self._wake in ready

    def _watch(self, owner: _Owner, evidence: Evidence) -> None:
        """Until there is another one to watch."""
        place, warned = None, False
        failure: OSError | None
        while True:
            try:
                with _connected(owner, place) as connection:
                    claim = _told(connection)
                    place = (connection.family, connection.getpeername())
                    with self._lock:
                        evidence.reached(claim, time.monotonic())
                    if self._woken(None, connection):
                        return
                with self._lock:
                    self._ended_at = time.monotonic()
                    evidence.ended(self._ended_at)
                    if evidence.lost:
                        continue
                failure = None
            except ConnectionRefusedError as error:
                failure = error
                with self._lock:
                    evidence.refused(time.monotonic())
            except OSError as error:
                failure = error
                with self._lock:
                    evidence.unclear()
            if place is None and not warned:
                warned = True
                _LOG.warning(
                    "the owner cannot be watched at %s, so the death of its machine is noticed late: %s; set "
                    "cluster.watch_listen of each node to a port that the other nodes reach",
                    owner.address,
                    failure,
                )
            soon = time.monotonic() - self._ended_at < _SOON_S
            if self._woken(_AGAIN_SOON_S if soon else _AGAIN_S):
                return


def _connected(owner: _Owner, place: tuple[int, tuple[object, ...]] | None) -> socket.socket:
    """A connection to the owner; `place`: where it was reached before. Raises OSError."""
    if place is None:
        address = Address.parse(owner.address)
        made = socket.create_connection((address.host, address.port), _ANSWER_S)
    else:
        family, where = place
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.settimeout(_ANSWER_S)
            made.connect(where)
        except OSError:
            made.close()
            raise
    idle, each, count = _ALIVE_S
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, each)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)
    return made


def _told(connection: socket.socket) -> int:
    """The claim that the other end tells. Raises OSError: it tells none."""
    found = b""
    while len(found) < CLAIM_BYTES:
        more = connection.recv(CLAIM_BYTES - len(found))
        if not more:
            raise ConnectionResetError("it closed the connection")
        found += more
    return int.from_bytes(found, "big")
