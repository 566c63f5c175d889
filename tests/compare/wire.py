"""A client of AMQP 0-9-1 that sends one method at a time and notes all that comes back.

It knows when a broker is at rest without waiting for time to pass: `channel.flow` is answered when a channel
has done all before it, and a passive declare when a queue has. Frames are encoded and decoded by pamqp, so
the client shares no code with the gateway.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from pamqp import base, body, commands, exceptions, frame, header
from pamqp.header import ProtocolHeader

from tests.support.limits import LIMIT_S

__all__ = ["CONTROL", "ConnectionClosed", "Event", "Wire"]

Event = tuple[Any, ...]
"""The name of something that came, and what is visible of it."""

CONTROL: Final = 1
"""The channel for questions; programs have those above it."""
_CHANNELS: Final = (2, 3)


class ConnectionClosed(Exception):
    """The broker closed the connection."""


class Wire:
    """One connection. `events` are by channel, in the order in which they came."""

    def __init__(self, port: int, vhost: str = "/") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self._content: dict[int, list[Any]] = {}
        self.events: dict[int, list[Event]] = defaultdict(list)
        self.closed: set[int] = set()
        """Channels that the broker closed."""
        self._socket.sendall(ProtocolHeader().marshal())
        self.wait(0, commands.Connection.Start)
        self.send(0, commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
        self.wait(0, commands.Connection.Tune)
        self.send(0, commands.Connection.TuneOk(2047, 131072, 0))
        self.send(0, commands.Connection.Open(vhost))
        self.wait(0, commands.Connection.OpenOk)
        for channel in (CONTROL, *_CHANNELS):
            self.open(channel)

    def close(self) -> None:
        """End it without a word."""
        self._socket.close()

    def open(self, channel: int) -> None:
        """Open a channel, or open it again."""
        self.closed.discard(channel)
        self.send(channel, commands.Channel.Open())
        self.wait(channel, commands.Channel.OpenOk)

    def send(self, channel: int, method: base.Frame, *content: Any) -> None:
        """Send a method, with properties and a body behind it."""
        out = frame.marshal(method, channel)
        if content:
            properties, data = content
            out += frame.marshal(header.ContentHeader(0, len(data), properties), channel)
            if data:
                out += frame.marshal(body.ContentBody(data), channel)
        self._socket.sendall(out)

    def rest(self, queues: Sequence[str]) -> list[tuple[int, int] | None]:
        """Come to rest, and say how many messages and consumers each queue has; None: it is not there."""
        self._pass_channels()
        for _ in range(2):  # a dead letter may go back to a queue that was asked
            found = self._pass_queues(queues)
        self._pass_channels()
        return found

    def _pass_channels(self) -> None:
        for channel in _CHANNELS:
            if channel not in self.closed:
                self.send(channel, commands.Channel.Flow(True))
                self.wait(channel, commands.Channel.FlowOk)

    def _pass_queues(self, queues: Sequence[str]) -> list[tuple[int, int] | None]:
        found: list[tuple[int, int] | None] = []
        for queue in queues:
            self.send(CONTROL, commands.Queue.Declare(queue=queue, passive=True))
            got = self.wait(CONTROL, commands.Queue.DeclareOk)
            found.append(None if got is None else (got.message_count, got.consumer_count))
            if got is None:
                self.open(CONTROL)
        return found

    def wait(self, channel: int, kind: type[base.Frame] | tuple[type[base.Frame], ...]) -> Any:
        """The next frame of this kind; it and those before it are noted. None: the channel was closed."""
        while True:
            number, got = self._next()
            if number == channel and isinstance(got, kind):
                if channel != CONTROL and kind is not commands.Channel.FlowOk:
                    self._note(number, got)
                return got
            self._note(number, got)
            if channel in self.closed:
                return None

    def _next(self) -> tuple[int, Any]:
        while True:
            try:
                size, channel, got = frame.unmarshal(self._data)
            except exceptions.UnmarshalingException:
                more = self._socket.recv(1 << 18)
                if not more:
                    raise ConnectionClosed("without a word") from None
                self._data += more
            else:
                self._data = self._data[size:]
                return channel, got

    def _note(self, channel: int, got: Any) -> None:
        events = self.events[channel]
        match got:
            case commands.Connection.Close():
                raise ConnectionClosed(got.reply_code, got.reply_text)
            case commands.Channel.Close():
                self.closed.add(channel)
                events.append(("closed", got.reply_code, got.reply_text))
                self.send(channel, commands.Channel.CloseOk())
            case commands.Basic.Deliver() | commands.Basic.Return() | commands.Basic.GetOk():
                self._content[channel] = [got, None, 0, b""]
            case header.ContentHeader():
                self._content[channel][1:3] = [got.properties, got.body_size]
                self._complete(channel)
            case body.ContentBody():
                self._content[channel][3] += got.value
                self._complete(channel)
            case _:
                events.append((got.name, *(value for _, value in got)))

    def _complete(self, channel: int) -> None:
        method, properties, size, data = self._content[channel]
        if len(data) < size:
            return
        del self._content[channel]
        fields = tuple((name, plain(value)) for name, value in properties if value is not None)
        match method:
            case commands.Basic.Deliver():
                what: Event = ("deliver", method.delivery_tag, method.consumer_tag, method.redelivered)
            case commands.Basic.GetOk():
                what = ("get-ok", method.delivery_tag, method.message_count, method.redelivered)
            case _:
                what = ("return", method.reply_code, method.reply_text)
        self.events[channel].append((*what, method.exchange, method.routing_key, fields, bytes(data)))


def plain(value: Any) -> Any:
    """A field as it can be compared: tables in one order, without times, and without what is known to differ.

    RabbitMQ tells the last death since 3.13.
    """
    if isinstance(value, dict):
        names = sorted(name for name in value if name != "time" and not name.startswith("x-last-death-"))
        return tuple((name, plain(value[name])) for name in names)
    if isinstance(value, list):
        return tuple(plain(one) for one in value)
    return value
