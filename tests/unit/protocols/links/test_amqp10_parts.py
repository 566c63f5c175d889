"""The target of a shovel of AMQP 1.0 over a connection, to a broker that takes few transfers at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from penstock.protocols.amqp10.codec.frames import HEADER, SASL, SASL_HEADER, encode_frame, read_frame
from penstock.protocols.amqp10.codec.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Disposition,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
)
from penstock.protocols.links.amqp._in_flight import InFlight
from penstock.protocols.links.amqp.place import Place
from penstock.protocols.links.amqp10._messages import Messages
from penstock.protocols.links.amqp10.target import Sender
from penstock.protocols.links.amqp10.wire import Connection

_FRAME_MAX = 512
_MOST = 1 << 16


class Broker:
    """Takes `window` transfers, asks for a flow, and gives room for as many again when it came.

    Transfers beyond the window stand before that flow.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.transfers: list[tuple[Transfer, bytes]] = []
        self.room = window
        """Transfers that may come."""
        self.largest = 0
        """Of the frames, in bytes."""
        self.failure: Exception | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._log_in(reader, writer)
            await self._talk(reader, writer)
        except Exception as error:  # the test raises it
            self.failure = error
        finally:
            writer.close()

    async def _log_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(8) == SASL_HEADER
        writer.write(SASL_HEADER + encode_frame(0, SaslMechanisms(("PLAIN",)), kind=SASL))
        frames = self._frames(reader)
        assert isinstance((await anext(frames))[0], SaslInit)
        writer.write(encode_frame(0, SaslOutcome(0), kind=SASL))
        assert await reader.readexactly(8) == HEADER
        writer.write(HEADER)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = 0
        async for performative, payload in self._frames(reader):
            if isinstance(performative, Open):
                writer.write(encode_frame(0, Open("few", max_frame_size=_FRAME_MAX)))
            elif isinstance(performative, Begin):
                writer.write(encode_frame(0, Begin(0, 0, self.window, _MOST)))
            elif isinstance(performative, Attach):
                answer = Attach("s", 0, True, source=performative.source, target=performative.target)
                writer.write(encode_frame(0, answer) + self._flow())
            elif isinstance(performative, Transfer):
                self.transfers.append((performative, payload))
                self.room -= 1
                assert self.room >= 0, "more transfers than there is a window for"
                if not performative.more:
                    writer.write(encode_frame(0, Disposition(True, accepted, accepted, True, Accepted())))
                    accepted += 1
                if self.room == 0:
                    writer.write(self._flow(echo=True))
            elif isinstance(performative, Flow):
                self.room = self.window
                writer.write(self._flow())
            elif isinstance(performative, Close):
                writer.write(encode_frame(0, Close()))
                return

    def _flow(self, *, echo: bool = False) -> bytes:
        came = len(self.transfers)
        whole = sum(not transfer.more for transfer, _ in self.transfers)
        begun = whole + bool(self.transfers and self.transfers[-1][0].more)
        flow = Flow(came, self.room, 0, _MOST, 0, delivery_count=begun, link_credit=10, echo=echo)
        return encode_frame(0, flow)

    async def _frames(self, reader: asyncio.StreamReader) -> AsyncIterator[tuple[Any, bytes]]:
        while head := await reader.read(4):
            head += await reader.readexactly(4 - len(head))
            size = int.from_bytes(head, "big")
            self.largest = max(self.largest, size)
            data = head + await reader.readexactly(size - 4)
            frame = read_frame(data, 0, size, 1 << 20)
            assert frame is not None
            if frame[3] is not None:
                yield frame[3], frame[4]


async def send(broker: Broker, payloads: list[bytes]) -> tuple[int, int]:
    """Send messages; the last one that is accepted with all before it, and how many these are."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    in_flight, messages = InFlight(), Messages()
    async with server, asyncio.timeout(60):
        place = Place.tcp("127.0.0.1", port, "guest", "guest")
        async with await Connection.open(place, "/", product="test") as connection:
            sender = Sender(connection, "s", "q", settled=False)
            await sender.attach()
            for payload in payloads:
                messages.append(payload)
            in_flight.published(1, len(payloads))

            async def take() -> None:
                while in_flight:
                    await sender.take(in_flight)
                    settled.append(in_flight.settled())

            settled: list[tuple[int, int]] = []
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(take())
                tasks.create_task(sender.publish(messages))
    if broker.failure is not None:
        raise broker.failure
    return max(tag for tag, _ in settled), sum(count for _, count in settled)


def test_a_message_that_is_larger_than_the_window_goes_in_parts() -> None:
    broker = Broker(window=2)
    large = bytes(number & 0xFF for number in range(7 * _FRAME_MAX + 5))
    payloads = [b"first", large, b"last", large[:_FRAME_MAX]]
    assert asyncio.run(send(broker, payloads)) == (4, 4)
    messages: list[bytes] = []
    ids: list[int | None] = []
    part = b""
    for transfer, payload in broker.transfers:
        if not part:
            ids.append(transfer.delivery_id)
            assert transfer.delivery_tag is not None
        else:
            assert transfer.delivery_id in (None, ids[-1])
        part += payload
        if not transfer.more:
            messages.append(part)
            part = b""
    assert messages == payloads and ids == [0, 1, 2, 3]
    assert len(broker.transfers) > 8 and broker.largest <= _FRAME_MAX


def test_a_window_of_one_transfer_is_enough() -> None:
    broker = Broker(window=1)
    payloads = [b"x" * (3 * _FRAME_MAX), b"y"]
    assert asyncio.run(send(broker, payloads)) == (2, 2)
    assert b"".join(payload for _, payload in broker.transfers) == b"".join(payloads)
