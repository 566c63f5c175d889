"""Connections of the gateway to itself: a pair of sockets, one end of which a front end serves.

The client logs in with a ticket, which is good for one login. Everything else is as for a client on this
machine.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from typing import TYPE_CHECKING, Final

from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.stream import Stream

if TYPE_CHECKING:
    from penstock.protocols.listening.listener import Listener
    from penstock.protocols.listening.registry import Registry
    from penstock.router.broker import Broker

__all__ = ["Local"]

_LISTENERS: Final = {
    "amqp": ("amqp", "amqps"),
    "native": ("native", "natives"),
    "mqtt": ("mqtt", "mqtts", "mqtt_unix", "ws", "wss"),
}
"""By front end, the listeners that may count the connection."""
_ROOM: Final = 512 << 10
"""Bytes that each socket may have on the way, as far as the system allows (net.core.wmem_max).

A turn of the loop moves so much. Linux's default is half of what it allows.
"""


class Local:
    """The gateway's own side of links."""

    def __init__(self, broker: Broker, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry
        self._ports = itertools.count(1)

    def ticket(self, vhost: str, user: str) -> str:
        """The password for one login of `user` to `vhost`.

        Raises:
            LinkError: the vhost is not this worker's.
            AuthenticationRefused: there is no such user.

        """
        if vhost not in self._broker.vhosts:
            told = f"vhost '{vhost}' is not there"
            if self._broker.knows(vhost):
                told = f"vhost '{vhost}' belongs to another worker"
            raise LinkError(told, remedy="name a host in the URI, or correct the vhost")
        return self._broker.users.ticket(user).decode()

    def waiting(self, vhost: str, client_id: str) -> int | None:
        """Messages that wait in the session of an MQTT client; None: there is none."""
        found = self._broker.vhosts.get(vhost)
        entry = None if found is None else found.sessions.get(client_id)
        return None if entry is None else entry.queue.ready_count

    async def connect(self, protocol: str) -> Stream:
        """A connection to the front end `protocol`: "amqp", "mqtt" or "native".

        Raises:
            LinkError: it listens nowhere.

        """
        listener = self._listener(protocol)
        ours, theirs = _pair()
        record = {
            "peer": ("127.0.0.1", next(self._ports) & 0xFFFF),
            "foreign": False,
            "is_link": True,
            "server": ("127.0.0.1", listener.port),
            "user": None,
            "said": 0,
            "reads": [],
        }
        listener.take_over(record, b"", theirs)
        _, made = await asyncio.get_running_loop().create_unix_connection(Stream, sock=ours)
        return made

    def _listener(self, protocol: str) -> Listener:
        front_end = self._registry.front_ends.get(protocol)
        for name in _LISTENERS[protocol]:
            found = None if front_end is None else front_end.listeners.get(name)
            if found is not None and found.accepting:
                return found
        raise LinkError(f"the gateway does not listen for {protocol}", remedy=f"set {protocol}.listen")


def _pair() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair()
    for one in pair:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
    return pair
