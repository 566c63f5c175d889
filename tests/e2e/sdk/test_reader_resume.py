"""Readers over kill -9 of the gateway: every message once and in order, wherever they stood."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.protocols.native.codec import kinds
from penstock.sdk.connection.link import Link
from tests.support.brokers import Gateway, free_port
from tests.support.limits import LIMIT_S

pytestmark = [pytest.mark.penstock_only("RabbitMQ and Mosquitto do not speak it")]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("resume")
    with Gateway(folder, settings={"native.listen": f"127.0.0.1:{free_port()}"}) as running:
        yield running


def connect(gateway: Gateway) -> penstock.Client:
    return penstock.connect(f"penstock://{gateway.settings['native.listen']}")


async def kill(gateway: Gateway) -> None:
    """kill -9, and a new start."""
    await asyncio.to_thread(gateway.kill9)
    await asyncio.to_thread(gateway.start)


async def publish(gateway: Gateway, topic: str, numbers: range) -> None:
    async with connect(gateway) as client, client.producer(topic) as producer:
        await producer.send_many([b"%d" % number for number in numbers])


async def take(reader: penstock.Consumer, count: int) -> list[int]:
    found = []
    for _ in range(count):
        message = await reader.receive(LIMIT_S)
        assert message is not None, f"{len(found)} of {count} came"
        found.append(int(message.body))
    return found


def test_before_anything_has_come(gateway: Gateway, unique: str) -> None:
    """It stands where it began, and not at what is the latest when it is connected again."""

    async def scenario() -> None:
        connected = asyncio.Event()
        async with connect(gateway) as client:
            await client.admin.create_topic(unique)
            async with client.reader(unique) as reader:
                resume = reader.resume

                async def later(link: Link) -> None:
                    await connected.wait()
                    await resume(link)

                setattr(reader, "resume", later)  # noqa: B010
                await kill(gateway)
                await publish(gateway, unique, range(20))
                connected.set()
                assert await take(reader, 20) == list(range(20))

    asyncio.run(scenario())


def test_in_the_middle_of_a_stored_batch_and_at_the_tail(gateway: Gateway, unique: str) -> None:
    async def scenario() -> None:
        await publish(gateway, unique, range(3000))
        frames: set[int] = set()
        async with connect(gateway) as client, client.reader(unique, start="earliest") as reader:
            frame = reader.frame

            def seen(kind: int, payload: bytes) -> None:
                frames.add(kind)
                frame(kind, payload)

            setattr(reader, "frame", seen)  # noqa: B010
            assert await take(reader, 333) == list(range(333))
            assert reader.waiting
            await kill(gateway)
            assert await take(reader, 2667) == list(range(333, 3000))
            assert not reader.waiting
            await kill(gateway)
            await publish(gateway, unique, range(3000, 3020))
            assert await take(reader, 20) == list(range(3000, 3020))
        assert kinds.DELIVER_STORED in frames

    asyncio.run(scenario())
