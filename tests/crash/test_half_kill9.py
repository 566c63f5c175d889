"""Kill -9 between a local transaction and its confirm, and inside transactions of the gateway.

half messages   published exactly if the local work was done, whoever died meanwhile
transactions    consume, send, acknowledge as one: each message is processed exactly once
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import penstock
from penstock.sdk.errors import ClientError, ConnectionLost
from penstock.sdk.producing.half import Question
from tests.support.brokers import Gateway, free_port

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.penstock_only("half messages and the native protocol are penstock's"),
]

WAIT_S = 120.0
MESSAGES = 30
KILLS = 5

DIES = """
import os, sys
import penstock.sync

url, done, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
group = penstock.Group("g", lambda question: None, check_after_s=0.2, check_each_s=0.2, max_checks=1000)
client = penstock.sync.connect(url)
producer = client.producer("t", group=group).open()
for number in range(count):
    half = producer.prepare(str(number))
    if number % 3 != 1:
        with open(done, "a") as file:  # the local transaction
            file.write(f"{number}\\n")
    if number % 3 == 2:
        half.commit()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", settings={"native.listen": f"127.0.0.1:{free_port()}"})


def url_of(gateway: Gateway) -> str:
    return f"penstock://{gateway.settings['native.listen']}"


async def take(consumer: penstock.Consumer, n: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < n:
        some = await consumer.receive_many(n - len(found), WAIT_S)
        assert some, f"{len(found)} of {n} messages came"
        found += [message.body for message in some]
    return found


@pytest.mark.parametrize("gateway_dies", [False, True])
async def test_half_messages_of_a_killed_producer_are_decided_by_its_local_work(
    gateway: Gateway, tmp_path: Path, gateway_dies: bool
) -> None:
    done = tmp_path / "done"
    with gateway:
        program = [sys.executable, "-c", DIES, url_of(gateway), str(done), str(MESSAGES)]
        died = await asyncio.to_thread(
            subprocess.run, program, env={**os.environ, **gateway.environment()}, check=False
        )
        assert died.returncode == -9
        if gateway_dies:
            await asyncio.to_thread(again, gateway)
        known = set(done.read_text().split())
        assert known == {str(number) for number in range(MESSAGES) if number % 3 != 1}
        asked: set[bytes] = set()

        def was_done(question: Question) -> bool:
            asked.add(question.body)
            return question.body.decode() in known

        group = penstock.Group("g", was_done)
        async with penstock.connect(url_of(gateway)) as client, client.producer("t", group=group):
            async with client.reader("t", start="earliest") as reader:
                found = await take(reader, len(known))
            async with asyncio.timeout(WAIT_S):
                while len(asked) < 2 * MESSAGES // 3:
                    await asyncio.sleep(0.01)
        assert asked == {b"%d" % number for number in range(MESSAGES) if number % 3 != 2}
        # Those that were not done are rolled back when this answer comes, and nothing else was published.
        async with penstock.connect(url_of(gateway)) as client:
            assert (await client.admin.describe("t"))["messages"] == len(known)
        assert sorted(found) == sorted(number.encode() for number in known)


def again(gateway: Gateway) -> None:
    gateway.kill9()
    gateway.launch()
    gateway.wait_until_serving()


async def test_each_message_is_processed_once_though_the_gateway_is_killed_inside_transactions(
    gateway: Gateway, seed: int
) -> None:
    chance = random.Random(seed)
    wanted = [b"%d" % number for number in range(1000)]
    processed = 0
    ending = threading.Event()

    def kill() -> None:
        """At moments of its own, which do not depend on what the client does."""
        for _ in range(KILLS):
            if ending.wait(chance.uniform(0.1, 1.0)):
                return
            again(gateway)

    with gateway:
        async with penstock.connect(url_of(gateway)) as client:
            async with (
                client.producer("in") as source,
                client.producer("a") as a,
                client.producer("b") as b,
                client.subscribe("in", "s", start="earliest", prefetch=100) as consumer,
            ):
                await source.send_many(wanted)
                killing = asyncio.create_task(asyncio.to_thread(kill))
                try:
                    while True:
                        message = await consumer.receive(0.05)
                        if message is None:
                            left = await left_in(client, "in", "s")
                            if left == 0 and killing.done():
                                break
                            continue
                        try:
                            async with client.transaction() as tx:
                                tx.send(message.body, to=a)
                                tx.send(message.body, to=b)
                                tx.ack(message)
                            processed += 1
                        except ConnectionLost:
                            continue  # it happened, or the message comes again
                        except ClientError as error:
                            assert error.code == "stale_delivery"
                finally:
                    ending.set()
                    await killing
            for topic in ("a", "b"):
                async with client.reader(topic, start="earliest") as reader:
                    found = await take(reader, len(wanted))
                assert sorted(found) == sorted(wanted), f"seed {seed}: topic {topic}"
                assert (await client.admin.describe(topic))["messages"] == len(wanted)
            assert client.reconnects > 0
            assert 0 < processed <= len(wanted)


async def left_in(client: penstock.Client, topic: str, subscription: str) -> int:
    """Messages that are not acknowledged, asked over as many connections as it takes."""
    while True:
        try:
            found = (await client.admin.describe(topic))["subscriptions"][subscription]
        except ConnectionLost:
            continue
        return int(found["backlog"] + found["unacked"])
