"""A standby's listeners."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from penstock.cluster.relay import Relay
from penstock.config import Address, load
from penstock.protocols.listening.front_end import FrontEnd
from tests.support.brokers import free_port
from tests.support.echo import EchoServer, packet

WAIT_S = 60.0


async def owner(ends: AsyncExitStack, word: bytes) -> dict[str, object]:
    """An owner that says a word to each client, as the relay knows it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(word)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    ends.callback(server.close)
    port = server.sockets[0].getsockname()[1]
    return {"listeners": {"amqp.listen": f"127.0.0.1:{port}"}}


async def client(ends: AsyncExitStack, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection of a client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    ends.callback(writer.close)
    return reader, writer


@pytest.fixture
def port() -> int:
    return free_port()


def relay_at(port: int) -> Relay:
    """A relay with one listener."""
    sets = [f"amqp.listen=127.0.0.1:{port}"]
    sets += [f"{name}.listen=" for name in ("mqtt", "native", "http", "management", "metrics")]
    return Relay(load(environ={}, sets=sets).config)


async def test_clients_leave_an_owner_that_was_replaced(port: int) -> None:
    """It may be frozen: nobody else would tell them."""
    relay = relay_at(port)
    async with AsyncExitStack() as ends, asyncio.timeout(WAIT_S):
        first, second = await owner(ends, b"first"), await owner(ends, b"other")
        relay.start()
        ends.push_async_callback(relay.stop)
        relay.follow(first)
        reader, _ = await client(ends, port)
        assert await reader.readexactly(5) == b"first"
        relay.follow(None)  # released: an owner that ends closes its connections itself
        relay.follow(second)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        reader, _ = await client(ends, port)
        assert await reader.readexactly(5) == b"other"


async def test_clients_wait_until_the_owner_listens(port: int) -> None:
    relay = relay_at(port)
    late = free_port()
    async with AsyncExitStack() as ends, asyncio.timeout(WAIT_S):
        relay.start()
        ends.push_async_callback(relay.stop)
        clients = [await client(ends, port) for _ in range(20)]
        relay.follow({"listeners": {"amqp.listen": f"127.0.0.1:{late}"}})
        await asyncio.sleep(0)

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"here")
            writer.close()

        ends.callback((await asyncio.start_server(serve, "127.0.0.1", late)).close)
        assert [await reader.readexactly(4) for reader, _ in clients] == [b"here"] * 20


async def test_a_node_that_becomes_the_owner_serves_clients_that_wait(port: int) -> None:
    """Neither those that it accepted as a standby nor those that come meanwhile are refused."""
    relay = relay_at(port)
    async with AsyncExitStack() as ends, asyncio.timeout(WAIT_S):
        relay.start()
        early = [await client(ends, port) for _ in range(3)]
        early[0][1].transport.abort()  # one that is gone
        early[1][1].write(packet(b"said before"))
        while len(relay._waiting) < len(early):
            await asyncio.sleep(0)
        found = await relay.release()
        early.append(await client(ends, port))
        echo = EchoServer()
        ends.push_async_callback(echo.listener.drain, 0.0)
        echo.context.open_sockets.update(found)
        front_end = FrontEnd("amqp", echo.context)
        front_end.open("amqp", Address("127.0.0.1", port), echo.make)
        ends.push_async_callback(front_end.drain, 0.0)
        assert echo.context.open_sockets == {}
        for _, writer in early[2:]:
            writer.write(packet(b"said before"))
        for reader, _ in early[1:]:
            assert int.from_bytes(await reader.readexactly(4), "big") == len(packet(b"said before"))
