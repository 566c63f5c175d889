"""AMQP without sockets: sessions over a real broker in a temporary folder, spoken to with pamqp.

`World` is the broker; `Client` is one connection, its bytes carried by hand: `send`, then `expect`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic, time
from typing import Any, TypeVar

import pamqp.frame
from pamqp import commands
from pamqp.base import Frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.protocols.amqp.codec.properties import headers_of
from penstock.protocols.amqp.messages.dead_letters import rewrite
from penstock.protocols.amqp.options import AmqpOptions
from penstock.protocols.amqp.session.handshake import HEADER
from penstock.protocols.amqp.session.session import Session
from penstock.protocols.amqp10.messages.annotating import annotated
from penstock.protocols.headers.delay import WORDS
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.router.authorization.identity import Identity
from penstock.router.broker import Broker
from penstock.subscriptions.tick.tick import Tick
from tests.support.queues import Loop

CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}

F = TypeVar("F", bound=Frame)


class World:
    """A broker over a log in `folder`."""

    def __init__(
        self, folder: Path, options: AmqpOptions | None = None, *, clock: Callable[[], float] = time
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self.folder = folder
        self._clock = clock
        self.options = options or AmqpOptions()
        self.skew_s = 0.0
        """How far the broker's clock is ahead."""
        self._open()

    def _open(self) -> None:
        self.loop = Loop()
        options = LogOptions(segment_bytes=1 << 20)
        self.log = Log.open(self.folder, options, clock=lambda: self._clock() + self.skew_s)
        self.tick = Tick(self.log, self.loop)
        self.broker = Broker.open(self.log, self.tick, rewrite=rewrite, delay_words=WORDS)
        self.broker.headers_of = headers_of
        self.broker.annotated = annotated
        self.clients: list[Any] = []
        """Connections, of any version of AMQP."""

    def close(self) -> None:
        for client in self.clients:
            client.session.lost()
        self.tick.close()
        self.broker.close()
        self.log.close_sync()

    def restart(self) -> None:
        """Stop cleanly and start again on the same data; connections are gone."""
        self.close()
        self._open()

    def turn(self) -> None:
        """Let everything happen that can happen without new input: writes, syncs, deliveries."""
        while True:
            self.loop.settle()
            waited = False
            for client in self.clients:
                written, synced = client.session.take_waits()
                if written or synced:
                    self.log.wait_synced(max(written, synced))
                    client.session.durable(True)
                    waited = True
            if not waited:
                return

    def later(self, seconds: float) -> None:
        """So much time goes by."""
        self.skew_s += seconds
        self.loop.advance(seconds)

    def client(self, **options: object) -> Client:
        """A connection with channel 1 open."""
        client = Client(self, **options)  # type: ignore[arg-type]
        client.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
        return client


class Client:
    """One connection."""

    def __init__(
        self,
        world: World,
        *,
        handshake: bool = True,
        frame_max: int = 131072,
        channel_max: int = 2047,
        capabilities: dict[str, bool] | None = None,
        user: str = "guest",
        vhost: str = "/",
    ) -> None:
        self.world = world
        self.user = user
        self.out = OutBuffer()
        self.capacity = 1 << 20
        self.session = Session(
            world.broker,
            world.options,
            self.out,
            version="0.0.0",
            owner=self,
            output_capacity=lambda: self.capacity - self.out.size,
            dirty=lambda: None,
        )
        self.frames: list[tuple[int, object]] = []
        """The received frames not yet read: (channel, frame)."""
        self._input = bytearray()
        self._rest = b""
        world.clients.append(self)
        if handshake:
            self.start(capabilities)
            self.send(0, commands.Connection.TuneOk(channel_max, frame_max, 0))
            self.call(0, commands.Connection.Open(vhost), commands.Connection.OpenOk)

    def start(self, capabilities: dict[str, bool] | None = None) -> None:
        """Up to connection.tune."""
        self.raw(HEADER)
        self.expect(0, commands.Connection.Start)
        known = CAPABILITIES if capabilities is None else capabilities
        self.send(
            0,
            commands.Connection.StartOk(
                client_properties={"capabilities": dict(known)}, response="\0guest\0guest"
            ),
        )
        assert self.session.login is not None and self.session.login.password == b"guest"
        self.session.login = None
        self.session.authenticated(Identity(self.user))
        self.expect(0, commands.Connection.Tune)

    # Sending

    def raw(self, data: bytes, *, cut: int = 0) -> None:
        """Hand over bytes, in pieces of `cut` bytes (0 = at once)."""
        for start in range(0, max(len(data), 1), cut or max(len(data), 1)):
            self._input += data[start : start + (cut or len(data))]
            buffer = bytearray(self._input)
            consumed = self.session.receive(buffer, len(buffer))
            del self._input[:consumed]
        self.world.tick.schedule()

    def send(
        self, channel: int, *frames: Frame | ContentHeader | ContentBody | Heartbeat, cut: int = 0
    ) -> None:
        self.raw(b"".join(pamqp.frame.marshal(frame, channel) for frame in frames), cut=cut)

    def publish(
        self,
        exchange: str,
        key: str,
        body: bytes = b"x",
        *,
        channel: int = 1,
        mandatory: bool = False,
        cut: int = 0,
        **properties: object,
    ) -> None:
        header = ContentHeader(0, len(body), commands.Basic.Properties(**properties))  # type: ignore[arg-type]
        self.send(
            channel,
            commands.Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory),
            header,
            *([ContentBody(body)] if body else []),
            cut=cut,
        )

    # Receiving

    def read(self) -> None:
        """Take apart what the session wrote."""
        self.world.turn()
        data = self._rest + self.out.take()
        while data:
            if data[:4] == b"AMQP":
                self.frames.append((0, data[:8]))
                data = data[8:]
                continue
            used, channel, frame = pamqp.frame.unmarshal(data)
            if frame is None:
                break
            self.frames.append((channel, frame))
            data = data[used:]
        self._rest = data

    def expect(self, channel: int, kind: type[F]) -> F:
        """The next frame, which must be of this kind and on this channel."""
        self.read()
        assert self.frames, f"nothing came, {kind.__name__} was expected"
        number, frame = self.frames.pop(0)
        assert isinstance(frame, kind), f"{kind.__name__} was expected, {frame!r} came"
        assert number == channel
        return frame

    def call(self, channel: int, method: Frame, kind: type[F]) -> F:
        """Send a method; the next frame is its answer."""
        self.send(channel, method)
        return self.expect(channel, kind)

    def message(self, channel: int, kind: type[F]) -> tuple[F, ContentHeader, bytes]:
        """The next frames: a method of this kind with its content."""
        method = self.expect(channel, kind)
        _, header = self.frames.pop(0)
        assert isinstance(header, ContentHeader)
        body = b""
        while len(body) < header.body_size:
            number, piece = self.frames.pop(0)
            assert isinstance(piece, ContentBody) and number == channel
            body += piece.value
        return method, header, body

    def bodies(self, channel: int = 1) -> list[bytes]:
        """The bodies of all deliveries that came; nothing else came."""
        self.read()
        found = []
        while self.frames:
            found.append(self.message(channel, commands.Basic.Deliver)[2])
        return found

    def wait_bodies(self, count: int, channel: int = 1) -> list[bytes]:
        """The bodies of `count` deliveries, which may come from the disk."""
        found: list[bytes] = []
        deadline = monotonic() + 60
        while len(found) < count:
            assert monotonic() < deadline, f"{found} came"
            self.world.tick.schedule()
            found += self.bodies(channel)
        return found

    def nothing(self) -> None:
        """Nothing came."""
        self.read()
        assert self.frames == []
