"""The WebSocket layer of one connection: towards the socket (or TLS) a protocol, towards the `Connection` a
transport. RFC 6455, server side, for protocols that send bytes in binary frames.

    below --HTTP request--> handshake, at most 8 KiB, one answer
    below --frames--> the connection's own buffer, unmasked there in place --> received()
    below <--binary frames---------------- out

The connection is told of its transport when the socket is there: its limits before login hold for the
handshake too. Frames of a client carry a stream: packets may span frames, and one frame may hold several.
Each MQTT packet is sent in a frame of its own, as other brokers send it: Eclipse's C client waits for ever if
a frame has more than one. There are no extensions, so nothing is ever decompressed. Of the pings in one read
the last is answered, as the RFC allows, and none while the peer does not take its output.

Closing. We say close and wait a little for the peer's; a peer that says it is answered. A frame that breaks
the protocol ends the connection with its close code.

A browser speaks for the page it shows. A request with an Origin counts as from another machine
(`Connection.foreign`), unless the origin is allowed by name or is the request's own host; so does one to a
name that somebody else can point here. A page in a browser here gains nothing from rules about loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, cast

from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from penstock.protocols.listening._unframe import frame_header
from penstock.protocols.listening._websocket_layer import WebSocketLayer
from penstock.protocols.listening.websocket_rules import WebSocketRules
from penstock.protocols.net._socket import SocketTransport
from penstock.protocols.net.admitting.browser import own_host, same_origin
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.layers.tls_transport import TlsTransport

__all__ = ["WebSocketTransport"]

_REQUEST_MAX: Final = 8192
"""Bytes of the whole request."""
_CLOSE_WAIT_S: Final = 2.0
"""How long the peer's close frame is waited for."""
_CLOSE: Final = 8
_PONG: Final = 10


class WebSocketTransport(WebSocketLayer):
    """See the module text."""

    def __init__(
        self, connection: Connection, rules: WebSocketRules, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(connection, mqtt_packets=rules.mqtt_packets)
        self._connection = connection
        self._rules = rules
        self._loop = loop
        self._request = b""
        self._close_frame = frame_header(_CLOSE, 2) + (1000).to_bytes(2, "big")
        self._wait: asyncio.TimerHandle | None = None

    # Towards the socket

    def connection_made(self, transport: SocketTransport | TlsTransport) -> None:
        self.below = transport
        self._connection.connection_made(cast(asyncio.Transport, self))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_leaving = True
        if self._wait is not None:
            self._wait.cancel()
        self._connection.connection_lost(exc)

    def eof_received(self) -> bool:
        if not self.is_open:
            self._connection.abort("the client ended the WebSocket handshake")
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    # Called by the layer

    def control(self) -> None:
        frames = self.frames
        if frames.close is not None:
            self._peer_closed(frames.close)
        elif self.is_leaving:
            pass
        elif frames.fault is not None:
            code, text = frames.fault
            self._close_frame = frame_header(_CLOSE, 2 + len(text)) + code.to_bytes(2, "big") + text.encode()
            self._connection.close(f"broken WebSocket frames: {text}")
        elif frames.ping is not None:
            if self._connection.writable:
                self.below.write(frame_header(_PONG, len(frames.ping)) + frames.ping)
            frames.ping = None

    def _peer_closed(self, payload: bytes) -> None:
        if self.below.is_closing():
            return
        if not self.is_leaving:
            self._connection.eof_received()
            self.below.write(frame_header(_CLOSE, len(payload)) + payload)
            self.is_leaving = True
        self.below.close()

    # The handshake

    def handshake(self, data: bytes) -> None:
        self._connection.bytes_in += len(data)
        self._connection.within_login_bytes()
        self._request += data
        end = self._request.find(b"\r\n\r\n") + 4
        if end < 4:
            if len(self._request) > _REQUEST_MAX:
                self._connection.abort(f"a WebSocket handshake of more than {_REQUEST_MAX} bytes")
            return
        head, rest = self._request[:end], self._request[end:]
        self._request = b""
        http = ServerProtocol(subprotocols=[Subprotocol(name) for name in self._rules.subprotocols])
        http.receive_data(head)
        requests = http.events_received()
        if requests:
            http.send_response(self._answer(http, cast(Request, requests[0])))
            answer = b"".join(http.data_to_send())
        else:
            answer = http.reject(HTTPStatus.BAD_REQUEST, "This is no HTTP request.\n").serialize()
        if self.below.is_closing():
            return
        self.below.write(answer)
        if http.state is not State.OPEN:
            why = self._refusal or _chain(http.handshake_exc)
            self._connection.close(f"the WebSocket handshake failed: {why}")
            return
        self.is_open = True
        if rest:
            self.unframe_rest(rest)

    _refusal = ""

    def _answer(self, http: ServerProtocol, request: Request) -> Any:
        if any(not f"{name}{value}".isascii() for name, value in request.headers.raw_items()):
            self._refusal = "a header that is not ASCII"
            return http.reject(HTTPStatus.BAD_REQUEST, "Headers of a WebSocket handshake are ASCII.\n")
        path = request.path.partition("?")[0]
        if "*" not in self._rules.paths and path not in self._rules.paths:
            self._refusal = f"no such path: {path[:200]!r}"
            return http.reject(HTTPStatus.NOT_FOUND, f"WebSocket clients connect to {self._rules.paths[0]}\n")
        origin = ", ".join(request.headers.get_all("Origin")) or None
        if origin is not None and self._rules.origins and origin not in self._rules.origins:
            self._refusal = f"pages of {origin[:200]!r} may not connect"
            return http.reject(HTTPStatus.FORBIDDEN, "Pages of this origin may not connect.\n")
        host = request.headers.get("Host", "")
        allowed = origin is None or origin in self._rules.origins or same_origin(origin, host)
        if not allowed or not own_host(host, self._connection.context.host_names):
            self._connection.foreign = True
        return http.accept(request)

    # Towards the connection

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self.is_leaving or self.below.is_closing():
            return
        self.is_leaving = True
        if not self.is_open:
            self.below.close()
            return
        self.below.write(self._close_frame)
        if self.frames.fault is not None:
            self.below.close()  # its close frame would not be understood
            return
        self.below.resume_reading()
        self._wait = self._loop.call_later(_CLOSE_WAIT_S, self.below.close)

    def abort(self) -> None:
        self.is_leaving = True
        self.below.abort()

    def is_closing(self) -> bool:
        return self.is_leaving or bool(self.below.is_closing())

    def pause_reading(self) -> None:
        self.below.pause_reading()

    def resume_reading(self) -> None:
        self.below.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return int(self.below.get_write_buffer_size())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.below.get_extra_info(name, default)


def _chain(error: BaseException | None) -> str:
    """The text of an error of the library, and its cause."""
    texts: list[str] = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__
    return ": ".join(texts)[:300]
