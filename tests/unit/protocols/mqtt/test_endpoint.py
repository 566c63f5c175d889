"""The TCP endpoint: what needs a loop and sockets; the protocol itself is tested without them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop

from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.protocols.mqtt.endpoint import MqttFrontEnd, serve
from penstock.protocols.mqtt.options import MqttOptions
from penstock.router.broker import Broker
from penstock.subscriptions.tick.tick import Tick
from tests.reference import mqtt_frames as f
from tests.support.limits import LIMIT_S


@dataclass
class Server:
    output_buffer_bytes: int = 1 << 20
    max_connections: int = 0
    login_timeout_s: float = 10.0
    output_stuck_s: float = 30.0


class Client:
    """A socket that reads packets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._rest = b""
        self._packets: list[f.Packet] = []

    @classmethod
    async def open(cls, listener: MqttFrontEnd, first: bytes = b"") -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", listener.port))
        client.writer.write(first)
        return client

    async def packet(self) -> f.Packet | None:
        """The next packet; None = the connection was closed."""
        while not self._packets:
            data = await asyncio.wait_for(self.reader.read(65536), LIMIT_S)
            if not data:
                return None
            self._packets, self._rest = f.split(self._rest + data)
        return self._packets.pop(0)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def start(self, server: Server | None = None, **options: object) -> MqttFrontEnd:
        loop = asyncio.get_running_loop()
        self.log = Log.open(self.folder, LogOptions(segment_bytes=1 << 20))
        self.log.attach(loop.call_soon_threadsafe, loop)
        self.broker = Broker.open(self.log, Tick(self.log, loop))
        settings = MqttOptions(listen="127.0.0.1:0", **options)  # type: ignore[arg-type]
        self.listener = await serve(self.broker, settings, server or Server(), loop)
        return self.listener

    async def stop(self) -> None:
        await self.listener.drain(5)
        self.broker.close()
        await self.log.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "data")
    yield made
    await made.stop()


async def test_a_login_in_another_thread_keeps_the_order(world: World) -> None:
    listener = await world.start()
    behind = f.subscribe(1, ("t", 1)) + f.publish("t", b"1") + f.publish("t", bytes(3000), qos=1, packet_id=1)
    client = await Client.open(listener, f.connect("a", user="guest", password=b"guest") + behind[:-5])
    client.writer.write(behind[-5:])
    assert [(await client.packet()).kind for _ in range(2)] == [2, 9]  # type: ignore[union-attr]
    kinds = sorted([(await client.packet()).kind for _ in range(3)])  # type: ignore[union-attr]
    assert kinds == [3, 3, 4]
    await client.close()


async def test_a_wrong_password_is_refused_and_closed(world: World) -> None:
    client = await Client.open(await world.start(), f.connect("a", user="guest", password=b"wrong"))
    refusal = await client.packet()
    assert refusal is not None and refusal.body == b"\0\4"
    assert await client.packet() is None
    await client.close()


@pytest.mark.parametrize(("allowed", "body"), [("loopback", b"\0\0"), (True, b"\0\0"), (False, b"\0\5")])
async def test_anonymous_access_is_as_configured(world: World, allowed: object, body: bytes) -> None:
    client = await Client.open(await world.start(allow_anonymous=allowed), f.connect("a"))
    connack = await client.packet()
    assert connack is not None and connack.body == body
    await client.close()


async def test_a_packet_larger_than_the_arena_arrives(world: World) -> None:
    client = await Client.open(await world.start(), f.connect("a") + f.subscribe(1, ("t", 0)))
    await client.packet()
    await client.packet()
    payload = bytes(range(256)) * 3900
    client.writer.write(f.publish("t", payload) + f.publish("t", b"after"))
    got = [f.parse_publish(await client.packet(), 4).payload for _ in range(2)]  # type: ignore[arg-type]
    assert got == [payload, b"after"]
    await client.close()


async def test_a_silent_client_is_closed_after_its_keep_alive(world: World) -> None:
    started = time.monotonic()
    client = await Client.open(await world.start(), f.connect("a", version=5, keep_alive=1))
    assert (await client.packet()).kind == 2  # type: ignore[union-attr]
    goodbye = await client.packet()
    assert goodbye == f.Packet(14, 0, b"\x8d")
    assert 1.5 <= time.monotonic() - started < LIMIT_S
    await client.close()


def test_input_that_came_while_the_loop_was_busy_counts_as_a_sign_of_life(tmp_path: Path) -> None:
    """uvloop runs timers right behind reads: a ping that comes during a long one is still unread then."""

    async def run() -> None:
        world = World(tmp_path / "data")
        listener = await world.start()
        client = await Client.open(listener, f.connect("a", version=5, keep_alive=1))
        assert (await client.packet()).kind == 2  # type: ignore[union-attr]

        class Busy(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                client.writer.write(b"\xc0\0")
                time.sleep(2)

        transport, _ = await asyncio.get_running_loop().create_connection(Busy, "127.0.0.1", listener.port)
        transport.write(f.connect("busy"))
        try:
            assert (await client.packet()).kind == 13  # type: ignore[union-attr]
        finally:
            transport.close()
            await client.close()
            await world.stop()

    uvloop.run(run())


async def test_a_client_that_does_not_say_connect_is_closed(world: World) -> None:
    client = await Client.open(await world.start(Server(login_timeout_s=0.2)))
    assert await client.packet() is None
    await client.close()


async def test_a_delayed_will_and_the_end_of_a_session_come_in_time(world: World) -> None:
    listener = await world.start()
    watcher = await Client.open(listener, f.connect("w") + f.subscribe(1, ("will", 0)))
    assert (await watcher.packet()).kind == 2  # type: ignore[union-attr]
    assert (await watcher.packet()).kind == 9  # type: ignore[union-attr]
    client = await Client.open(
        listener,
        f.connect(
            "a",
            version=5,
            clean=False,
            props=b"\x11\0\0\0\x01",
            will=("will", b"gone", 0, False),
            will_props=b"\x18\0\0\0\x05",
        ),
    )
    await client.packet()
    started = time.monotonic()
    await client.close()
    will = await watcher.packet()
    assert will is not None and f.parse_publish(will, 4).payload == b"gone"
    assert 1 <= time.monotonic() - started < LIMIT_S
    async with asyncio.timeout(LIMIT_S):  # the session ends behind its will
        while [c.client_id for c in listener.clients] != ["w"]:
            await asyncio.sleep(0.01)
    await watcher.close()


async def test_a_stop_says_goodbye_and_keeps_sessions(tmp_path: Path) -> None:
    world = World(tmp_path / "data")
    listener = await world.start()
    connect = f.connect("a", version=5, clean=False, props=b"\x11\0\0\x10\0")
    client = await Client.open(listener, connect + f.subscribe(1, ("t", 1), version=5))
    await client.packet()
    await client.packet()
    await world.stop()
    assert await client.packet() == f.Packet(14, 0, b"\x8b")
    assert await client.packet() is None
    await client.close()
    again = World(tmp_path / "data")
    client = await Client.open(await again.start(), connect)
    connack = await client.packet()
    assert connack is not None and connack.body[:2] == b"\1\0"
    await client.close()
    await again.stop()


@pytest.mark.parametrize("user", [None, "guest"])
async def test_a_client_may_publish_much_without_waiting_for_its_connack(
    world: World, user: str | None
) -> None:
    listener = await world.start()
    reader = await Client.open(listener, f.connect("r") + f.subscribe(1, ("t", 0)))
    for kind in (2, 9):
        assert (await reader.packet()).kind == kind  # type: ignore[union-attr]
    login = {} if user is None else {"user": user, "password": b"guest"}
    burst = b"".join(f.publish("t", bytes([i]) * 5000) for i in range(200))
    client = await Client.open(listener, f.connect("a", **login) + burst)  # type: ignore[arg-type]
    got = [f.parse_publish(await reader.packet(), 4).payload[:1] for _ in range(200)]  # type: ignore[arg-type]
    assert got == [bytes([i]) for i in range(200)]
    for each in (reader, client):
        await each.close()


async def test_sockets_are_counted_apart_from_connects(world: World) -> None:
    listener = await world.start()
    silent, client = await Client.open(listener), await Client.open(listener, f.connect("a"))
    assert (await client.packet()).kind == 2  # type: ignore[union-attr]
    counts = listener.counts()
    assert (counts.sockets, counts.connections) == (2, 1)
    for each in (silent, client):
        await each.close()
