"""One worker's view of the others: its number, how many there are, the doors, and the shared state."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from penstock.lazy_dataclass import dataclass
from penstock.protocols.workers.handover import HandoverSockets
from penstock.protocols.workers.replication import Follower, Leader

if TYPE_CHECKING:
    from penstock.log_core.log import Log
    from penstock.protocols.listening.front_end import FrontEnd
    from penstock.router.broker import Broker
    from penstock.router.rows import Tables

__all__ = ["Membership", "Peers", "Stopped"]


class Stopped(Exception):
    """The worker is to stop, and has not begun."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The values that the supervisor gives a worker."""

    number: int
    door: socket.socket
    """Listens at paths[number]."""
    paths: Sequence[Path]
    """The doors of all."""
    life: int
    """Descriptor of a pipe that ends with the supervisor."""
    word: int
    """Descriptor of a pipe for what `ready` says."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker is to stop."""

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop when the supervisor is gone: nobody would start or stop this worker any more."""

        def ended() -> None:
            import shutil  # here: it loads five compressors, and a start does not need it

            loop.remove_reader(self.life)
            self.stopping.set()
            shutil.rmtree(self.paths[0].parent, ignore_errors=True)  # which it would have done

        loop.add_reader(self.life, ended)

    def ready(self, addresses: Mapping[str, str]) -> None:
        """Clients can connect, at these addresses by the names of listeners."""
        os.write(self.word, orjson.dumps(dict(addresses)))
        os.close(self.word)


class Peers:
    """One worker among several, while it runs. Made by `join`."""

    def __init__(self, membership: Membership) -> None:
        self.number = membership.number
        self.count = len(membership.paths)
        loop = asyncio.get_running_loop()
        self.handover = HandoverSockets(loop, membership.number, membership.door, membership.paths)
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.shared: Tables

    @classmethod
    async def join(cls, membership: Membership, log: Log) -> Peers:
        """Open the door, and have the state in common: it is in the log of worker 0, who must be there.

        Raises:
            Stopped: it is to stop before worker 0 is there.

        """
        peers = cls(membership)
        if peers.number == 0:
            peers.leader = Leader(peers.handover, log)
            peers.shared = peers.leader.tables
            peers.handover.open()
        else:
            peers.handover.open()
            peers.follower = Follower(peers.handover)
            begun = asyncio.ensure_future(peers.follower.begin())
            stopped = asyncio.ensure_future(membership.stopping.wait())
            await asyncio.wait((begun, stopped), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not begun.done():
                begun.cancel()
                peers.handover.close()
                raise Stopped
            peers.shared = peers.follower.mirror
        return peers

    def follow(self, broker: Broker) -> None:
        """The broker is there, with all that a start brings: what worker 0 says holds in it from now on."""
        if self.follower is not None:
            self.follower.start(broker)
        if self.leader is not None:
            self.leader.start()

    def serve(self, front_ends: dict[str, FrontEnd]) -> None:
        """The front ends are there: take over the clients that others hand over."""

        def take(record: dict[str, Any], data: bytes, given: socket.socket) -> None:
            front_end, name = record["place"]
            front_ends[front_end].listeners[name].take_over(record, data, given)

        self.handover.take("client", take)

    def close(self) -> None:
        """Close the door, and leave."""
        self.handover.close()
        if self.leader is not None:
            self.leader.close()
        if self.follower is not None:
            self.follower.close()
