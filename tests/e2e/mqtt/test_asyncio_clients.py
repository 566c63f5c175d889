"""The asyncio MQTT clients, unmodified, through what every program asks of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.mqtt.mqtt_drivers import DATA, DRIVERS, EACH, REPLY, TYPE, USER, Driver, Options
from tests.support.limits import LIMIT_S

each_client = pytest.mark.parametrize(("name", "version"), EACH, ids=[f"{n}-{v}" for n, v in EACH])
each_v5 = pytest.mark.parametrize("name", [name for name, version in EACH if version == 5])

Connect = Callable[..., Awaitable[Any]]


@pytest_asyncio.fixture
async def connect(mqtt_port: int, unique: str) -> AsyncIterator[Connect]:
    """Connects a client of a library; all that are open at the end of the test are closed."""
    made: list[Driver] = []

    async def connect(name: str, version: int, client_id: str = "", **options: Any) -> Driver:
        driver: Driver = DRIVERS[name]()
        await driver.connect(Options(mqtt_port, client_id or f"{unique}-{len(made)}", version, **options))
        made.append(driver)
        return driver

    yield connect
    for driver in made:
        with suppress(Exception):  # closed by the test already, each library says that in its own way
            await asyncio.wait_for(driver.close(), LIMIT_S)


@each_client
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_of_every_qos(
    connect: Connect, unique: str, name: str, version: int, qos: int
) -> None:
    sub, pub = await connect(name, version), await connect(name, version)
    await sub.subscribe(f"{unique}/+", qos)
    for i in range(20):
        await pub.publish(f"{unique}/{i}", str(i).encode(), qos)
    got = [await sub.next() for _ in range(20)]
    assert [(m.topic, m.payload, m.qos, m.retain) for m in got] == [
        (f"{unique}/{i}", str(i).encode(), qos, False) for i in range(20)
    ]


@each_client
async def test_a_retained_message(connect: Connect, unique: str, name: str, version: int) -> None:
    pub = await connect(name, version)
    await pub.publish(unique, b"kept", 1, True)
    await pub.publish(f"{unique}/end", b"kept", 1, True)
    late = await connect(name, version)
    await late.subscribe(f"{unique}/#", 1)
    got = [await late.next() for _ in range(2)]
    assert sorted((m.topic, m.payload, m.retain) for m in got) == [
        (unique, b"kept", True),
        (f"{unique}/end", b"kept", True),
    ]
    for topic in (unique, f"{unique}/end"):
        await pub.publish(topic, b"", 1, True)
        assert (await late.next()).payload == b""


@each_client
async def test_a_will(connect: Connect, unique: str, name: str, version: int) -> None:
    """Published when the client is lost, and not when it disconnects."""
    watcher = await connect(name, version)
    await watcher.subscribe(unique, 1)
    await (await connect(name, version, will=(unique, b"left", 1, False))).close()
    await (await connect(name, version, will=(unique, b"lost", 1, False))).drop()
    assert (await watcher.next()).payload == b"lost"


@each_client
async def test_a_session_is_resumed(connect: Connect, unique: str, name: str, version: int) -> None:
    """With what was published meanwhile, and without subscribing again."""
    first = await connect(name, version, unique, clean=False)
    await first.subscribe(f"{unique}/+", 2)
    await first.close()
    pub = await connect(name, version)
    for qos in (1, 2):
        for i in range(5):
            await pub.publish(f"{unique}/{qos}", str(i).encode(), qos)
    await pub.publish(f"{unique}-published", b"", 1)
    again = await connect(name, version, unique, clean=False)
    got = [await again.next() for _ in range(10)]
    for qos in (1, 2):
        assert [m.payload for m in got if m.qos == qos] == [str(i).encode() for i in range(5)]
    await pub.publish(f"{unique}/live", b"live", 1)
    assert (await again.next()).payload == b"live"
    await again.close()
    await (await connect(name, version, unique, clean=True)).close()


@each_v5
async def test_properties(connect: Connect, unique: str, name: str) -> None:
    sub, pub = await connect(name, 5), await connect(name, 5)
    await sub.subscribe(unique, 1)
    users = [("a", "1"), ("b", "2"), ("a", "3")]
    await pub.publish(unique, b"{}", 1, False, {TYPE: "application/json", USER: users})
    got = await sub.next()
    assert got.props[TYPE] == "application/json"
    assert [tuple(pair) for pair in got.props[USER]] == users


@each_v5
async def test_request_and_response(connect: Connect, unique: str, name: str) -> None:
    server, caller = await connect(name, 5), await connect(name, 5)
    await server.subscribe(f"{unique}/ask", 1)
    await caller.subscribe(f"{unique}/answer", 1)
    await caller.publish(f"{unique}/ask", b"2+2", 1, False, {REPLY: f"{unique}/answer", DATA: b"\x00\x07"})
    asked = await server.next()
    await server.publish(asked.props[REPLY], b"4", 1, False, {DATA: asked.props[DATA]})
    got = await caller.next()
    assert (got.payload, got.props[DATA]) == (b"4", b"\x00\x07")
