"""Pulls that do not wait, of messages that have left memory: none of them says that there is nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

import penstock
from penstock.sdk.consuming.consumer import Consumer
from tests.support.brokers import Gateway, free_port
from tests.support.data_plane import SERVED, open_client

pytestmark = [pytest.mark.penstock_only("RabbitMQ and Mosquitto have no pulls")]

COUNT = 160
BODY = b"x" * (48 << 10)
"""Of these there are more than all caches together have room for."""
LONG_MS = 600_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {
        **SERVED,
        "native.listen": f"127.0.0.1:{free_port()}",
        "log.segment_bytes": "1MiB",
        "log.tail_cache_bytes": "1MiB",
        "log.read_cache_bytes": "1MiB",
        "log.feed_cache_bytes": "1MiB",
    }
    with Gateway(tmp_path_factory.mktemp("cold"), settings=settings) as running:
        asyncio.run(fill(running))
        yield running


async def fill(gateway: Gateway) -> None:
    """A topic, with subscriptions from its beginning."""
    async with penstock.connect(f"penstock://{gateway.settings['native.listen']}") as client:
        async with client.producer("t") as producer:
            for name in ("native", "http", "lines"):
                async with client.subscribe("t", name, start="earliest", prefetch=0):
                    pass
            await asyncio.gather(*[producer.send(BODY + b"%d" % i) for i in range(COUNT)])


@pytest.fixture(scope="module", params=["running", "restarted"])
def cold(request: pytest.FixtureRequest, gateway: Gateway) -> Gateway:
    if request.param == "restarted":
        gateway.restart()
    return gateway


def numbers(bodies: list[bytes]) -> list[int]:
    return [int(body[len(BODY) :]) for body in bodies]


def test_native_pulls(cold: Gateway) -> None:
    async def pull_all(consumer: Consumer) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < COUNT:
            some = await consumer.pull(7, wait_s=0)
            assert some, f"{len(found)} of {COUNT} came, and then nothing"
            found += [message.body for message in some]
        assert await consumer.pull(7, wait_s=0) == [], "now there is nothing"
        return found

    async def scenario() -> None:
        async with penstock.connect(f"penstock://{cold.settings['native.listen']}") as client:
            # Nothing is acknowledged: when it leaves, all is there again for the next one.
            async with client.subscribe("t", "native", prefetch=0) as consumer:
                assert numbers(await pull_all(consumer)) == list(range(COUNT))
            async with client.reader("t", start="earliest", prefetch=0) as reader:
                assert numbers(await pull_all(reader)) == list(range(COUNT))

    asyncio.run(scenario())


def test_http_pulls(cold: Gateway) -> None:
    found: list[bytes] = []
    wanted = {"max_messages": 7, "wait_ms": 0, "lease_ms": LONG_MS}
    with open_client(cold) as http:
        while len(found) < COUNT:
            answer = http.post("streams/t/subscriptions/http/pull", json=wanted)
            messages = answer.json()["messages"]
            assert messages, f"{len(found)} of {COUNT} came, and then nothing"
            found += [message["value"].encode() for message in messages]
            handles = [message["handle"] for message in messages]
            given_back = http.post(
                "streams/t/subscriptions/http/nack", json={"handles": handles, "delay_ms": LONG_MS}
            )
            assert given_back.status_code == 200
    assert sorted(numbers(found)) == list(range(COUNT))


def test_a_pull_that_goes_on(cold: Gateway) -> None:
    with open_client(cold) as http:
        answer = http.post(
            "streams/t/subscriptions/lines/pull",
            json={"max_messages": 1000, "wait_ms": 0, "lease_ms": LONG_MS},
            headers={"accept": "application/x-ndjson"},
        )
    lines = [json.loads(line) for line in answer.text.splitlines() if line]
    assert "nothing came" in lines.pop()["end"]
    assert numbers([line["value"].encode() for line in lines]) == list(range(COUNT))
