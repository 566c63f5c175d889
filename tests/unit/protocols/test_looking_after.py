"""A listener looks after thousands of connections each second, and reads their sockets meanwhile."""

from __future__ import annotations

import asyncio
import socket

from tests.support.echo import EchoServer
from tests.support.limits import LIMIT_S

CLIENTS = 600


async def test_not_all_connections_are_looked_after_at_once() -> None:
    server = EchoServer()
    loop = asyncio.get_running_loop()
    clients = [
        socket.create_connection(("127.0.0.1", server.listener.port), timeout=LIMIT_S) for _ in range(CLIENTS)
    ]
    try:
        async with asyncio.timeout(LIMIT_S):
            while len(server.made) < CLIENTS:
                await asyncio.sleep(0)
        looked: list[int] = []
        for echo in server.made:
            echo.check = lambda now: looked.append(turn)  # type: ignore[method-assign]
        turn = 0
        server.listener._check(loop.time())
        assert 0 < len(looked) < CLIENTS, "the loop has its turn in between"
        while len(looked) < CLIENTS:
            turn += 1
            assert turn < 10
            await asyncio.sleep(0)
        assert len(looked) == CLIENTS
        assert len(set(looked)) == 3
    finally:
        for client in clients:
            client.close()
        await server.listener.drain(LIMIT_S)
