"""The shared connection over real sockets: cut streams, large packets, limits, marks, the two lines."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
from contextlib import ExitStack, suppress

import pytest
import uvloop

from penstock.protocols.listening.listener import listening_socket
from penstock.protocols.net.admitting._login_timeout import LoginTimes
from penstock.protocols.net.connection import ARENA
from penstock.protocols.net.connection_context import Limits
from tests.support.echo import Echo, packet
from tests.support.limits import LIMIT_S
from tests.support.stack import Stack


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait until the server closed, with or without a reset."""
    with suppress(ConnectionError):
        await reader.read()


async def test_packets_cut_anywhere_arrive_whole_and_in_order() -> None:
    async with Stack() as stack:
        reader, writer = await stack.client()
        stream = packet(b"login") + b"".join(packet(bytes([i]) * i) for i in range(40))
        for i in range(len(stream)):
            writer.write(stream[i : i + 1])
            await writer.drain()
            await asyncio.sleep(0)
        await reader.readexactly(4 * 41)
        assert stack.made[0].packets == [b"login"] + [bytes([i]) * i for i in range(40)]


async def test_the_words_that_a_client_said_before_it_was_accepted_are_read_with_it() -> None:
    async with Stack() as stack:
        with socket.create_connection(("127.0.0.1", stack.listener.port)) as client:
            client.sendall(packet(b"login"))
            stack.listener._accept()
            assert [echo.packets for echo in stack.made] == [[b"login"]]
            client.setblocking(False)
            assert client.recv(100) == (9).to_bytes(4, "big")


async def test_two_connections_share_the_arena_without_mixing() -> None:
    async with Stack() as stack:
        clients = [await stack.client() for _ in range(2)]
        bodies = [bytes([65 + n]) * 50_000 for n in range(2)]
        for _reader, writer in clients:
            writer.write(packet(b"login"))
        for start in range(0, 50_004, 1000):
            for (_, writer), body in zip(clients, bodies, strict=True):
                writer.write(packet(body)[start : start + 1000])
                await writer.drain()
                await asyncio.sleep(0)
        for reader, _ in clients:
            await reader.readexactly(8)
        assert [echo.packets[1] for echo in stack.made] == bodies


async def test_a_packet_larger_than_the_arena_is_read_whole_in_one_call() -> None:
    async with Stack() as stack:
        reader, writer = await stack.client()
        body = bytes(range(256)) * 8192  # 2 MiB
        assert len(body) > 4 * len(ARENA)
        writer.write(packet(b"login"))
        await reader.readexactly(4)
        before = stack.made[0].calls
        writer.write(packet(body) + packet(b"after"))
        await reader.readexactly(8)
        assert stack.made[0].packets == [b"login", body, b"after"]
        # One call that finds out its size, one when it is there; a leftover of the next packet may need more.
        assert stack.made[0].calls - before <= 4


async def test_the_buffer_of_a_large_packet_is_kept_for_the_next_and_given_up_in_silence() -> None:
    sizes = [
        300_000,
        300_000,
        300_001,
        299_000,
        10,
        300_000,
        900_000,
        5,
        200_000,
        400_000,
        3_000_000,
        300_000,
    ]
    bodies = [random.Random(n).randbytes(size) for n, size in enumerate(sizes)]
    async with Stack() as stack:
        reader, writer = await stack.client()
        writer.write(packet(b"login"))
        await reader.readexactly(4)
        echo = stack.made[0]
        for body in bodies:  # one by one, and then all at once
            writer.write(packet(body))
            await reader.readexactly(4)
        assert echo.input_bytes() == 0
        assert echo.input_buffer_bytes() >= 300_000
        echo.check(echo.last_read_at + 60)
        assert echo.input_buffer_bytes() == 0
        writer.write(b"".join(map(packet, bodies)))
        await reader.readexactly(4 * len(bodies))
        assert echo.packets[1:] == bodies + bodies


async def test_an_announced_size_takes_no_memory_before_its_bytes_arrive() -> None:
    async with Stack() as stack:
        reader, writer = await stack.client()
        writer.write(packet(b"login"))
        await reader.readexactly(4)
        writer.write((1 << 30).to_bytes(4, "big") + b"few")
        await asyncio.sleep(0.05)
        assert stack.made[0].input_bytes() == 7
        assert len(ARENA) < stack.made[0].input_buffer_bytes() <= 2 * len(ARENA)


async def test_a_client_that_says_nothing_is_dropped_in_time() -> None:
    async with Stack(Limits(greeting_timeout_s=0.05)) as stack:
        reader, _writer = await stack.client()
        assert await reader.read() == b""
        assert stack.made[0].reason == "no complete first packet in time"


def test_a_loop_that_stood_still_reads_before_it_judges_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    on_open = Echo.on_open

    def slowly(echo: Echo) -> None:
        on_open(echo)
        time.sleep(0.7)  # the process stands still, with the first packet in the socket

    async def scenario() -> None:
        async with Stack(Limits(greeting_timeout_s=0.3)) as stack:
            client = socket.create_connection(("127.0.0.1", stack.listener.port))
            client.sendall(packet(b"login"))
            reader, writer = await asyncio.open_connection(sock=client)
            stack.writers.append(writer)
            await reader.readexactly(4)

    monkeypatch.setattr(Echo, "on_open", slowly)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # whose timers come before sockets
        runner.run(scenario())


@pytest.mark.parametrize("judged_s", [60.0, 0.0])
async def test_the_time_in_which_a_login_is_judged_is_not_the_clients(judged_s: float) -> None:
    async with Stack(Limits(login_timeout_s=0.02)) as stack:
        logins = LoginTimes(stack.context.loop, judged_s=judged_s)
        object.__setattr__(stack.context, "logins", logins)  # a connection has those of its beginning
        reader, writer = await stack.client()
        writer.write(packet(b"first"))
        await reader.readexactly(4)
        echo = stack.made[-1]
        echo.pause_reading("login")  # as whoever verifies it in a thread does
        echo.greeted()
        if judged_s:
            await asyncio.sleep(0.2)
            assert not echo.closing
            echo.resume_reading("login")  # and it was refused
        await ended(reader)
        assert echo.reason == "the login was not complete in time"
        assert len(logins) == 0


async def test_the_time_in_which_a_clients_bytes_wait_to_be_read_is_not_the_clients() -> None:
    async with Stack(Limits(greeting_timeout_s=60.0)) as stack:
        reader, writer = await stack.client()
        while not stack.made:
            await asyncio.sleep(0)
        echo = stack.made[-1]
        echo.pause_reading("turn")  # as when thousands of others are read first
        writer.write(packet(b"login"))
        while not echo.unread:
            await asyncio.sleep(0.01)
        echo.context.logins.begin(echo, "no complete first packet", 0.01)
        await asyncio.sleep(0.2)
        assert not echo.closing
        echo.resume_reading("turn")
        await reader.readexactly(4)
        assert echo.packets == [b"login"]


async def test_too_many_bytes_before_the_login_end_the_connection() -> None:
    async with Stack(Limits(login_bytes=1000)) as stack:
        reader, writer = await stack.client()
        writer.write(packet(b"x" * 1001))
        await ended(reader)
        assert stack.made[0].reason == "more than 1000 bytes before the login"


async def test_bytes_behind_the_login_in_one_read_are_not_counted() -> None:
    async with Stack(Limits(login_bytes=1000)) as stack:
        reader, writer = await stack.client()
        writer.write(packet(b"login") + packet(b"x" * 100_000))
        await reader.readexactly(8)
        assert stack.made[0].packets == [b"login", b"x" * 100_000]


async def test_an_internal_error_ends_one_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with Stack() as stack:
        good_reader, good = await stack.client()
        reader, writer = await stack.client()
        writer.write(packet(b"bug"))
        await ended(reader)
        assert "internal error" in caplog.text
        good.write(packet(b"fine"))
        await good_reader.readexactly(4)


async def test_a_connection_writes_two_lines_at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.test")
    async with Stack() as stack:
        reader, writer = await stack.client()
        writer.write(packet(b"login"))
        await reader.readexactly(4)
        writer.close()
        await stack.listener.drain(5)
        messages = [record.message for record in caplog.records if record.levelno == logging.INFO]
        assert messages == ["connection opened", "connection closed"]


async def test_output_above_the_mark_leaves_no_room_until_the_peer_reads() -> None:
    async with Stack(Limits(output_high_bytes=100_000)) as stack:
        reader, writer = await stack.client()
        writer.write(packet(b"login"))
        while not stack.made or stack.made[0].user is None:
            await asyncio.sleep(0.001)
        echo = stack.made[0]
        woken = asyncio.Event()
        echo.on_writable = woken.set  # type: ignore[method-assign]
        echo.out.write(bytes(100_000))
        assert echo.output_capacity() == 0
        echo.flush()
        while echo.writable:
            echo.out.write(bytes(100_000))
            echo.flush()
            await asyncio.sleep(0)
        woken.clear()
        assert echo.output_capacity() == 0
        async with asyncio.timeout(LIMIT_S):
            while not woken.is_set():
                await reader.read(1 << 20)
        assert echo.output_capacity() == 100_000


async def test_a_peer_that_sends_and_never_reads_is_not_read_and_then_dropped() -> None:
    async with Stack(Limits(output_high_bytes=1000, output_stuck_s=0.0)) as stack:
        echo, writer = await stack.stuck()
        writer.write(packet(b"more"))
        await asyncio.sleep(0.02)
        assert echo.packets == [b"login"]
        echo.check(echo.loop.time())
        echo.check(echo.loop.time() + 1)
        assert "took none of its output" in echo.reason


async def test_our_own_output_is_no_sign_of_life_of_the_peer() -> None:
    async with Stack(Limits(output_high_bytes=1000, output_stuck_s=5.0)) as stack:
        echo, _ = await stack.stuck()
        now = echo.loop.time()
        for second in range(1, 5):
            echo.out.write(b"heartbeat")
            echo.flush()
            echo.check(now + second)
            assert not echo.closing
        echo.check(now + 6)
        assert "took none of its output for 5 s" in echo.reason


async def test_a_peer_that_takes_a_little_is_not_dropped() -> None:
    async with Stack(Limits(output_high_bytes=1000, output_stuck_s=5.0)) as stack:
        reader, writer = await stack.client()
        writer.write(packet(b"login"))
        await reader.readexactly(4)
        echo = stack.made[0]
        while not echo.reading_paused:
            echo.out.write(bytes(1_000_000))
            echo.flush()
        now = echo.loop.time()
        for second in range(1, 30):
            waiting = echo.transport.get_write_buffer_size() if echo.transport else 0
            async with asyncio.timeout(LIMIT_S):
                while echo.transport is not None and 0 < waiting == echo.transport.get_write_buffer_size():
                    await reader.read(65536)
            echo.check(now + second)
            assert not echo.closing


async def test_a_peer_that_is_merely_behind_is_read_on() -> None:
    async with Stack(Limits(output_high_bytes=100_000, output_stuck_s=0.0)) as stack:
        reader, writer = await stack.client()
        writer.write(packet(b"login"))
        await reader.readexactly(4)
        echo = stack.made[0]
        transport: asyncio.Transport = writer.transport
        transport.pause_reading()
        while echo.writable:
            echo.out.write(bytes(50_000))
            echo.flush()
            await asyncio.sleep(0)
        echo.check(echo.loop.time() + 100)
        writer.write(packet(b"more"))
        async with asyncio.timeout(LIMIT_S):
            while echo.packets != [b"login", b"more"]:
                await asyncio.sleep(0.001)
        transport.resume_reading()


async def test_a_held_connection_is_not_read_until_every_reason_is_released() -> None:
    async with Stack() as stack:
        reader, writer = await stack.client()
        writer.write(packet(b"login"))
        await reader.readexactly(4)
        echo = stack.made[0]
        echo.pause_reading("a")
        echo.pause_reading("b")
        writer.write(packet(b"x"))
        echo.resume_reading("a")
        await asyncio.sleep(0.02)
        assert echo.packets == [b"login"]
        echo.resume_reading("b")
        await reader.readexactly(4)
        assert echo.packets == [b"login", b"x"]


async def test_connections_above_the_limit_are_closed_at_once() -> None:
    async with Stack(max_connections=1) as stack:
        await stack.client()
        reader, _ = await stack.client()
        assert await reader.read() == b""
        assert stack.listener.refused.total() == 1


async def test_all_who_wait_are_accepted_before_the_first_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    count, waiting = 700, []
    listening = listening_socket("amqp", "127.0.0.1", 0)

    def on_open(_: Echo) -> None:
        # Of a listening socket, tcpi_unacked is the number of connections that wait to be accepted.
        waiting.append(listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)[24:28])

    monkeypatch.setattr(Echo, "on_open", on_open)
    async with Stack() as stack:
        stack.listener.stop_accepting()
        with ExitStack() as clients:
            for _ in range(count):
                clients.enter_context(socket.create_connection(listening.getsockname()))
            stack.listener.reopen(listening)
            async with asyncio.timeout(LIMIT_S):
                while len(waiting) < count:
                    await asyncio.sleep(0.001)
    assert waiting[0] == bytes(4)


async def test_those_who_wait_to_be_served_are_closed_when_accepting_stops() -> None:
    count = 700
    async with Stack() as stack:
        with ExitStack() as stacked:
            address = ("127.0.0.1", stack.listener.port)
            clients = [stacked.enter_context(socket.create_connection(address)) for _ in range(count)]
            async with asyncio.timeout(LIMIT_S):
                while not stack.made:
                    await asyncio.sleep(0)
            served = len(stack.made)
            assert 0 < served < count
            stack.listener.stop_accepting()
            ends = [client.recv(1) for client in clients[served:]]
    assert ends == [b""] * (count - served)


async def test_drain_cuts_what_does_not_go() -> None:
    async with Stack() as stack:
        reader, writer = await stack.client()
        writer.write(packet(b"login"))
        await reader.readexactly(4)
        stack.made[0].on_shutdown = lambda: None  # type: ignore[method-assign]
        await stack.listener.drain(0.05)
        assert not stack.listener.connections
        assert "did not close in time" in stack.made[0].reason


def test_a_taken_port_is_an_error_with_a_remedy() -> None:
    from penstock.errors import StartError

    taken = listening_socket("amqp", "127.0.0.1", 0)
    try:
        with pytest.raises(StartError, match="taken by another process"):
            listening_socket("amqp", "127.0.0.1", taken.getsockname()[1])
    finally:
        taken.close()
