"""Kill -9 of the gateway while messages fail: delays, limits of deliveries, retry topics, dead letters.

    limited     a message that is given back waits (`nack_backoff_s`), comes again counted, and after so many
                deliveries is in the dead-letter topic: once, and never acknowledged as well
    retrying    the same by a retry topic. A kill between a try's publishing and its acknowledgement makes a
                duplicate: the try again, flagged, or the publishing, which is repeated when its confirm was
                lost. So a kill at most doubles a message

A message fails as often as its number says, by what the gateway says of its tries. Kills come at random
moments while new ones are worked on; a failing run prints its seed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.sdk.consuming.retrying import retries_of
from penstock.sdk.errors import ConnectionLost, StaleDelivery
from tests.crash.sdk_work import bodies_of
from tests.support.brokers import Gateway, free_port

pytestmark = [pytest.mark.timeout(900), pytest.mark.penstock_only("the SDK speaks the native protocol")]

WAIT_S = 120.0
KILLS = 3
NEW = 20
"""Messages before each kill, and behind the last one."""
MESSAGES = NEW * (KILLS + 1)
DELIVERIES = 4
SOON = (0.01, 0.04)


def fails(number: int) -> int:
    """How many of its tries fail."""
    return number % 7


DEAD = [number for number in range(MESSAGES) if fails(number) >= DELIVERIES]
ALIVE = set(range(MESSAGES)) - set(DEAD)


class Told:
    """The finished steps; a change wakes the waiting thread."""

    def __init__(self) -> None:
        self.acknowledged: Counter[int] = Counter()
        self.deliveries = 0
        self.ended: set[int] = set()
        self._changed = asyncio.Condition()

    async def delivered(self) -> None:
        """One more."""
        self.deliveries += 1
        await self._tell()

    async def ends(self, number: int) -> None:
        """It is about to be acknowledged for good, or given back for the last time."""
        self.ended.add(number)
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(condition)


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", settings={"native.listen": f"127.0.0.1:{free_port()}"})


def connect(gateway: Gateway) -> penstock.Client:
    url = f"penstock://{gateway.settings['native.listen']}"
    return penstock.connect(url, connect_timeout_s=WAIT_S, close_timeout_s=WAIT_S)


async def work_over_kills(
    gateway: Gateway, chance: random.Random, client: penstock.Client, told: Told, working: asyncio.Task[None]
) -> None:
    """Publish, and kill in the middle of what that brings, until all has ended, or `working` has failed."""

    async def kill() -> None:
        async with client.producer("t") as producer:
            for first in range(0, MESSAGES, NEW):
                more = told.deliveries + chance.randint(3, NEW)
                await producer.send_many([b"%d" % number for number in range(first, first + NEW)])
                if first + NEW == MESSAGES:
                    return
                await told.until(lambda more=more: told.deliveries >= more)  # type: ignore[misc]
                await asyncio.sleep(chance.uniform(0, 0.05))
                gateway.kill9()
                gateway.launch()
                await asyncio.to_thread(gateway.wait_until_serving)

    async def work_over() -> None:
        await kill()
        await told.until(lambda: len(told.ended) == MESSAGES)

    killing = asyncio.create_task(work_over())
    await asyncio.wait({working, killing}, return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        killing.cancel()
        working.result()
    await killing


async def settled(client: penstock.Client, working: asyncio.Task[None], *topics: str) -> None:
    """Wait until nothing is left in their subscriptions."""
    async with asyncio.timeout(WAIT_S):
        while not working.done():
            found = [(await client.admin.describe(topic))["subscriptions"]["s"] for topic in topics]
            if not any(one["backlog"] + one["unacked"] for one in found):
                break
            await asyncio.sleep(0.02)
    if working.done():
        working.result()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_after_so_many_deliveries_a_message_is_dead_once_and_else_acknowledged(
    gateway: Gateway, seed: int
) -> None:
    chance = random.Random(seed)
    told = Told()
    kept: dict[int, int] = {}
    """How often each was given back, as the gateway has it on the disk."""
    with gateway:
        async with connect(gateway) as client:
            consumer = client.subscribe(
                "t",
                "s",
                start="earliest",
                prefetch=5,
                nack_backoff_s=SOON,
                max_deliveries=DELIVERIES,
                dead_letter="dead",
            )

            async def work() -> None:
                seen: dict[int, int] = {}
                async for message in consumer:
                    number, count = int(message.body), message.given_back
                    await told.delivered()
                    assert number not in told.acknowledged, f"{number} is acknowledged, and came again"
                    assert kept.get(number, 0) <= count <= seen.get(number, -1) + 1, (
                        number,
                        count,
                        kept,
                        seen,
                    )
                    assert count < DELIVERIES
                    seen[number] = count
                    if count == min(fails(number), DELIVERIES - 1):
                        await told.ends(number)
                    try:
                        if count < fails(number):
                            await consumer.nack(message)
                        else:
                            known = dict(seen)
                            await consumer.ack(message, durable=True)
                            told.acknowledged[number] += 1
                            kept.update(known)
                    except (StaleDelivery, ConnectionLost):
                        pass  # it comes again, or is done

            async with consumer:
                working = asyncio.create_task(work())
                await work_over_kills(gateway, chance, client, told, working)
                await settled(client, working, "t")
            assert sorted(await bodies_of(client, "dead")) == DEAD
            assert set(told.acknowledged) <= ALIVE
            assert len(ALIVE) - len(told.acknowledged) <= KILLS, "one answer is lost with a connection"


async def test_a_retry_topic_counts_and_ends_over_kills(gateway: Gateway, seed: int) -> None:
    chance = random.Random(seed)
    told = Told()
    retry = penstock.Retry(SOON, max=DELIVERIES - 1)
    with gateway:
        async with connect(gateway) as client:
            consumer = client.retrying("t", "s", retry, start="earliest", prefetch=5)

            async def work() -> None:
                most: dict[int, int] = {}
                async for message in consumer:
                    number, count = int(message.body), retries_of(message)
                    await told.delivered()
                    assert count <= most.get(number, -1) + 1, (number, count, most)
                    assert count <= min(fails(number), DELIVERIES - 1)
                    most[number] = max(count, most.get(number, 0))
                    if count == min(fails(number), retry.max):
                        await told.ends(number)
                    try:
                        if count < fails(number):
                            await consumer.retry_later(message)
                        else:
                            await consumer.ack(message, durable=True)
                            told.acknowledged[number] += 1
                    except (StaleDelivery, ConnectionLost):
                        pass  # it comes again, or is done

            async with consumer:
                working = asyncio.create_task(work())
                await work_over_kills(gateway, chance, client, told, working)
                await settled(client, working, "t", "t-s-RETRY")
            dead = Counter(await bodies_of(client, "t-s-DLQ"))
            assert sorted(dead) == DEAD
            assert set(told.acknowledged) <= ALIVE
            assert len(ALIVE) - len(told.acknowledged) <= KILLS, "one answer is lost with a connection"
            for number, ends in (dead + told.acknowledged).items():
                assert ends <= 2**KILLS, f"{number} ended {ends} times"
