"""A standby's listeners."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from penstock.cluster.relay import Relay
from penstock.config import load
from tests.support.brokers import free_port

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


@pytest.fixture
def port() -> int:
    return free_port()


async def test_clients_leave_an_owner_that_was_replaced(port: int) -> None:
    """It may be frozen: nobody else would tell them."""
    sets = [f"amqp.listen=127.0.0.1:{port}"]
    sets += [f"{name}.listen=" for name in ("mqtt", "native", "http", "management", "metrics")]
    relay = Relay(load(environ={}, sets=sets).config)
    async with AsyncExitStack() as ends, asyncio.timeout(WAIT_S):
        first, second = await owner(ends, b"first"), await owner(ends, b"other")
        await relay.start()
        ends.push_async_callback(relay.stop)
        relay.follow(first)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ends.callback(writer.close)
        assert await reader.readexactly(5) == b"first"
        relay.follow(None)  # released: an owner that ends closes its connections itself
        relay.follow(second)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ends.callback(writer.close)
        assert await reader.readexactly(5) == b"other"
