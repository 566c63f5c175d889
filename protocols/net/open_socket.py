"""A listening socket that is open before there is a gateway for it: a standby's, whose clients wait."""

from __future__ import annotations

import socket
from typing import NamedTuple

__all__ = ["OpenSocket"]


class OpenSocket(NamedTuple):
    """Of the listener of one option."""

    listening: socket.socket
    clients: list[socket.socket]
    """Accepted already; nothing was read of them."""

    def close(self) -> None:
        """Close all of them."""
        for each in (self.listening, *self.clients):
            each.close()
