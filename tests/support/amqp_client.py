"""A blocking AMQP 0-9-1 client that can make every mistake: pamqp encodes, nothing is checked on the way out.

`Connection.call` sends a method and returns the reply, or raises `Closed` with what the broker closed for.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pamqp.frame
from pamqp import commands
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from tests.support.limits import LIMIT_S

HEADER = b"AMQP\x00\x00\x09\x01"

CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


@dataclass(frozen=True)
class Closed(Exception):
    """The broker closed the channel or the connection."""

    scope: str
    """`channel` or `connection`; `socket` when it closed without a word."""
    code: int = 0
    text: str = ""
    class_id: int = 0
    method_id: int = 0


@dataclass(frozen=True)
class Message:
    """A message with the method that brought it: Basic.Deliver, GetOk or Return."""

    method: Frame
    header: ContentHeader
    body: bytes


class Connection:
    """A connection that stays at the point of the handshake it was asked for.

    Args:
        port: On 127.0.0.1.
        until: `socket` (nothing sent), `tune` (start-ok sent, tune received) or `open`.
        user: For PLAIN.
        password: For PLAIN.
        vhost: To open.
        timeout_s: Of every read.

    """

    def __init__(
        self,
        port: int,
        *,
        until: str = "open",
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        timeout_s: float = LIMIT_S,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server_properties: dict[str, object] = {}
        self._buffer = bytearray()
        try:
            self._handshake(until, user, password, vhost)
        except BaseException:
            self.socket.close()
            raise

    def _handshake(self, until: str, user: str, password: str, vhost: str) -> None:
        if until == "socket":
            return
        self.socket.sendall(HEADER)
        start = self.wait_for(commands.Connection.Start)
        self.server_properties = dict(start.server_properties)
        self.send(
            0,
            commands.Connection.StartOk(
                client_properties={"capabilities": CAPABILITIES}, response=f"\0{user}\0{password}"
            ),
        )
        tune = self.wait_for(commands.Connection.Tune)
        if until == "tune":
            return
        self.send(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
        self.send(0, commands.Connection.Open(vhost))
        self.wait_for(commands.Connection.OpenOk)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close with the handshake, waiting for the broker's close-ok so that its side is done."""
        try:
            self.send(0, commands.Connection.Close(200, "bye", 0, 0))
            while not isinstance(self.read()[1], commands.Connection.CloseOk):
                pass
        except (OSError, Closed):
            pass
        self.socket.close()

    # Sending

    def send(self, channel: int, *frames: Frame | ContentHeader | ContentBody | Heartbeat) -> None:
        """Send frames as they are."""
        self.socket.sendall(b"".join(pamqp.frame.marshal(frame, channel) for frame in frames))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def channel(self, number: int = 1) -> int:
        """Open a channel and return its number."""
        self.call(number, commands.Channel.Open())
        return number

    def call(self, channel: int, method: Frame) -> Frame:
        """Send a method and return its reply."""
        self.send(channel, method)
        expected = [commands.INDEX_MAPPING[i] for i in commands.INDEX_MAPPING if _is_reply(i, method)]
        while True:
            _, got = self.read()
            if isinstance(got, tuple(expected)):
                assert isinstance(got, Frame)
                return got

    def publish(
        self,
        channel: int,
        exchange: str,
        routing_key: str,
        body: bytes = b"x",
        *,
        properties: commands.Basic.Properties | None = None,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        """Send a publish with its content."""
        header = ContentHeader(0, len(body), properties or commands.Basic.Properties())
        self.send(
            channel,
            commands.Basic.Publish(
                exchange=exchange, routing_key=routing_key, mandatory=mandatory, immediate=immediate
            ),
            header,
            *([ContentBody(body)] if body else []),
        )

    def sync(self, channel: int) -> None:
        """Wait until the broker has handled everything sent on the channel so far."""
        self.call(channel, commands.Basic.Qos(0, 0, False))

    # Receiving

    def read_exactly(self, size: int) -> bytes:
        """The next bytes; raises Closed("socket") at the end of the stream."""
        while len(self._buffer) < size:
            try:
                piece = self.socket.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Closed("socket")
            self._buffer += piece
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def read(self) -> tuple[int, object]:
        """(channel, frame) of the next frame; a close of channel or connection is answered and raised as
        Closed.
        """
        head = self.read_exactly(7)
        size = struct.unpack_from(">I", head, 3)[0]
        _, channel, frame = pamqp.frame.unmarshal(head + self.read_exactly(size + 1))
        if isinstance(frame, commands.Channel.Close):
            self.send(channel, commands.Channel.CloseOk())
            raise Closed("channel", frame.reply_code, frame.reply_text, frame.class_id, frame.method_id)
        if isinstance(frame, commands.Connection.Close):
            try:
                self.send(0, commands.Connection.CloseOk())
            except OSError:
                pass
            raise Closed("connection", frame.reply_code, frame.reply_text, frame.class_id, frame.method_id)
        return channel, frame

    def wait_for(self, *kinds: type) -> Frame:
        """The next method of these kinds; other frames are dropped."""
        while True:
            _, frame = self.read()
            if isinstance(frame, kinds):
                assert isinstance(frame, Frame)
                return frame

    def message(self) -> Message:
        """The next message delivered, got or returned."""
        method = self.wait_for(commands.Basic.Deliver, commands.Basic.GetOk, commands.Basic.Return)
        _, header = self.read()
        assert isinstance(header, ContentHeader), header
        body = b""
        while len(body) < header.body_size:
            _, piece = self.read()
            assert isinstance(piece, ContentBody), piece
            body += piece.value
        return Message(method, header, body)


def _is_reply(index: int, method: Frame) -> bool:
    """Whether the method with this index answers `method`."""
    return commands.INDEX_MAPPING[index].name in method.valid_responses
