"""A client's connection of AMQP 1.0 with one session: login, frames, and the windows of the session.

    client                                     broker
    SASL header              <->               SASL header
                             <---              mechanisms
    init: PLAIN or EXTERNAL  --->
                             <---              outcome
    header, open, begin      <->               header, open, begin

A link's own frames are in `source` and `target`.

Source: AMQP 1.0 part 2, sections 2.2 to 2.5, and part 5, section 5.3.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, Self

from penstock.protocols.amqp10.codec.errors import Amqp10Error
from penstock.protocols.amqp10.codec.frames import (
    AMQP,
    HEADER,
    HEARTBEAT,
    SASL,
    SASL_HEADER,
    encode_frame,
    read_frame,
)
from penstock.protocols.amqp10.codec.performatives import (
    Begin,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
)
from penstock.protocols.links.amqp.place import Place
from penstock.protocols.links.amqp10._messages import Arriving
from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.stream import Stream

__all__ = ["CHANNEL", "FRAME_MAX", "Closed", "Connection", "Frame"]

CHANNEL: Final = 0
Frame = tuple[Any, bytes]
"""A performative, and the bytes behind it."""

FRAME_MAX: Final = 128 << 10
"""Bytes of a frame that we take."""
_WINDOW: Final = (1 << 31) - 1
"""Frames that either side may send before the session is looked at again; each flow says so anew."""
_FAREWELL_S: Final = 5.0
_SERIAL: Final = 0xFFFFFFFF


class Closed(LinkError):
    """The broker ended the link, the session or the connection, or refused the login."""


class Connection:
    """One connection. Use it as a context; `open` makes it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._beating: asyncio.Task[None] | None = None
        self._silence_max_s: float | None = None
        self.frame_max = FRAME_MAX
        """Bytes of a frame that the broker takes."""
        self._next_in = 0
        self._next_out = 0
        self._window = 0
        """Transfers that the broker takes before its next flow."""

    @classmethod
    async def open(cls, place: Place, vhost: str, *, product: str) -> Self:
        """Connect, log in, and begin the session.

        Args:
            place: Where to.
            vhost: To open; "/" is the broker's default.
            product: How the client names itself.

        Raises:
            Closed: the broker refused it, or speaks no AMQP 1.0.
            OSError: it cannot be reached.

        """
        try:
            async with asyncio.timeout(place.timeout_s):
                made = cls(await place.connect())
                try:
                    await made._log_in(place)
                    await made._begin(place, vhost, product)
                except BaseException:
                    await made._stream.close()
                    raise
        except TimeoutError:
            raise ConnectionError(f"no answer within {place.timeout_s:g} s") from None
        except Amqp10Error as error:
            raise ConnectionResetError(error.message) from None
        return made

    async def _log_in(self, place: Place) -> None:
        self._stream.write(SASL_HEADER)
        await self._expect(SASL_HEADER)
        mechanisms = await self._next(SaslMechanisms)
        mechanism, response = "PLAIN", f"\0{place.user}\0{place.password}".encode()
        if place.external:
            mechanism, response = "EXTERNAL", b""
        if mechanism not in mechanisms.sasl_server_mechanisms:
            raise Closed(f"the broker does not offer the login {mechanism}")
        self._stream.write(encode_frame(0, SaslInit(mechanism, response), kind=SASL))
        outcome = await self._next(SaslOutcome)
        if outcome.code:
            raise Closed(f"the broker refused the login of '{place.user}'")

    async def _begin(self, place: Place, vhost: str, product: str) -> None:
        opened = Open(
            product,
            hostname=None if vhost == "/" else f"vhost:{vhost}",
            max_frame_size=FRAME_MAX,
            channel_max=CHANNEL,
            idle_time_out=2000 * place.heartbeat_s or None,
        )
        self._stream.write(HEADER)
        await self._expect(HEADER)
        self.send(opened)
        answer: Open = await self._next(Open)
        self.frame_max = min(answer.max_frame_size, FRAME_MAX)
        self.send(Begin(None, self._next_out, _WINDOW, _WINDOW))
        begun: Begin = await self._next(Begin)
        self._next_in, self._window = begun.next_outgoing_id, begun.incoming_window
        if place.heartbeat_s:
            self._silence_max_s = 3.0 * place.heartbeat_s
        if answer.idle_time_out:
            self._beating = asyncio.create_task(self._beat(answer.idle_time_out / 2000))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection, and wait until the broker has requeued what was not settled."""
        if self._beating is not None:
            self._beating.cancel()
        with contextlib.suppress(OSError, TimeoutError, LinkError, Amqp10Error):
            self.send(Close())
            async with asyncio.timeout(_FAREWELL_S):
                while True:
                    await self.frames()  # until the broker's own close, which it raises
        await self._stream.close()

    async def _beat(self, every_s: float) -> None:
        with contextlib.suppress(OSError):  # whoever reads finds it lost, too
            while True:
                await asyncio.sleep(every_s)
                self._stream.write(HEARTBEAT)

    # Out

    def send(self, performative: Any) -> None:
        """Send a frame. Raises OSError: the connection is lost."""
        self._stream.write(encode_frame(CHANNEL, performative))

    def send_flow(self, handle: int, *, delivery_count: int, credit: int, echo: bool = False) -> None:
        """Say how many messages a link may send us; `echo` asks for the other side's word. Raises OSError."""
        count = delivery_count & _SERIAL
        flow = Flow(self._next_in, _WINDOW, self._next_out, _WINDOW, handle, count, credit, echo=echo)
        self.send(flow)

    @property
    def window(self) -> int:
        """Transfers that may be sent now."""
        return self._window

    def send_transfers(self, frames: bytes, count: int) -> None:
        """Send frames of transfers, `count` of them, at most `window`. Raises OSError."""
        self._next_out = (self._next_out + count) & _SERIAL
        self._window -= count
        self._stream.write(frames)

    async def drain(self) -> None:
        """Wait until the broker takes more. Raises OSError."""
        await self._stream.drain()

    # In

    async def frames(self) -> list[Frame]:
        """The next frames, at least one; flows have been looked at for the window.

        Raises:
            Closed: the broker ended something, and said why.
            OSError: the connection is lost, silent for too long, or no AMQP 1.0.

        """
        found: list[Frame] = []
        while not found:
            found = await self._read(None)
        return found

    async def taken_by(self, kernel: Arriving) -> list[Any]:
        """Let a kernel take the transfers of the next bytes as they come; the other performatives.

        Raises:
            Closed: the broker ended something, and said why.
            OSError: the connection is lost, silent for too long, or no AMQP 1.0.

        """
        return [performative for performative, _ in await self._read(kernel)]

    async def _read(self, kernel: Arriving | None) -> list[Frame]:
        """The frames of the next bytes, without the transfers that the kernel is given."""
        try:
            data = await self._stream.read(self._silence_max_s)
        except TimeoutError:
            raise ConnectionResetError("the broker is silent") from None
        found: list[Frame] = []
        try:
            used = self._split(data, kernel, found)
        except Amqp10Error as error:
            raise ConnectionResetError(error.message) from None
        self._stream.used(used)
        return found

    def _split(self, data: memoryview, kernel: Arriving | None, found: list[Frame]) -> int:
        at, end = 0, len(data)
        while True:
            if kernel is not None:
                at = kernel.take(data, at)
                self._next_in = (self._next_in + kernel.frames) & _SERIAL
            frame = read_frame(data, at, end, FRAME_MAX)
            if frame is None:
                return at
            at, kind, _, performative, payload = frame
            if kind != AMQP or performative is None:
                continue
            self._look_at(performative)
            if isinstance(performative, Transfer):
                self._next_in = (self._next_in + 1) & _SERIAL
                if kernel is not None:
                    more, aborted = performative.more, performative.aborted
                    kernel.part(performative.delivery_id or 0, more=more, aborted=aborted, payload=payload)
                continue
            found.append((performative, payload))

    def _look_at(self, performative: Any) -> None:
        if isinstance(performative, Flow):
            first = 0 if performative.next_incoming_id is None else performative.next_incoming_id
            self._window = performative.incoming_window - ((self._next_out - first) & _SERIAL)
        elif isinstance(performative, Detach | End | Close):
            raise Closed(_told(performative.error, type(performative).__name__.lower()))

    async def _expect(self, header: bytes) -> None:
        """The broker's own header."""
        data = b""
        while len(data) < len(header):
            data = bytes(await self._stream.read())[: len(header)]
        if data != header:
            raise Closed("the broker does not speak AMQP 1.0 there")
        self._stream.used(len(header), more=True)

    async def _next(self, wanted: type[Any]) -> Any:
        """The next frame of the login."""
        while True:
            data = await self._stream.read()
            frame = read_frame(data, 0, len(data), FRAME_MAX)
            if frame is not None:
                self._stream.used(frame[0], more=True)
                performative = frame[3]
                if isinstance(performative, wanted):
                    return performative
                if performative is not None:
                    self._look_at(performative)
                    told = f"{type(performative).__name__} instead of {wanted.__name__}"
                    raise ConnectionResetError(f"the broker sent {told}")


def _told(error: Error | None, what: str) -> str:
    if error is None:
        return f"the broker ended it with {what}"
    return f"the broker closed with {error.condition}: {error.description or ''}".rstrip(": ")
