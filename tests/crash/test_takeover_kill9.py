"""A take-over of a failover subscription in which the gateway, the active consumer or its successor dies.

The processes come back in any order, and any of them may be active for a while. In the end the consumer of
higher priority has all unacknowledged messages, in order and flagged, and no acknowledged one.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import penstock
from tests.support.brokers import Gateway, free_port

pytestmark = [pytest.mark.timeout(900), pytest.mark.penstock_only("the SDK speaks the native protocol")]

WAIT_S = 120.0
TAKEN, DONE, ALL = 20, 5, 30


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", settings={"native.listen": f"127.0.0.1:{free_port()}"})


async def take(consumer: penstock.Consumer, count: int) -> list[penstock.Message]:
    found: list[penstock.Message] = []
    while len(found) < count:
        some = await consumer.receive_many(count - len(found), WAIT_S)
        assert some, f"{len(found)} of {count} messages came"
        found += some
    return found


@pytest.mark.parametrize("dies", ["gateway", "active", "successor"])
async def test_unacknowledged_messages_come_to_the_successor(gateway: Gateway, seed: int, dies: str) -> None:
    chance = random.Random(seed)
    url = f"penstock://{gateway.settings['native.listen']}"
    with gateway:
        async with (
            penstock.connect(url, connect_timeout_s=WAIT_S, close_timeout_s=WAIT_S) as old,
            penstock.connect(url, connect_timeout_s=WAIT_S, close_timeout_s=WAIT_S) as new,
            old.producer("t") as producer,
            old.subscribe("t", "s", kind="failover", start="earliest") as active,
        ):
            await producer.send_many([b"%d" % number for number in range(TAKEN)])
            first = await take(active, TAKEN)
            await active.ack(first[:DONE], durable=True)
            async with new.subscribe("t", "s", kind="failover", priority=1) as successor:
                # Of the second in which the active one may settle what it has.
                await asyncio.sleep(chance.uniform(0, 0.9))
                if dies == "gateway":
                    gateway.kill9()
                    gateway.launch()
                    await asyncio.to_thread(gateway.wait_until_serving)
                else:
                    (await (old if dies == "active" else new).link()).abort()
                await producer.send_many([b"%d" % number for number in range(TAKEN, ALL)])
                came = await take(successor, ALL - DONE)
                assert [int(message.body) for message in came] == list(range(DONE, ALL))
                assert all(message.redelivered for message in came[: TAKEN - DONE])
                await successor.ack_cumulative(came[-1])
                await successor.ack([], durable=True)
                told = (await new.admin.describe("t"))["subscriptions"]["s"]
                assert (told["backlog"], told["unacked"], told["consumers"]) == (0, 0, 2)
