"""The transport over real sockets: what is written arrives in order, whatever the socket takes at a time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.protocols.net._poller import poller_of
from penstock.protocols.net._socket import SocketTransport

LIMIT_S = 120.0


class Protocol(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = bytearray(4096)
        self.got = bytearray()
        self.events: list[str] = []
        self.keep_open = False
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self.buffer[:nbytes]
        if b"bug" in self.got:
            raise RuntimeError("a bug")
        self.changed.set()

    def eof_received(self) -> bool:
        self.events.append("eof")
        self.changed.set()
        return self.keep_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    async def until(self, what: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while what not in self.events and what.encode() not in self.got:
                self.changed.clear()
                await self.changed.wait()


class Pair:
    """A transport, its protocol, and the socket at the other end, which blocks."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        ours, self.peer = socket.socketpair()
        ours.setblocking(False)
        self.peer.settimeout(LIMIT_S)
        self.protocol = Protocol()
        self.transport = SocketTransport(self.loop, ours, self.protocol)

    async def end(self) -> Exception | None:
        async with asyncio.timeout(LIMIT_S):
            return await self.protocol.lost


@pytest.fixture
async def pair() -> Any:
    pair = Pair()
    yield pair
    pair.transport.abort()
    await pair.end()
    pair.peer.close()


def chunks() -> Iterator[bytes]:
    for i in range(64):
        yield bytes([i]) * 40_000


async def test_more_than_the_socket_takes_arrives_in_order_and_pauses_the_writer(pair: Pair) -> None:
    for chunk in chunks():
        pair.transport.write(chunk)
    assert pair.transport.get_write_buffer_size() > 65536
    assert pair.protocol.events == ["pause"]
    wanted = b"".join(chunks())
    got = await asyncio.to_thread(read_all, pair.peer, len(wanted))
    assert got == wanted
    await pair.protocol.until("resume")
    assert pair.protocol.events == ["pause", "resume"]
    assert pair.transport.get_write_buffer_size() == 0


def read_all(peer: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        got += peer.recv(65536)
    return bytes(got)


async def test_close_sends_what_waits_then_ends(pair: Pair) -> None:
    for chunk in chunks():
        pair.transport.write(chunk)
    pair.transport.close()
    assert pair.transport.is_closing()
    pair.transport.write(b"too late")
    wanted = b"".join(chunks())
    assert await asyncio.to_thread(read_all, pair.peer, len(wanted)) == wanted
    assert await pair.end() is None
    assert pair.peer.recv(1) == b""


async def test_abort_drops_what_waits(pair: Pair) -> None:
    for chunk in chunks():
        pair.transport.write(chunk)
    pair.transport.abort()
    assert not pair.protocol.lost.done(), "never from inside a call"
    assert await pair.end() is None
    assert pair.transport.get_write_buffer_size() == 0


async def test_nothing_is_read_while_paused(pair: Pair) -> None:
    pair.transport.pause_reading()
    pair.peer.sendall(b"hello")
    for _ in range(20):
        await asyncio.sleep(0)
    assert pair.protocol.got == b""
    pair.transport.resume_reading()
    await pair.protocol.until("hello")


@pytest.mark.parametrize("keep_open", [False, True])
async def test_the_end_of_the_peer(pair: Pair, keep_open: bool) -> None:
    pair.protocol.keep_open = keep_open
    pair.peer.shutdown(socket.SHUT_WR)
    await pair.protocol.until("eof")
    if keep_open:
        pair.transport.write(b"still here")
        assert pair.peer.recv(100) == b"still here"
    else:
        assert await pair.end() is None


async def test_a_peer_that_went_away_while_output_waits(pair: Pair) -> None:
    pair.transport.pause_reading()
    for chunk in chunks():
        pair.transport.write(chunk)
    pair.peer.close()
    assert isinstance(await pair.end(), OSError)


@pytest.mark.parametrize("waits", [False, True])
async def test_the_last_words_of_a_peer_count_though_a_write_finds_it_gone(pair: Pair, waits: bool) -> None:
    """More than a read takes; nobody is called back inside the write."""
    if waits:
        for chunk in chunks():
            pair.transport.write(chunk)
    pair.peer.sendall(b"x" * 10_000 + b"goodbye")
    pair.peer.close()
    if not waits:
        pair.transport.write(b"too late")
        pair.transport.write(b"this, too")
    assert pair.protocol.got == b""
    await pair.end()
    assert pair.protocol.got == b"x" * 10_000 + b"goodbye"


async def test_a_protocol_that_does_not_read_is_told_at_once_that_its_peer_is_gone(pair: Pair) -> None:
    pair.transport.pause_reading()
    pair.peer.sendall(b"goodbye")
    pair.peer.close()
    pair.transport.write(b"too late")
    assert isinstance(await pair.end(), OSError)
    assert pair.protocol.got == b""


async def test_a_bug_of_the_protocol_ends_its_connection_and_is_reported(pair: Pair) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    pair.peer.sendall(b"bug")
    assert isinstance(await pair.end(), RuntimeError)
    assert [context["message"] for context in reported] == ["a protocol failed"]


async def alone(pair: Pair) -> None:
    """Have the socket be the only one that is ready, until the loop watches it itself."""
    poller = poller_of(pair.loop)
    for _ in range(100):
        if poller.direct:
            return
        pair.protocol.changed.clear()
        pair.peer.sendall(b".")
        await pair.protocol.changed.wait()
    raise AssertionError("the loop does not watch it itself")


async def test_a_socket_that_the_loop_watches_sends_what_waits_as_any_other(pair: Pair) -> None:
    await alone(pair)
    for chunk in chunks():
        pair.transport.write(chunk)
    wanted = b"".join(chunks())
    assert await asyncio.to_thread(read_all, pair.peer, len(wanted)) == wanted
    await pair.protocol.until("resume")
    pair.peer.sendall(b"goodbye")
    await pair.protocol.until("goodbye")


async def test_a_socket_that_is_alone_can_be_paused_and_ends_as_any_other(pair: Pair) -> None:
    await alone(pair)
    pair.transport.pause_reading()
    assert not poller_of(pair.loop).direct
    pair.peer.sendall(b"hello")
    for _ in range(20):
        await asyncio.sleep(0)
    assert b"hello" not in pair.protocol.got
    pair.transport.resume_reading()
    await pair.protocol.until("hello")
    await alone(pair)
    pair.peer.close()
    assert await pair.end() is None
    assert not poller_of(pair.loop).direct


async def test_sockets_ready_together_are_read_in_one_round_and_none_is_alone(pair: Pair) -> None:
    others = [Pair() for _ in range(9)]
    poller = poller_of(pair.loop)
    await alone(pair)
    rounds, reads = poller.rounds, poller.reads
    for other in others:
        other.peer.sendall(b"hello")
    for other in others:
        await other.protocol.until("hello")
    assert (poller.rounds - rounds, poller.reads - reads) == (1, 9)
    assert not poller.direct
    pair.peer.sendall(b"still here")
    await pair.protocol.until("still here")
    for other in others:
        other.transport.abort()
        await other.end()
        other.peer.close()


async def test_the_addresses_of_a_connected_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        pair = Pair()
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        accepted.setblocking(False)
        protocol = Protocol()
        transport = SocketTransport(pair.loop, accepted, protocol)
        assert transport.get_extra_info("sockname") == server.getsockname()
        assert transport.get_extra_info("peername") == client.getsockname()
        assert transport.get_extra_info("socket") is accepted
        assert transport.get_extra_info("cipher", 1) == 1
        client.close()
        async with asyncio.timeout(LIMIT_S):
            await protocol.lost
        pair.transport.abort()
        await pair.end()
        pair.peer.close()


async def test_reads_of_another_worker_come_first_and_its_output_is_not_repeated() -> None:
    loop = asyncio.get_running_loop()
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    peer.settimeout(LIMIT_S)
    peer.sendall(b"new")
    protocol = Protocol()
    reads: list[bytes] = []

    def updated(nbytes: int) -> None:
        reads.append(bytes(protocol.buffer[:nbytes]))
        protocol.changed.set()
        if len(reads) == 1:  # as while a login is checked
            transport.pause_reading()
            loop.call_soon(transport.resume_reading)

    protocol.buffer_updated = updated  # type: ignore[method-assign]
    early = [b"first", b"l" * 5000]
    transport = SocketTransport(loop, ours, protocol, early, 7)
    transport.write(b"said")
    transport.write(b"toowhat is new")
    async with asyncio.timeout(LIMIT_S):
        while b"new" not in reads:
            protocol.changed.clear()
            await protocol.changed.wait()
    assert reads == [b"first", b"l" * 4096, b"l" * 904, b"new"]
    assert peer.recv(100) == b"what is new"
    given, unsent = transport.release()
    assert (given, unsent, transport.is_closing()) == (ours, 0, True)
    transport.write(b"nothing")
    given.sendall(b"who has it now")
    assert peer.recv(100) == b"who has it now"
    given.close()
    peer.close()
