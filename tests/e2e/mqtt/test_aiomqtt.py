"""aiomqtt: the asyncio face of paho, as asyncio programs use it."""

from __future__ import annotations

import asyncio

import aiomqtt
import pytest

from tests.support.limits import LIMIT_S

both_versions = pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])


@both_versions
async def test_many_clients_at_once(mqtt_port: int, unique: str, version: aiomqtt.ProtocolVersion) -> None:
    count = 20
    ready = asyncio.Barrier(count + 1)

    async def listen() -> bytes:
        async with aiomqtt.Client("127.0.0.1", mqtt_port, protocol=version, timeout=LIMIT_S) as client:
            await client.subscribe(unique, 1)
            await ready.wait()
            message = await anext(client.messages)
            assert isinstance(message.payload, bytes)
            return message.payload

    async def speak() -> None:
        async with aiomqtt.Client("127.0.0.1", mqtt_port, protocol=version, timeout=LIMIT_S) as client:
            await ready.wait()
            await client.publish(unique, b"to all", 1)

    *heard, _ = await asyncio.gather(*(listen() for _ in range(count)), speak())
    assert heard == [b"to all"] * count
