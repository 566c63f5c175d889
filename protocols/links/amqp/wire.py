"""A client's connection of AMQP 0-9-1 with one channel, which gives and takes frames as bytes.

pamqp encodes and decodes methods. Headers and bodies of messages stay as they are: a client that decodes
properties and encodes them again changes the types of headers.

    +---------+-------------+----------+---------+-----------+
    | kind u8 | channel u16 | size u32 | payload | end CE u8 |
    +---------+-------------+----------+---------+-----------+
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, Self

import pamqp.frame
from pamqp import commands
from pamqp.base import Frame
from pamqp.heartbeat import Heartbeat

from penstock.protocols.links.amqp.place import Place
from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.stream import Stream

__all__ = [
    "BODY",
    "CHANNEL",
    "HEADER",
    "METHOD",
    "Closed",
    "Connection",
    "Raw",
    "Taker",
    "method_of",
    "raise_closed",
]

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
CHANNEL: Final = 1
"""The one that is open."""
Raw = tuple[int, bytes]
"""Kind and whole frame."""

_HEAD: Final = struct.Struct(">BHI")
_ACK: Final = struct.Struct(">BHIIQ?B")
"""A frame of basic.ack: kind, channel, size of 13, method, delivery tag, multiple, end."""
_ACK_METHOD: Final = 0x003C0050
_END: Final = 0xCE
_FRAME_MAX: Final = 128 << 10
_PAYLOAD_MAX: Final = 1 << 20
"""Of a frame that comes, in bytes: links ask for less."""
_SILENCE_MAX_S: Final = 60.0
"""Without heartbeats."""
_FAREWELL_S: Final = 5.0
_CLOSE_OK: Final = pamqp.frame.marshal(commands.Connection.CloseOk(), 0)
_CAPABILITIES: Final = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "authentication_failure_close": True,
}


class Closed(LinkError):
    """The broker closed the channel or the connection, and said why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the broker closed with {code}: {text}")
        self.code = code
        """As AMQP has it: 404, 403, 320, ..."""


class Taker(Protocol):
    """A kernel that takes frames out of what was read."""

    def take(self, data: memoryview, /) -> int:
        """Take the whole frames; how many bytes were used. Raises ValueError: they are no frames."""


def method_of(raw: Raw) -> Frame | None:
    """The method of a frame; None: it has none."""
    if raw[0] != METHOD:
        return None
    method = pamqp.frame.unmarshal(raw[1])[2]
    return method if isinstance(method, Frame) else None


def raise_closed(raw: Raw) -> None:
    """Raises Closed: the frame ends the channel or the connection."""
    # connection.close is 10, 50, and channel.close 20, 40.
    if raw[0] == METHOD and raw[1][7:11] in (b"\x00\x0a\x00\x32", b"\x00\x14\x00\x28"):
        method: Any = method_of(raw)
        raise Closed(method.reply_code, method.reply_text)


class Connection:
    """One connection. Use it as a context; `open` makes it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._beating: asyncio.Task[None] | None = None
        self._silence_max_s: float | None = _SILENCE_MAX_S
        self.frame_max = _FRAME_MAX
        self.server: Mapping[str, Any] = {}
        """The properties that the broker gave of itself."""

    @classmethod
    async def open(
        cls, place: Place, vhost: str, *, frame_max: int = _FRAME_MAX, product: str = "penstock"
    ) -> Self:
        """Connect, log in, and open the channel.

        Args:
            place: Where to.
            vhost: To open.
            frame_max: The largest frame that may come, in bytes.
            product: How the client names itself.

        Raises:
            Closed: the broker refused the login or the vhost.
            OSError: it cannot be reached.

        """
        try:
            async with asyncio.timeout(place.timeout_s):
                made = cls(await place.connect())
                try:
                    heartbeat_s = await made._login(place, vhost, frame_max, product)
                except BaseException:
                    await made.close()
                    raise
        except TimeoutError:
            raise ConnectionError(f"no answer within {place.timeout_s:g} s") from None
        if heartbeat_s:
            made._silence_max_s = 3.0 * heartbeat_s
            made._beating = asyncio.create_task(made._beat(heartbeat_s / 2))
        elif not place.heartbeat_s:
            made._silence_max_s = None
        return made

    async def _login(self, place: Place, vhost: str, frame_max: int, product: str) -> int:
        """The interval of heartbeats, in seconds; 0 = there are none."""
        self._stream.write(b"AMQP\x00\x00\x09\x01")
        start = await self._wait(commands.Connection.Start)
        self.server = start.server_properties
        properties: Any = {
            "product": product,
            "connection_name": product,
            "capabilities": dict(_CAPABILITIES),
        }
        mechanism, response = "PLAIN", f"\0{place.user}\0{place.password}"
        if place.external:
            mechanism, response = "EXTERNAL", ""
        tune = await self.call(
            commands.Connection.StartOk(properties, mechanism, response), commands.Connection.Tune, channel=0
        )
        self.frame_max = min(tune.frame_max or _FRAME_MAX, frame_max)
        heartbeat_s = min(tune.heartbeat or place.heartbeat_s, place.heartbeat_s)
        self.send(commands.Connection.TuneOk(CHANNEL, self.frame_max, heartbeat_s), channel=0)
        await self.call(commands.Connection.Open(vhost), commands.Connection.OpenOk, channel=0)
        await self.call(commands.Channel.Open(), commands.Channel.OpenOk)
        return heartbeat_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection, and wait until the broker has requeued what was not acknowledged."""
        if self._beating is not None:
            self._beating.cancel()
        with contextlib.suppress(OSError, TimeoutError):
            self.send(commands.Connection.Close(200, "done", 0, 0), channel=0)
            async with asyncio.timeout(_FAREWELL_S):
                while _CLOSE_OK not in bytes(data := await self._stream.read()):
                    # It may be cut in two anywhere.
                    self._stream.used(max(len(data) - len(_CLOSE_OK) + 1, 0))
        await self._stream.close()

    async def _beat(self, every_s: float) -> None:
        with contextlib.suppress(OSError):  # whoever reads finds it lost, too
            while True:
                await asyncio.sleep(every_s)
                self.write((pamqp.frame.marshal(Heartbeat(), 0),))

    # Out

    def send(self, method: Frame, *, channel: int = CHANNEL) -> None:
        """Send a method. Raises OSError: the connection is lost."""
        self.write((pamqp.frame.marshal(method, channel),))

    def acknowledge(self, tags: Sequence[tuple[int, bool]]) -> None:
        """Acknowledge messages by delivery tags, each alone or with all before it. Raises OSError."""
        # By pamqp one takes 17 µs, and there may be one for each message that does not pass.
        acks = [_ACK.pack(METHOD, CHANNEL, 13, _ACK_METHOD, tag, multiple, _END) for tag, multiple in tags]
        self.write((b"".join(acks),))

    def write(self, frames: Sequence[bytes]) -> None:
        """Send whole frames as they are. Raises OSError: the connection is lost."""
        self._stream.write(*frames)

    async def drain(self) -> None:
        """Wait until the broker takes more. Raises OSError."""
        await self._stream.drain()

    async def call(self, method: Frame, reply: type[Frame], *, channel: int = CHANNEL) -> Any:
        """Send a method and wait for its reply. Raises Closed, OSError."""
        self.send(method, channel=channel)
        return await self._wait(reply)

    # In

    async def frames(self) -> list[Raw]:
        """The next whole frames of the channel, at least one.

        Raises:
            Closed: the broker closed, and said why.
            OSError: the connection is lost, or silent for too long.

        """
        while True:
            found = [raw for raw in self._split(await self._read()) if self._is_of_channel(raw)]
            if found:
                return found

    async def taken_by(self, kernel: Taker) -> None:
        """Let a kernel take the next bytes as they come, for a caller that calls no `frames`.

        Raises:
            OSError: the connection is lost, silent for too long, or no AMQP.

        """
        data = await self._read()
        try:
            self._stream.used(kernel.take(data))
        except ValueError as error:
            raise ConnectionResetError(str(error)) from None

    async def _read(self) -> memoryview:
        try:
            return await self._stream.read(self._silence_max_s)
        except TimeoutError:
            raise ConnectionResetError("the broker is silent") from None

    async def _wait(self, reply: type[Frame]) -> Any:
        # Nothing but the reply can come: nobody consumes yet.
        for raw in await self.frames():
            method = method_of(raw)
            if isinstance(method, reply):
                return method
        raise ConnectionResetError(f"the broker did not answer with {reply.__name__}")

    def _split(self, data: memoryview) -> list[Raw]:
        """The whole frames that are unread."""
        at, found = 0, []
        while len(data) - at >= _HEAD.size:
            kind, _, size = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + size + 1
            if size > _PAYLOAD_MAX or (end <= len(data) and data[end - 1] != _END):
                raise ConnectionResetError("the broker sent no frame of AMQP")
            if end > len(data):
                break
            found.append((kind, bytes(data[at:end])))
            at = end
        self._stream.used(at)
        return found

    def _is_of_channel(self, raw: Raw) -> bool:
        """Whether a frame is for the caller: heartbeats are not. Raises Closed."""
        raise_closed(raw)
        return raw[0] in (METHOD, HEADER, BODY)
