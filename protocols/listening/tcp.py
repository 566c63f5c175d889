"""Congestion control of listening sockets: connections on loopback are not paced."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from penstock.protocols.net.admitting.addresses import is_loopback

__all__ = ["do_not_pace"]

_PACING: Final = b"bbr"
"""The congestion control, perhaps with a version behind it, that sends by a timer and not at once."""
_EVERYWHERE: Final = b"reno"
"""The one that every kernel has and everybody may choose."""


def do_not_pace(listening: socket.socket) -> None:
    """Have what comes in on a loopback address be answered at once, not by a timer.

    Between processes of one machine there is no network that could be congested, and with BBR a timer for
    each piece costs a quarter of what sending does (a virtual machine, where timers cost most: reading, in
    bench.compare_native). It is set here since a connection that was paced once stays so. An option that
    the system refuses stays as it is, and works.
    """
    if not is_loopback(str(listening.getsockname()[0])):
        return
    with contextlib.suppress(OSError):
        if listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(_PACING):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _EVERYWHERE)
