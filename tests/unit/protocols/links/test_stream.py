"""The stream of a link: what is unread stays, however large, and an end comes behind what came before it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from penstock.protocols.links.stream import Stream

_LARGE = bytes(range(256)) * 8192
"""2 MiB: four times the buffer."""


async def pair() -> tuple[Stream, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    _, stream = await asyncio.get_running_loop().create_unix_connection(Stream, sock=ours)
    return stream, theirs


async def read(stream: Stream, size: int) -> bytes:
    """So many bytes at once, and nothing is used before."""
    while len(data := await stream.read(60)) < size:
        stream.used(0)
    found = bytes(data)
    stream.used(len(data))
    return found


def test_a_piece_that_is_larger_than_the_buffer_is_read_whole() -> None:
    async def run() -> None:
        stream, other = await pair()
        loop = asyncio.get_running_loop()
        sending = asyncio.create_task(loop.sock_sendall(other, _LARGE))
        assert await read(stream, len(_LARGE)) == _LARGE
        await sending
        stream.abort()
        other.close()

    asyncio.run(run())


@pytest.mark.parametrize("step", [1000, 100_000, 400_000])
def test_unused_bytes_are_in_front_of_those_that_come(step: int) -> None:
    async def run() -> None:
        stream, other = await pair()
        sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(other, _LARGE))
        got = b""
        while len(got) < len(_LARGE):
            data = await stream.read(60)
            whole = len(data) // step * step if len(got) + len(data) < len(_LARGE) else len(data)
            got += data[:whole]
            stream.used(whole)
        assert got == _LARGE
        await sending
        stream.abort()
        other.close()

    asyncio.run(run())


def test_bytes_that_were_not_looked_at_are_read_again_and_then_the_end() -> None:
    async def run() -> None:
        stream, other = await pair()
        other.send(b"abc")
        other.close()
        assert bytes(await stream.read(60)) == b"abc"
        stream.used(1, more=True)
        assert bytes(await stream.read(60)) == b"bc"
        stream.used(2)
        with pytest.raises(ConnectionResetError, match="was ended there"):
            await stream.read(60)
        with pytest.raises(ConnectionResetError):
            stream.write(b"x")
        with pytest.raises(ConnectionResetError):
            await stream.drain()

    asyncio.run(run())


def test_silence_is_told() -> None:
    async def run() -> None:
        stream, other = await pair()
        with pytest.raises(TimeoutError):
            await stream.read(0.01)
        other.send(b"a")
        assert bytes(await stream.read(60)) == b"a"
        await stream.close()
        other.close()

    asyncio.run(run())


def test_writing_waits_for_who_does_not_read() -> None:
    async def run() -> None:
        stream, other = await pair()
        stream.write(_LARGE)
        draining = asyncio.create_task(stream.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        loop, got = asyncio.get_running_loop(), 0
        while got < len(_LARGE):
            got += len(await loop.sock_recv(other, 1 << 20))
        await draining
        await stream.close()
        other.close()

    asyncio.run(run())
