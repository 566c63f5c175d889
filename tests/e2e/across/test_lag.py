"""Backlog, lag and age of a subscription's head: the same by the SDK, HTTP, management API and metrics."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

import penstock
from penstock.testing import Gateway

WAIT_S = 120.0
SETTINGS = {
    "http.listen": "127.0.0.1:0",
    "management.listen": "127.0.0.1:0",
    "metrics.listen": "127.0.0.1:0",
}
NAMES = {"vhost": "/", "stream": "t", "subscription": "s"}


async def by_sdk(gateway: Gateway) -> dict[str, Any]:
    async with penstock.connect(gateway.url) as client:
        described = await client.admin.describe("t")
    found: dict[str, Any] = described["subscriptions"]["s"]
    return found


async def by_http(gateway: Gateway, path: str) -> Any:
    async with httpx.AsyncClient(auth=("guest", "guest"), timeout=WAIT_S) as http:
        answer = await http.get(f"http://127.0.0.1:{path}")
    assert answer.status_code == 200, answer.text
    return answer


async def by_data_plane(gateway: Gateway) -> dict[str, Any]:
    path = f"{gateway.listener('http')}/v1/vhosts/%2F/streams/t/subscriptions"
    one = (await by_http(gateway, f"{path}/s")).json()
    (listed,) = (await by_http(gateway, path)).json()["subscriptions"]
    found: dict[str, Any] = {**one, "head_age_ms": listed["head_age_ms"]}
    assert found == listed
    return found


async def by_management(gateway: Gateway) -> dict[str, Any]:
    queues = f"{gateway.listener('management')}/api/queues"
    listed = (await by_http(gateway, queues)).json()
    (found,) = [queue for queue in listed if queue["name"] == "subscription-t/s"]
    shown = (await by_http(gateway, f"{queues}/%2F/subscription-t%2Fs")).json()
    assert shown["subscription"].keys() == found["subscription"].keys()
    # The list is asked for first: it has to read what is not in memory, too.
    ages = [one["subscription"]["head_age_ms"] for one in (found, shown)]
    assert (ages[0] is None) == (ages[1] is None)
    assert "subscription" not in next(queue for queue in listed if queue["name"] == "t")
    counted = {"backlog": found["messages_ready"], "unacked": found["messages_unacknowledged"]}
    return {**counted, **shown["subscription"]}


async def by_metrics(gateway: Gateway) -> dict[str, Any]:
    port = gateway.listener("metrics")
    detailed = await by_http(gateway, f"{port}/metrics/detailed?family=subscription_metrics&vhost=%2F")
    objects = await by_http(gateway, f"{port}/metrics/per-object")
    found = {}
    for name, page in (("detailed", detailed), ("objects", objects)):
        found[name] = {
            family.name.removeprefix("penstock_subscription_"): sample.value
            for family in text_string_to_metric_families(page.text)
            for sample in family.samples
            if family.name.startswith("penstock_subscription_") and sample.labels == NAMES
        }
    assert found["detailed"].keys() == found["objects"].keys()
    values = found["objects"]
    return {
        "backlog": values["backlog_messages"],
        "unacked": values["unacked_messages"],
        "lag": values["lag_messages"],
        "head_age_ms": values["head_age_seconds"] * 1000,
        "paused": bool(values["paused"]),
    }


async def check(gateway: Gateway, backlog: int, unacked: int, published_ms: int | None) -> None:
    """All four say so; `published_ms`: when the oldest message that is not settled was published."""
    for told in (by_sdk, by_data_plane, by_management, by_metrics):
        before_ms = time.time() * 1000
        found = await told(gateway)
        after_ms = time.time() * 1000
        figures = found["backlog"], found["unacked"], found["lag"], found["paused"]
        assert figures == (backlog, unacked, backlog + unacked, False), told
        if published_ms is None:
            assert not found["head_age_ms"]
        else:
            # The answer was computed between the two times; the gateway's clock counts whole ms.
            assert before_ms - published_ms - 2 <= found["head_age_ms"] <= after_ms - published_ms + 2, told


async def test_everybody_tells_the_same(tmp_path: Path) -> None:
    with Gateway(tmp_path, settings=SETTINGS) as gateway:
        async with penstock.connect(gateway.url) as client:
            async with client.producer("t") as producer:
                async with client.subscribe("t", "s", start="earliest", prefetch=2) as consumer:
                    await check(gateway, 0, 0, None)
                    for i in range(5):
                        await producer.send(str(i))
                    first = await consumer.receive(WAIT_S)
                    second = await consumer.receive(WAIT_S)
                    assert first is not None and second is not None
                    while (await by_sdk(gateway))["unacked"] < 4:
                        await asyncio.sleep(0.01)
                    await check(gateway, 1, 4, first.timestamp_ms)
                    await consumer.ack(first, durable=True)
                    await check(gateway, 1, 3, second.timestamp_ms)
                await check(gateway, 4, 0, second.timestamp_ms)
        for told in (by_metrics, by_management, by_data_plane, by_sdk):
            # The head is not in memory any more: whoever is asked first has it read.
            await asyncio.to_thread(gateway.stop)
            await asyncio.to_thread(gateway.start)
            found = await told(gateway)
            assert found["lag"] == 4
            assert found["head_age_ms"] > 0
        await check(gateway, 4, 0, second.timestamp_ms)
        async with (
            penstock.connect(gateway.url) as client,
            client.subscribe("t", "s") as consumer,
        ):
            while (await by_sdk(gateway))["lag"]:
                await consumer.ack(await consumer.receive_many(10, WAIT_S), durable=True)
            await check(gateway, 0, 0, None)
