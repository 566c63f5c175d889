"""GET /v1/vhosts/V/mqtt: MQTT over a WebSocket of HTTP's listeners, for whom HTTP has let in.

The client says CONNECT with the user name `V:USER` of its login and without a password. So a page speaks MQTT
at its own origin with the session of its user, and no script has a password. Everything else is as at
`mqtt.ws_listen`; other logins than that are judged as there.

Bytes go through a pair of sockets to a listener of MQTT, which serves them like those of any client. They end
when the login by HTTP does.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.server.messages import HttpError, Request, Response

if TYPE_CHECKING:
    from penstock.protocols.http.data.access import Access
    from penstock.protocols.http.server.wire.websocket import WsSession
    from penstock.protocols.listening.listener import Listener
    from penstock.protocols.listening.registry import Registry

__all__ = ["MqttSockets"]

_SUBPROTOCOL: Final = "mqtt"
_READ: Final = 64 << 10
_POLICY: Final = 1008
"""RFC 6455 7.4.1: a message, or whoever it is from, violates a policy."""


class MqttSockets:
    """The handler."""

    def __init__(self, access: Access, registry: Registry) -> None:
        self.access = access
        self._registry = registry

    async def connect(self, request: Request) -> Response:
        """Begin a conversation."""
        from penstock.protocols.http.server.wire.websocket import accept  # here: few connections have one

        self.access.vhost(request)
        listener = next((one for one in self._registry.of("mqtt") if one.accepting), None)
        if listener is None:
            raise HttpError(404, "not_found", "MQTT is off: set mqtt.listen")
        return Response(
            101, conversation=_Bridge(self.access, listener, request, accept(request, _SUBPROTOCOL))
        )


class _Bridge:
    """One conversation."""

    is_binary = True

    def __init__(self, access: Access, listener: Listener, request: Request, handshake: bytes) -> None:
        self.handshake = handshake
        self._access = access
        self._listener = listener
        self._request = request
        self._session: WsSession
        self._room = asyncio.Event()

    async def run(self, session: WsSession) -> None:
        """See `Conversation`."""
        self._session = session
        request = self._request
        request.on_gone = self._refused
        ours, theirs = socket.socketpair()
        with ours:
            for one in (ours, theirs):
                one.setblocking(False)
            identity = self._access.identity(request)
            self._listener.bring(theirs, *session.peer, session.server_address, identity)
            answers = asyncio.ensure_future(self._to_client(ours))
            try:
                with self._access.watched(request, self._access.vhost):
                    await self._from_client(ours)
            finally:
                answers.cancel()
                with suppress(asyncio.CancelledError):
                    await answers

    async def _from_client(self, ours: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while (data := await self._session.receive_bytes()) is not None:
            try:
                await loop.sock_sendall(ours, data)
            except OSError:
                return  # MQTT has ended it

    async def _to_client(self, ours: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while data := await loop.sock_recv(ours, _READ):
                while not self._session.is_writable:
                    self._room.clear()
                    await self._room.wait()
                self._session.send_bytes(data)
        self._session.close()

    def writable(self) -> None:
        """See `Conversation`."""
        self._room.set()

    def _refused(self) -> None:
        """The login has ended, and all that goes on by it."""
        if self._request.refusal is not None:
            self._session.close(_POLICY, self._request.refusal.detail)
