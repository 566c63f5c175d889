"""The same bare MQTT client over WebSocket: a handshake of its own, and frames around anything."""

from __future__ import annotations

from tests.reference.websocket_frames import encode
from tests.support.mqtt_wire import Wire

BINARY, TEXT, CLOSE = 2, 1, 8
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class WebSocketWire(Wire):
    """A connection whose handshake is done; `send` makes one frame of all it is given."""

    def __init__(self, port: int, version: int, protocol: str = "mqtt") -> None:
        super().__init__(port, version)
        self.socket.sendall(
            b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: " + protocol.encode() + b"\r\n\r\n"
        )
        self._stream = self.socket.makefile("rb")
        self.status = self._stream.readline().split()[1]
        self.headers: dict[str, str] = {}
        while line := self._stream.readline().strip():
            name, _, value = line.partition(b":")
            self.headers[name.decode().lower()] = value.strip().decode()
        self.closed_with = 0
        """The code of the server's close frame."""
        self.opcodes: set[int] = set()
        """Of the frames with data that came."""

    def send(self, *packets: bytes) -> Wire:
        """One binary frame with all of it."""
        return self.send_frame(BINARY, b"".join(packets))

    def send_frame(self, opcode: int, payload: bytes) -> Wire:
        """One frame."""
        self.socket.sendall(encode(opcode, payload))
        return self

    def receive(self) -> bytes:
        """The payload of the next frame with data; b"" when the server has closed."""
        try:
            while head := self._stream.read(2):
                opcode, size = head[0] & 15, head[1]
                if size >= 126:
                    size = int.from_bytes(self._stream.read(2 if size == 126 else 8), "big")
                payload = self._stream.read(size)
                if opcode == CLOSE:
                    self.closed_with = int.from_bytes(payload[:2], "big")
                elif payload:
                    self.opcodes.add(opcode)
                    return payload
        except ConnectionResetError:
            pass
        return b""

    def close(self) -> None:
        self._stream.close()
        super().close()


def request(path: str = "/mqtt", **headers: str | None) -> bytes:
    """A handshake; a header of None is left out, `_` is written `-`."""
    given: dict[str, str | None] = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "mqtt",
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    lines = [
        f"GET {path} HTTP/1.1",
        *(f"{key}: {value}" for key, value in given.items() if value is not None),
    ]
    return "\r\n".join([*lines, "", ""]).encode()
