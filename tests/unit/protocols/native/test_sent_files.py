"""Batches that go from the log's files to the socket: over real sockets, to receivers of every kind."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import json
import mmap
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

import penstock
import penstock.protocols.net.connection as connections
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.log_core.reading.reader import Reader
from penstock.log_core.segments._segment_file import count_pages
from penstock.protocols.native.codec import kinds
from penstock.protocols.native.endpoint import serve
from penstock.protocols.native.options import NativeOptions
from penstock.protocols.net.process_context import ProcessContext
from penstock.protocols.tls.contexts import Tls, TlsOptions
from penstock.router.broker import Broker
from penstock.subscriptions.tick.tick import Tick
from tests.reference import native_frames as wire
from tests.support.certificates import Authority
from tests.support.logs import Unsynced, files_made

LIMIT_S = 120.0
"""Against a hang only."""
BODIES = [b"%d %s" % (i, b"x" * 1000) for i in range(12_800)]
"""13 MB: more than sockets hold."""
BATCH = 64
"""Messages of a batch: about 64 KiB."""


class Server:
    output_buffer_bytes = 1 << 20
    max_connections = 0
    login_timeout_s = 10.0
    output_stuck_s = 600.0


class Stack:
    """A native front end over a log of small segments, hardly any of it in memory."""

    def __init__(self, folder: Path, log: Log, broker: Broker, tick: Tick, port: int, front_end: Any) -> None:
        self.folder, self.log, self.broker, self.tick, self.port = folder, log, broker, tick, port
        self.front_end = front_end

    async def fill(self) -> None:
        async with (
            penstock.connect(f"penstock://127.0.0.1:{self.port}") as client,
            client.producer("t", batch_messages=BATCH, batch_bytes=1 << 20) as producer,
        ):
            for at in range(0, len(BODIES), BATCH):
                await producer.send_many(BODIES[at : at + BATCH])

    def segments(self) -> list[Path]:
        return sorted((self.folder / "shard-000" / "wal").glob("*.wal"))

    def opened(self) -> int:
        """Descriptors of segments that this process has."""
        links = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink(f"/proc/self/fd/{fd}"))
            except OSError:  # that of the listing itself
                continue
        return sum(str(self.folder) in link and ".wal" in link for link in links)

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def taker_of(port: int, **how: Any) -> AsyncIterator[Taker]:
    taker = await asyncio.to_thread(Taker, port, **how)
    try:
        yield taker
    finally:
        taker.socket.close()


def kept_pages(path: Path, behind: int = 0) -> float:
    """The share of a file that the page cache still has, told to drop what is behind that byte; what is in a
    socket stays.

    Asks, as the gateway does: a read, even one that does not wait, would bring back what is missing.
    """
    size = path.stat().st_size
    found = (ctypes.c_ubyte * (-(-size // 4096)))()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), behind, 0, os.POSIX_FADV_DONTNEED)
        address = ctypes.c_void_p(libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0))
    assert libc.mincore(address, ctypes.c_size_t(size), found) == 0
    libc.munmap(address, ctypes.c_size_t(size))
    return sum(page & 1 for page in found) / len(found)


class Taker:
    """A client that blocks, in threads: reads the topic from its beginning, as fast as it is told to."""

    def __init__(self, port: int, *, context: ssl.SSLContext | None = None, buffer: int = 0) -> None:
        plain = socket.socket()
        if buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        plain.settimeout(LIMIT_S)
        plain.connect(("127.0.0.1", port))
        self.socket = context.wrap_socket(plain, server_hostname="localhost") if context else plain
        self.got = bytearray()
        hello = {"versions": [1], "capabilities": [kinds.STORED]}
        login = {"mechanism": "PLAIN", "user": "guest", "password": "guest"}
        read = {"do": "read", "handle": 2, "topic": "t", "start": "earliest"}
        self.socket.sendall(
            kinds.PREFACE
            + self.frame(kinds.HELLO, 0, hello)
            + self.frame(kinds.LOGIN, 0, login)
            + self.frame(kinds.REQUEST, 1, read)
            + wire.credit(2, 1 << 30, 1 << 31)
        )

    @staticmethod
    def frame(kind: int, id: int, value: dict[str, Any]) -> bytes:
        return wire.frame(kind, id, json.dumps(value).encode())

    def begin(self) -> None:
        """Take the first bytes of what is delivered, and stop."""
        while len(self.got) < 100_000:
            self.take(10_000)

    def take(self, most: int) -> None:
        some = self.socket.recv(most)
        assert some, "the gateway closed the connection"
        self.got += some

    def bodies(self, most: int = 1 << 18, count: int = len(BODIES)) -> list[bytes]:
        """All that are in the topic, or so many at least."""
        found: list[bytes] = []
        while len(found) < count:
            while len(self.got) < 4 or len(self.got) < 4 + int.from_bytes(self.got[:4], "big"):
                self.take(most)
            size = int.from_bytes(self.got[:4], "big") + 4
            delivery = wire.delivery(self.got[4], bytes(self.got[12:size]))
            del self.got[:size]
            if delivery is not None:
                assert delivery[0] == len(found) + 1
                found += [message["body"] for message in delivery[2]]
        return found


Scenario = Callable[[Stack], Awaitable[None]]


@pytest.fixture(params=["cachestat", "mincore"])
def asked(request: pytest.FixtureRequest) -> Iterator[str]:
    """How the system is asked what it has of a file; the second is for systems without the first."""
    before = count_pages(request.param == "cachestat")
    yield request.param
    count_pages(before)


def run(
    folder: Path, scenario: Scenario, *, shared: ProcessContext | None = None, fill: Scenario = Stack.fill
) -> None:
    """Fill a topic, start anew, and run the scenario."""

    async def stand(scenario: Scenario) -> None:
        loop = asyncio.get_running_loop()
        options = LogOptions(
            segment_bytes=4 << 20,
            tail_cache_bytes=1 << 16,
            read_cache_bytes=1 << 20,
            fsync="never",
            min_free_bytes=0,
            scrub_bytes_per_s=0,
        )
        log = Log.open(folder, options, files=Unsynced())
        files_made(log)  # tests count descriptors
        log.attach(loop.call_soon_threadsafe, loop)
        tick = Tick(log, loop)
        broker = Broker.open(log, tick)
        tick.schedule()
        tls = "127.0.0.1:0" if shared is not None else ""
        native = NativeOptions(listen="127.0.0.1:0", tls_listen=tls)
        front_end = await serve(broker, native, Server(), loop, shared)
        stack = Stack(folder, log, broker, tick, front_end.listeners["native"].port, front_end)
        try:
            async with asyncio.timeout(LIMIT_S):
                await scenario(stack)
        finally:
            await front_end.drain(1)
            tick.close()
            broker.close()
            await log.close()

    uvloop.run(stand(fill))
    uvloop.run(stand(scenario))


@pytest.mark.usefixtures("asked")
def test_data_in_the_page_cache_is_sent_without_a_read(tmp_path: Path) -> None:
    async def scenario(stack: Stack) -> None:
        async with taker_of(stack.port) as taker:
            assert await asyncio.to_thread(taker.bodies) == BODIES
            # The first batches of a segment are read, by the thread that opens it.
            assert stack.log.resident.sent > 8 << 20

    run(tmp_path, scenario)


async def send(stack: Stack, bodies: list[bytes], *counts: int) -> None:
    """These bodies in batches of so many, in turn."""
    at = 0
    async with (
        penstock.connect(f"penstock://127.0.0.1:{stack.port}") as client,
        client.producer("t", batch_messages=BATCH, batch_bytes=1 << 20) as producer,
    ):
        for count in itertools.cycle(counts):
            if at >= len(bodies):
                break
            await producer.send_many(bodies[at : at + count])
            at += count


def test_small_batches_between_large_ones_go_with_them(tmp_path: Path) -> None:
    async def fill(stack: Stack) -> None:
        await send(stack, BODIES, BATCH, 1)

    async def scenario(stack: Stack) -> None:
        async with taker_of(stack.port) as taker:
            assert await asyncio.to_thread(taker.bodies) == BODIES
            assert stack.log.resident.sent > 8 << 20

    run(tmp_path, scenario, fill=fill)


def test_messages_that_came_one_by_one_do_not_go_as_batches(tmp_path: Path) -> None:
    some = BODIES[:6000]

    async def fill(stack: Stack) -> None:
        await send(stack, some, 1)

    async def scenario(stack: Stack) -> None:
        async with taker_of(stack.port) as taker:
            assert await asyncio.to_thread(taker.bodies, count=len(some)) == some
            assert stack.log.resident.sent == stack.log.resident.runs == 0

    run(tmp_path, scenario, fill=fill)


def test_evicted_pages_are_loaded_ahead_of_the_reader(tmp_path: Path) -> None:
    async def scenario(stack: Stack) -> None:
        # Of each segment the beginning stays.
        if min(kept_pages(path, behind=2 << 20) for path in stack.segments()) > 0.7:
            pytest.skip("this file system keeps what it is told to drop from the page cache")
        async with taker_of(stack.port) as taker:
            assert await asyncio.to_thread(taker.bodies) == BODIES
            assert stack.log.resident.brought > 0

    run(tmp_path, scenario)


def test_a_socket_that_takes_little_at_a_time(tmp_path: Path) -> None:
    async def scenario(stack: Stack) -> None:
        async with taker_of(stack.port, buffer=4096) as taker:
            assert await asyncio.to_thread(taker.bodies, 7001) == BODIES
            assert stack.log.resident.sent > 8 << 20

    run(tmp_path, scenario)


@pytest.mark.usefixtures("asked")
def test_a_thread_reads_pages_evicted_while_they_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Callable[[], Any]] = []
    submit = Reader.submit

    def counted(self: Reader, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        loads.append(work)
        submit(self, work, done)

    monkeypatch.setattr(Reader, "submit", counted)

    async def scenario(stack: Stack) -> None:
        async with taker_of(stack.port, buffer=4096) as taker:
            await asyncio.to_thread(taker.begin)
            (connection,) = stack.front_end.connections
            await stack.until(lambda: not connection.writable)
            loads.clear()
            if min(kept_pages(path) for path in stack.segments()) > 0.5:
                pytest.skip("this file system keeps what it is told to drop from the page cache")
            assert await asyncio.to_thread(taker.bodies) == BODIES
            assert any(work.__qualname__ == "load.<locals>.read" for work in loads)

    run(tmp_path, scenario)


def test_a_segment_that_is_deleted_while_it_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_FILES_HELD_S", 1e9)

    async def scenario(stack: Stack) -> None:
        before = stack.opened()
        async with taker_of(stack.port, buffer=4096) as taker:
            await asyncio.to_thread(taker.begin)
            (connection,) = stack.front_end.connections
            await stack.until(lambda: not connection.writable)
            assert stack.log.resident.sent
            for path in stack.segments()[:-1]:
                path.unlink()
            for _ in range(2):
                stack.log.resident.forget()
            assert stack.opened() > before  # what waits keeps its file
            monkeypatch.setattr(connections, "_FILES_HELD_S", 2.0)
            # Not for ever: to a peer that takes nothing, it is sent from memory.
            waiting = connection.transport.get_write_buffer_size()
            now = asyncio.get_running_loop().time()
            for passed in (0, 3):
                connection.check(now + passed)
            await stack.until(lambda: stack.opened() == before)
            assert connection.transport.get_write_buffer_size() == waiting

            found = await asyncio.to_thread(taker.bodies, count=1000)
            assert found == BODIES[: len(found)]

    run(tmp_path, scenario)


def test_a_receiver_that_goes_in_the_middle(tmp_path: Path) -> None:
    async def scenario(stack: Stack) -> None:
        before = stack.opened()
        async with taker_of(stack.port, buffer=4096) as taker:
            await asyncio.to_thread(taker.begin)
            (connection,) = stack.front_end.connections
            await stack.until(lambda: not connection.writable)
            taker.socket.close()
            await stack.until(lambda: not stack.front_end.connections)
            for _ in range(2):
                stack.log.resident.forget()
            assert stack.opened() == before
        async with taker_of(stack.port) as other:
            assert await asyncio.to_thread(other.bodies) == BODIES

    run(tmp_path, scenario)


def test_tls_gets_what_is_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    pair = authority.server("server", "localhost")
    tls = Tls(TlsOptions(cert_file=str(pair.cert), key_file=str(pair.key)))
    context = ssl.create_default_context(cafile=str(authority.file))

    async def scenario(stack: Stack) -> None:
        port = stack.front_end.listeners["natives"].port
        async with taker_of(port, context=context) as taker:
            assert await asyncio.to_thread(taker.bodies) == BODIES
            assert stack.log.resident.sent == 0
            assert stack.log.resident.runs > 0

    run(tmp_path / "data", scenario, shared=ProcessContext(tls=tls))


def test_the_client_passes_over_what_is_damaged(tmp_path: Path) -> None:
    damaged = BATCH * 100

    async def scenario(stack: Stack) -> None:
        for path in stack.segments():
            data = path.read_bytes()
            at = data.find(BODIES[damaged + 7])
            if at >= 0:
                with path.open("r+b") as file:
                    file.seek(at + 500)
                    file.write(b"y")
        rest = BODIES[:damaged] + BODIES[damaged + BATCH :]
        found: list[bytes] = []
        async with (
            penstock.connect(f"penstock://127.0.0.1:{stack.port}") as client,
            client.reader("t", start="earliest") as reader,
        ):
            while len(found) < len(rest):
                found += [message.body for message in await reader.receive_many(1000)]
            assert client.reconnects == 1
        assert found == rest
        assert len(stack.log.damages) == 1
        # Now it is known, nothing of that segment goes out that was not looked at.
        async with (
            penstock.connect(f"penstock://127.0.0.1:{stack.port}") as client,
            client.reader("t", start="earliest") as reader,
        ):
            found = []
            while len(found) < len(rest):
                found += [message.body for message in await reader.receive_many(1000)]
            assert client.reconnects == 0
        assert found == rest

    run(tmp_path, scenario)
