"""The end of a shovel that speaks AMQP 0-9-1 while the other one speaks 1.0: it translates messages.

The translation is that of the gateway's front ends (`amqp10/messages/translate`). So a message that crosses
such a shovel is the same as one that a client sends by one protocol and another client gets by the other.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import pamqp.frame
from pamqp import commands

from penstock.protocols.amqp10.codec.errors import Amqp10Error
from penstock.protocols.amqp10.messages._delivering import delivered
from penstock.protocols.amqp10.messages.translate import (
    Stored,
    amqp10_from_stored,
    quickly_stored,
    stored_from_amqp10,
)
from penstock.protocols.links.amqp._header_edit import HeaderEdit
from penstock.protocols.links.amqp._in_flight import InFlight
from penstock.protocols.links.amqp.header import short_string
from penstock.protocols.links.amqp.methods import Consume, Publish, QueueDeclare
from penstock.protocols.links.amqp.settings import Destination
from penstock.protocols.links.amqp.wire import (
    BODY,
    CHANNEL,
    HEADER,
    METHOD,
    Connection,
    method_of,
    raise_closed,
)
from penstock.protocols.links.amqp10._messages import Messages
from penstock.protocols.links.errors import LinkError
from penstock.protocols.properties.editing import without_header
from penstock.protocols.properties.properties import SECTIONS_HEADER

__all__ = ["Consumer", "Publisher"]

_DELIVER: Final = b"\x00\x3c\x00\x3c"
_CONSUMER: Final = "shovel"
_TAG: Final = struct.Struct(">Q")
_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_END: Final = b"\xce"
_BLOCK_AT: Final = 7 + 2 + 2 + 8
"""The flags in the frame of a content header."""


class Consumer:
    """The source."""

    def __init__(
        self, connection: Connection, queue: str, arguments: Mapping[str, Any], *, settled: bool
    ) -> None:
        """Begins to take messages of `queue`; `settled`: without acknowledgements. Raises OSError."""
        self._connection = connection
        self._queue = queue
        self._tag = self._last = 0
        """Delivery tags: of the message that is under way, of the last whole one."""
        self._key = b""
        self._block = b""
        self._size = 0
        self._body: list[bytes] = []
        self.waiting: int | None = None
        """Messages that wait, at the last look."""
        self.messages = Messages()
        """Of the last `take`."""
        connection.send(
            Consume(queue=queue, consumer_tag=_CONSUMER, no_ack=settled, arguments=dict(arguments))
        )

    def look(self) -> None:
        """Ask how many messages wait. Raises OSError."""
        self._connection.send(QueueDeclare(queue=self._queue, passive=True))

    async def take(self) -> list[tuple[int, int]]:
        """Take the next messages: delivery tag of the first one, and how many. Raises LinkError, OSError."""
        messages = self.messages
        messages.clear()
        for kind, frame in await self._connection.frames():
            if kind == METHOD:
                self._method((kind, frame))
                continue
            if kind == HEADER:
                self._block = frame[_BLOCK_AT:-1]
                (self._size,) = _TAG.unpack_from(frame, 11)
            elif kind == BODY:
                self._body.append(frame[7:-1])
                self._size -= len(frame) - 8
            if self._size == 0:
                self._last = self._tag
                body = b"".join(self._body)
                self._body.clear()
                made = delivered(self._key, self._block, body)
                messages.append(made or amqp10_from_stored(self._key, self._block, body))
        # Tags follow on one another, since this is the only consumer of the channel.
        return [(self._last - len(messages) + 1, len(messages))] if messages else []

    def _method(self, raw: tuple[int, bytes]) -> None:
        frame = raw[1]
        if frame[7:11] == _DELIVER:
            at = 12 + frame[11]
            (self._tag,) = _TAG.unpack_from(frame, at)
            # The exchange and the routing key, as records have them, too.
            self._key = frame[at + 9 : -1]
            return
        method: Any = method_of(raw)
        if isinstance(method, commands.Basic.Cancel):
            raise LinkError(f"source: queue '{self._queue}' was deleted")
        if isinstance(method, commands.Queue.DeclareOk):
            self.waiting = method.message_count or 0

    def settle(self, tag: int, _: int) -> None:
        """Acknowledge all up to this one. Raises OSError."""
        self._connection.acknowledge([(tag, True)])

    async def drain(self) -> None:
        """Wait until the source takes more. Raises OSError."""
        await self._connection.drain()


class Publisher:
    """The destination."""

    def __init__(self, connection: Connection, destination: Destination, change: HeaderEdit | None) -> None:
        """`change`: see `Relay`. With `on-confirm` the channel confirms already."""
        self._connection = connection
        self._destination = destination
        self._change = change
        queue = destination.queue
        self._publish = b""
        """The frame of each message's publish; empty: it depends on the message."""
        if queue is not None:
            publish = Publish(exchange="", routing_key=queue, mandatory=True)
            self._publish = pamqp.frame.marshal(publish, CHANNEL)

    async def publish(self, messages: Messages) -> None:
        """Send messages. Raises LinkError, OSError."""
        frames: list[bytes] = []
        for payload in messages.payloads():
            try:
                stored = quickly_stored(payload) or stored_from_amqp10(payload)
            except Amqp10Error as error:
                raise LinkError(f"source: a message that cannot be read: {error.message}") from None
            frames += self._frames_of(stored)
        self._connection.write(frames)
        await self._connection.drain()

    def _frames_of(self, stored: Stored) -> list[bytes]:
        block, body = stored.block, stored.body
        if stored.has_sections:
            block = without_header(block, SECTIONS_HEADER)
        content = _CONTENT.pack(60, 0, len(body)) + block
        header = _FRAME.pack(HEADER, CHANNEL, len(content)) + content + _END
        if self._change is not None:
            changed = self._change.changed(header, False)
            assert changed is not None  # a shovel keeps no message out
            header = changed
        most = self._connection.frame_max - 8
        bodies = (body[at : at + most] for at in range(0, len(body), most))
        return [
            self._publish or self._publish_of(stored.subject),
            header,
            *(_FRAME.pack(BODY, CHANNEL, len(part)) + part + _END for part in bodies),
        ]

    def _publish_of(self, subject: str) -> bytes:
        to = self._destination
        names = short_string(to.exchange or "") + short_string(subject if to.key is None else to.key)
        arguments = b"\x00\x3c\x00\x28\x00\x00" + names + b"\x00"
        return _FRAME.pack(METHOD, CHANNEL, len(arguments)) + arguments + _END

    async def take(self, in_flight: InFlight) -> None:
        """Take the next confirms. Raises LinkError, OSError."""
        await self._connection.taken_by(in_flight)
        for raw in in_flight.others:
            raise_closed(raw)
            method: Any = method_of(raw)
            if isinstance(method, commands.Basic.Return):
                raise LinkError(f"destination: there is no queue '{self._destination.queue}' any more")
            if isinstance(method, commands.Basic.Nack):
                raise LinkError("destination: it refuses messages; raise the limit of the queue that is full")
