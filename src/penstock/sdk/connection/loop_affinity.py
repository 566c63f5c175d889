"""Where a client lives: one event loop of one process. A call from elsewhere raises an error that says so.

asyncio itself does nothing about that, or raises an error somewhere deep, or waits for ever; and a
child that closes what it got by fork takes the parent's socket out of the parent's epoll.
"""

from __future__ import annotations

import asyncio
import os

from penstock.sdk.errors import WrongContext

__all__ = ["LoopAffinity", "of_parent"]


class LoopAffinity:
    """The event loop and the process in which it was made."""

    __slots__ = ("_address", "_pid", "loop")

    def __init__(self, address: str) -> None:
        """In the running loop; `address`: of the gateway, for errors. Raises WrongContext: there is none."""
        loop = asyncio._get_running_loop()
        if loop is None:
            raise WrongContext(
                f"the client of {address} needs an event loop of asyncio, and none runs here",
                remedy="connect in what asyncio.run runs; with trio, or without a loop: penstock.sync",
            )
        self.loop = loop
        self._pid = os.getpid()
        self._address = address

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process in which it was made: nothing here is its own."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raises WrongContext: this is another loop, a thread without one, or another process."""
        # In a child there is no running loop before it starts one of its own.
        if asyncio._get_running_loop() is self.loop:
            return
        if self.is_forked:
            raise of_parent(self._address, self._pid)
        raise WrongContext(
            f"the client of {self._address} lives in another event loop than this call",
            remedy="connect in this one, or use penstock.sync.connect, whose objects any thread may use",
        )


def of_parent(address: str, pid: int) -> WrongContext:
    """A client that came by fork is used."""
    return WrongContext(
        f"the client of {address} was connected by process {pid}, of which this one is a fork",
        remedy="connect in the child; the parent's connection goes on there",
    )
