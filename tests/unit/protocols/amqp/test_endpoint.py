"""The endpoint over real sockets on uvloop: timers, logins, heartbeats, shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Literal

import pamqp.frame
import pytest
import uvloop
from pamqp import commands
from pamqp.base import Frame
from pamqp.heartbeat import Heartbeat

from penstock.config import Address
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.protocols.amqp.endpoint import serve
from penstock.protocols.amqp.session.handshake import HEADER
from penstock.protocols.listening.front_end import FrontEnd
from penstock.protocols.net import connection
from penstock.protocols.net.admitting.addresses import is_loopback
from penstock.router.broker import Broker
from penstock.subscriptions.tick.tick import Tick


@dataclass
class Amqp:
    address: Address = field(default_factory=lambda: Address("127.0.0.1", 0))
    tls_address: Address | None = None
    ws_listen: str = ""
    wss_listen: str = ""
    ws_paths: tuple[str, ...] = ()
    ws_origins: tuple[str, ...] = ()
    frame_max: int = 131072
    channel_max: int = 2047
    heartbeat_s: int = 1
    max_message_bytes: int = 1 << 20
    allow_anonymous: Literal["loopback"] | bool = False


@dataclass
class Server:
    output_buffer_bytes: int = 1 << 20
    max_connections: int = 0
    login_timeout_s: float = 10.0
    output_stuck_s: float = 30.0


@dataclass
class Stack:
    listener: FrontEnd
    broker: Broker
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def client(self) -> Peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        self.writers.append(writer)
        return Peer(reader, writer)

    async def connection_from(self, host: str) -> None:
        """Have the only connection come from another address, as a PROXY header would."""
        while not self.listener.connections:
            await asyncio.sleep(0.001)
        (connection,) = self.listener.connections
        connection.came_from(host, 1)


class Peer:
    """A client that sends what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, channel: int, *frames: Frame) -> None:
        self.writer.write(b"".join(pamqp.frame.marshal(frame, channel) for frame in frames))

    async def next(self) -> object:
        """The next frame, or None at the end of the stream."""
        try:
            head = await self.reader.readexactly(7)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        size = int.from_bytes(head[3:], "big")
        return pamqp.frame.unmarshal(head + await self.reader.readexactly(size + 1))[2]

    mechanisms: tuple[str, ...] = ()
    """The mechanisms that the server offered."""

    async def login(self, password: str = "guest", heartbeat: int = 0, mechanism: str = "PLAIN") -> object:
        """Through the handshake; the last frame of the server."""
        self.writer.write(HEADER)
        start = await self.next()
        assert isinstance(start, commands.Connection.Start)
        self.mechanisms = tuple(start.mechanisms.split())
        self.send(
            0,
            commands.Connection.StartOk(
                client_properties={"capabilities": {"authentication_failure_close": True}},
                mechanism=mechanism,
                response=f"\0guest\0{password}" if mechanism == "PLAIN" else "whoever",
            ),
        )
        answer = await self.next()
        if not isinstance(answer, commands.Connection.Tune):
            return answer
        self.send(0, commands.Connection.TuneOk(2047, 131072, heartbeat), commands.Connection.Open("/"))
        return await self.next()


Scenario = Callable[[Stack], Awaitable[None]]


def on_sockets(
    amqp: Amqp | None = None, server: Server | None = None
) -> Callable[[Scenario], Callable[[Path], None]]:
    """Run the scenario against a listening front end."""

    def decorate(scenario: Scenario) -> Callable[[Path], None]:
        @wraps(scenario)
        def test(tmp_path: Path) -> None:
            uvloop.run(main(tmp_path))

        async def main(folder: Path) -> None:
            loop = asyncio.get_running_loop()
            log = Log.open(folder, LogOptions(segment_bytes=1 << 20))
            log.attach(loop.call_soon_threadsafe, loop)
            tick = Tick(log, loop)
            broker = Broker.open(log, tick)
            tick.schedule()
            stack = Stack(await serve(broker, amqp or Amqp(), server or Server(), loop), broker)
            try:
                # Against a hang only: a busy machine may stand still for long.
                async with asyncio.timeout(120):
                    await scenario(stack)
            finally:
                for writer in stack.writers:
                    writer.close()
                await stack.listener.drain(1)
                tick.close()
                broker.close()
                await log.close()

        del test.__wrapped__  # pytest would take the scenario's arguments for fixtures
        return test

    return decorate


@on_sockets()
async def test_a_client_logs_in_and_gets_its_answer(stack: Stack) -> None:
    peer = await stack.client()
    assert isinstance(await peer.login(), commands.Connection.OpenOk)
    peer.send(1, commands.Channel.Open(), commands.Queue.Declare(queue="q", durable=True))
    assert isinstance(await peer.next(), commands.Channel.OpenOk)
    assert isinstance(await peer.next(), commands.Queue.DeclareOk)
    peer.send(0, commands.Connection.Close(200, "bye", 0, 0))
    assert isinstance(await peer.next(), commands.Connection.CloseOk)
    assert await peer.next() is None


@on_sockets()
async def test_a_wrong_password_is_403(stack: Stack) -> None:
    peer = await stack.client()
    answer = await peer.login("wrong")
    assert isinstance(answer, commands.Connection.Close)
    assert answer.reply_code == 403
    peer.send(0, commands.Connection.CloseOk())
    assert await peer.next() is None


@on_sockets(Amqp(allow_anonymous="loopback"))
async def test_a_peer_of_this_machine_needs_no_name_where_that_is_allowed(stack: Stack) -> None:
    peer = await stack.client()
    assert isinstance(await peer.login(mechanism="ANONYMOUS"), commands.Connection.OpenOk)
    assert peer.mechanisms == ("PLAIN", "AMQPLAIN", "ANONYMOUS"), "a client that takes the first has a name"
    (connection,) = stack.listener.connections
    assert connection.user == "guest"


@on_sockets(Amqp(allow_anonymous="loopback"))
async def test_an_anonymous_peer_of_another_machine_is_refused(stack: Stack) -> None:
    peer = await stack.client()
    await stack.connection_from("192.0.2.7")
    answer = await peer.login(mechanism="ANONYMOUS")
    assert isinstance(answer, commands.Connection.Close)
    assert (answer.reply_code, answer.class_id, answer.method_id) == (403, 0, 0)
    assert answer.reply_text == (
        "ACCESS_REFUSED - Login was refused using authentication mechanism ANONYMOUS. "
        "For details see the broker logfile."
    )


@on_sockets(Amqp(allow_anonymous=True))
async def test_anonymous_peers_of_other_machines_are_let_in_when_all_are(stack: Stack) -> None:
    peer = await stack.client()
    await stack.connection_from("192.0.2.7")
    assert isinstance(await peer.login(mechanism="ANONYMOUS"), commands.Connection.OpenOk)


@on_sockets()
async def test_by_default_everybody_has_a_name(stack: Stack) -> None:
    peer = await stack.client()
    answer = await peer.login(mechanism="ANONYMOUS")
    assert peer.mechanisms == ("PLAIN", "AMQPLAIN")
    assert isinstance(answer, commands.Connection.Close)
    assert (answer.reply_code, answer.reply_text) == (
        503,
        "COMMAND_INVALID - unknown authentication mechanism 'ANONYMOUS'",
    )


@on_sockets(server=Server(login_timeout_s=0.1))
async def test_a_handshake_that_stops_is_cut(stack: Stack) -> None:
    silent, half = await stack.client(), await stack.client()
    half.writer.write(HEADER)
    assert await silent.next() is None
    assert isinstance(await half.next(), commands.Connection.Start)
    assert await half.next() is None


@on_sockets()
async def test_a_peer_gets_heartbeats(stack: Stack) -> None:
    peer = await stack.client()
    await peer.login(heartbeat=1)

    async def beat() -> None:
        while True:  # often: a machine that stood still is no silent peer
            peer.send(0, Heartbeat())
            await asyncio.sleep(0.02)

    beating = asyncio.create_task(beat())
    for _ in range(2):
        assert isinstance(await peer.next(), Heartbeat)
    beating.cancel()


@on_sockets()
async def test_a_peer_without_heartbeats_is_cut(stack: Stack) -> None:
    peer = await stack.client()
    await peer.login(heartbeat=1)
    (connection,) = stack.listener.connections
    while (frame := await peer.next()) is not None:
        assert isinstance(frame, Heartbeat)
    assert connection.reason.startswith("missed heartbeats")


@on_sockets()
async def test_heartbeats_that_came_while_the_gateway_stood_still_count(stack: Stack) -> None:
    peer = await stack.client()
    await peer.login(heartbeat=1)
    bell, listening = socket.socketpair()
    loop = asyncio.get_running_loop()

    def stand_still() -> None:
        # In the turn of a socket: the timers come next, and what the peer sends now is not read before.
        loop.remove_reader(listening)
        os.write(peer.writer.get_extra_info("socket").fileno(), pamqp.frame.marshal(Heartbeat(), 0))
        time.sleep(2.5)

    with bell, listening:
        loop.add_reader(listening, stand_still)
        bell.send(b"!")
        assert isinstance(await peer.next(), Heartbeat)
        assert isinstance(await peer.next(), Heartbeat)


@on_sockets()
async def test_shutdown_says_320_and_waits_for_the_answer(stack: Stack) -> None:
    peer = await stack.client()
    await peer.login()
    peer.send(1, commands.Channel.Open(), commands.Queue.Declare(queue="mine", exclusive=True))
    await peer.next()
    await peer.next()
    draining = asyncio.ensure_future(stack.listener.drain(10))
    close = await peer.next()
    assert isinstance(close, commands.Connection.Close)
    assert close.reply_code == 320
    assert "mine" not in stack.broker.vhost("/").queues
    assert not draining.done()
    peer.send(0, commands.Connection.CloseOk())
    await draining
    assert not stack.listener.connections


@pytest.mark.parametrize("wait_s", [3600.0, 0.0])
def test_a_client_that_said_goodbye_closes_first(
    wait_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some clients take the end of the stream for a lost connection when it comes with the close-ok."""
    monkeypatch.setattr(connection, "_GOODBYE_S", wait_s)

    @on_sockets()
    async def goodbye(stack: Stack) -> None:
        peer = await stack.client()
        assert isinstance(await peer.login(), commands.Connection.OpenOk)
        (served,) = stack.listener.connections
        peer.send(0, commands.Connection.Close(200, "bye", 0, 0))
        assert isinstance(await peer.next(), commands.Connection.CloseOk)
        if wait_s:
            assert served.transport is not None and not served.transport.is_closing()
            peer.writer.close()
        else:
            assert await peer.next() is None, "one that stays is closed"
        while stack.listener.connections:
            await asyncio.sleep(0.001)

    goodbye(tmp_path)


@on_sockets()
async def test_a_lost_connection_gives_back_its_exclusive_queue_at_once(stack: Stack) -> None:
    peer = await stack.client()
    await peer.login()
    peer.send(1, commands.Channel.Open(), commands.Queue.Declare(queue="mine", exclusive=True))
    await peer.next()
    await peer.next()
    assert "mine" in stack.broker.vhost("/").queues
    peer.writer.transport.abort()
    while stack.listener.connections:
        await asyncio.sleep(0.001)
    assert "mine" not in stack.broker.vhost("/").queues


@on_sockets()
async def test_a_slow_reader_is_not_sent_more_than_the_mark(stack: Stack) -> None:
    """10 MB wait for a consumer that reads nothing: its connection holds little, later it gets all of it."""
    peer = await stack.client()
    await peer.login()
    peer.send(1, commands.Channel.Open(), commands.Queue.Declare(queue="q"))
    await peer.next()
    await peer.next()
    peer.send(1, commands.Basic.Consume(queue="q", no_ack=True))
    assert isinstance(await peer.next(), commands.Basic.ConsumeOk)
    body = bytes(10_000)
    message = [
        commands.Basic.Publish(exchange="", routing_key="q"),
        pamqp.header.ContentHeader(0, len(body), commands.Basic.Properties()),
        pamqp.body.ContentBody(body),
    ]
    other = await stack.client()
    await other.login()
    other.send(1, commands.Channel.Open())
    await other.next()
    for _ in range(1000):
        other.send(1, *message)  # type: ignore[arg-type]
        await other.writer.drain()
    consumer = next(c for c in stack.listener.connections if c.message_counts()[0] == 0)
    publisher = next(c for c in stack.listener.connections if c is not consumer)
    while publisher.message_counts()[0] < 1000:
        await asyncio.sleep(0.001)
    assert consumer.transport is not None
    assert consumer.transport.get_write_buffer_size() + consumer.out.size < (3 << 20)
    received = 0
    while received < 1000:
        received += isinstance(await peer.next(), pamqp.body.ContentBody)


@on_sockets()
async def test_the_lines_of_a_connection_name_who_and_why(stack: Stack) -> None:
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger = logging.getLogger("penstock.amqp")
    handler = Keep()
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    try:
        peer = await stack.client()
        await peer.login()
        peer.send(0, commands.Connection.Close(200, "done", 0, 0))
        await peer.next()
        while stack.listener.connections:
            await asyncio.sleep(0.001)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    assert [record.getMessage() for record in records] == ["connection opened", "connection closed"]
    opened, closed = (record.__dict__["penstock_fields"] for record in records)
    assert opened["user"] == "guest" and opened["vhost"] == "/"
    assert closed["reason"] == "the client closed: 200 done"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("", False),
    ],
)
def test_loopback_is_judged_by_the_address(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
