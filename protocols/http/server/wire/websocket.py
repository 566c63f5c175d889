"""A WebSocket on a connection that was HTTP/1.1: frames in and out; what they say is a conversation's.

Messages of one kind only, text or bytes as the conversation speaks, of at most 1 MiB, without extensions, so
nothing is ever decompressed. A peer that says
nothing is pinged after 30 s and dropped after 90 s. Messages that come faster than the conversation takes
them stay in the socket.

Source: RFC 6455.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, Protocol

from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from penstock.protocols.http.server.messages import HttpError, Request

if TYPE_CHECKING:
    from penstock.protocols.http.server.wire.h1 import Host

__all__ = ["Conversation", "WsSession", "accept"]

_MESSAGE_MAX: Final = 1 << 20
_PING_S: Final = 30.0
_GONE_S: Final = 90.0
_WAITING_MAX: Final = 64
"""Messages that wait for the conversation; then the socket is not read."""
_GOING_AWAY: Final = 1001
_OTHER_KIND: Final = 1003
_NORMAL: Final = 1000
_CLOSED: Final = "the WebSocket was closed"


class Conversation(Protocol):
    """The conversation over a WebSocket. Made by a handler, as the `conversation` of its answer."""

    handshake: bytes
    """The answer that `accept` gave."""
    is_binary: bool
    """Its messages are bytes, instead of text."""

    async def run(self, session: WsSession) -> None:
        """Talk until `session.receive_text` or `receive_bytes` says that it is over, then tidy up."""

    def writable(self) -> None:
        """There is room for output again."""


def accept(request: Request, subprotocol: str) -> bytes:
    """Agree to a handshake: the answer to be sent.

    Raises:
        HttpError: 400 or 426, it is none.

    """
    if request.version != "1.1":
        raise HttpError(400, "malformed", "a WebSocket begins with HTTP/1.1")
    protocol = ServerProtocol(
        subprotocols=[Subprotocol(subprotocol)],
        # A client that offers none gets none: it speaks the only one there is.
        select_subprotocol=lambda _, offered: Subprotocol(subprotocol) if subprotocol in offered else None,
    )
    answer = protocol.accept(Handshake(request.target, Headers(request.headers)))
    if answer.status_code != 101:
        raise HttpError(
            426 if answer.status_code == 426 else 400,
            "malformed",
            f"no handshake of a WebSocket: {protocol.handshake_exc}",
            headers=(("upgrade", "websocket"),),
        )
    return answer.serialize()


class WsSession:
    """See the module. It takes the place of the connection's HTTP session."""

    version: Literal["websocket"] = "websocket"
    unsent = 0
    idle = False
    reading_body = False

    def __init__(self, host: Host, conversation: Conversation) -> None:
        self._host = host
        self._protocol = ServerProtocol(state=State.OPEN, max_size=_MESSAGE_MAX)
        self._conversation = conversation
        self._kind = Opcode.BINARY if conversation.is_binary else Opcode.TEXT
        self._messages: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._more = asyncio.Event()
        self._is_closed = False
        """The peer has closed, or a fault has."""
        self._over = False
        self._heard_at: float | None = None
        self._pinged_at = 0.0
        host.out.write(conversation.handshake)
        host.dirty()

    # Asked by the endpoint

    @property
    def reads(self) -> bool:
        """More bytes of the peer would be of use now."""
        return len(self._messages) < _WAITING_MAX

    def receive(self, buffer: bytearray, size: int, now: float) -> int:
        """Handle buffer[0:size]; how many bytes of it are done with. Never raises for what a peer sends."""
        if self._over:
            return size
        if not self.reads:
            return 0
        self._heard_at = now
        self._protocol.receive_data(bytes(memoryview(buffer)[:size]))
        for frame in self._protocol.events_received():
            assert isinstance(frame, Frame)  # the handshake is over
            if frame.opcode in (self._kind, Opcode.CONT):
                self._parts.append(bytes(frame.data))
                if frame.fin:
                    message, self._parts = b"".join(self._parts), []
                    self._messages.append(message)
            elif frame.opcode is Opcode.BINARY:
                self._protocol.fail(_OTHER_KIND, "messages are JSON in text frames")
            elif frame.opcode is Opcode.TEXT:
                self._protocol.fail(_OTHER_KIND, "messages are bytes in binary frames")
        self._send()
        if self._protocol.state in (State.CLOSING, State.CLOSED):
            # The conversation hears what came in front of that, and then ends the connection (`close`).
            self._is_closed = True
            if not self._messages:
                self._end(_CLOSED)
        self._more.set()
        return size

    def clock(self, now: float) -> None:
        """Ping a peer that says nothing, and drop one that does not answer."""
        if self._heard_at is None:
            self._heard_at = now
        silent_s = now - self._heard_at
        if silent_s > _GONE_S:
            self._end(f"the peer of a WebSocket said nothing for {_GONE_S:.0f} s")
        elif silent_s > _PING_S and now - self._pinged_at > _PING_S:
            self._pinged_at = now
            self._protocol.send_ping(b"")
            self._send()

    def too_slow(self, *, begun: bool) -> None:
        """Of HTTP's sessions: there is no request that could be late."""

    def body_too_slow(self) -> None:
        """Of HTTP's sessions: there is no body."""

    def writable(self) -> None:
        """The connection takes output again."""
        self._conversation.writable()

    def shutdown(self) -> None:
        """The gateway stops."""
        self.close(_GOING_AWAY, "the gateway stops")

    def lost(self) -> None:
        """The connection is gone."""
        self._over = True
        self._more.set()

    def let_go(self) -> None:
        """Nothing here refers to itself."""

    # The conversation's

    @property
    def peer(self) -> tuple[str, int]:
        """The address of the client."""
        return self._host.peer_host, self._host.peer_port

    @property
    def server_address(self) -> tuple[str, int]:
        """Where it is connected."""
        return self._host.server_address

    @property
    def is_writable(self) -> bool:
        """Whether more output is welcome; if not, `Conversation.writable` follows."""
        return self._host.output_capacity() > 0

    async def receive_text(self) -> str | None:
        """The next message; None: the peer is gone."""
        message = await self.receive_bytes()
        return None if message is None else message.decode("utf-8", "replace")

    async def receive_bytes(self) -> bytes | None:
        """The next message as it came; None: the peer is gone."""
        while not self._messages:
            if self._over or self._is_closed:
                return None
            self._more.clear()
            await self._more.wait()
        message = self._messages.popleft()
        if len(self._messages) == _WAITING_MAX - 1:
            self._host.go_on()
        return message

    def send_text(self, data: bytes) -> None:
        """Send a message, in UTF-8."""
        if not self._over and self._protocol.state is State.OPEN:
            self._protocol.send_text(data)
            self._send()

    def send_bytes(self, data: bytes) -> None:
        """Send a message of bytes."""
        if not self._over and self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._send()

    def close(self, code: int = _NORMAL, reason: str = "") -> None:
        """Say goodbye."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
            self._send()
        self._end(reason or (_CLOSED if self._is_closed else "the conversation is over"))

    def _end(self, reason: str) -> None:
        if not self._over:
            self.lost()
            self._host.end(reason)

    def _send(self) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data:
            self._host.out.write(data)
            self._host.dirty()
