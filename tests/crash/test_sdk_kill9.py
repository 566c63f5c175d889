"""Kill -9 of the gateway, and of the client, while the SDK sends, settles, commits, seeks and closes.

Each confirmed message is there, once and in order. A message whose acknowledgement is on the disk does not
come again. Transactions are whole or not there, and a subscription continues from its seek. Kills come at
random moments, but only after the gateway made a promise to each kind of work since the last kill. A failing
run prints its seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest

import penstock
from tests.crash.sdk_work import WAIT_S, Ledger, Work, judge, prepare
from tests.support.brokers import Gateway, free_port

pytestmark = [pytest.mark.timeout(900), pytest.mark.penstock_only("the SDK speaks the native protocol")]

KILLS = 3
ROOT = Path(__file__).parents[2]


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "gateway", settings={"native.listen": f"127.0.0.1:{free_port()}"})


def url_of(gateway: Gateway) -> str:
    return f"penstock://{gateway.settings['native.listen']}"


async def promised(ledger: Ledger, before: tuple[int, ...], worker: asyncio.Task[object]) -> None:
    """Wait until each kind of work was promised something more."""
    async with asyncio.timeout(WAIT_S):
        while not all(now > then for now, then in zip(ledger.counts, before, strict=True)):
            if worker.done():
                worker.result()
                raise AssertionError("it ended by itself")
            await asyncio.sleep(0.005)


async def test_the_gateway_is_killed_while_the_sdk_works(gateway: Gateway, seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    with gateway:
        await prepare(url_of(gateway))
        async with penstock.connect(url_of(gateway), close_timeout_s=WAIT_S) as client:
            work = Work(client, ledger.tell, chance, 0)
            working: asyncio.Task[object] = asyncio.create_task(work.run())
            for number in range(KILLS + 1):
                await promised(ledger, ledger.counts, working)
                await asyncio.sleep(chance.uniform(0, 0.05))
                if number == KILLS:
                    work.stopping.set()  # the last one meets what is closed
                gateway.kill9()
                gateway.launch()
                await asyncio.to_thread(gateway.wait_until_serving)
            await asyncio.wait_for(working, WAIT_S)
            assert client.reconnects >= KILLS
        assert ledger.sent == ledger.attempted
        await judge(url_of(gateway), ledger)
        print(f"sent, done, moved, sought: {ledger.counts}")


async def test_the_client_is_killed_while_it_works(gateway: Gateway, seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    with gateway:
        await prepare(url_of(gateway))
        for _ in range(KILLS):
            first = max(ledger.attempted, default=-1) + 1
            words = ("-m", "tests.crash.sdk_work", url_of(gateway), str(chance.random())[2:8], str(first))
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                *words,
                cwd=ROOT,
                env={**os.environ, **gateway.environment()},
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 20,
            )

            async def read(child: asyncio.subprocess.Process = child) -> object:
                assert child.stdout is not None
                while line := await child.stdout.readline():
                    what, *numbers = line.split()
                    if line.endswith(b"\n"):
                        ledger.tell(what.decode(), map(int, numbers))
                return None

            reading: asyncio.Task[object] = asyncio.create_task(read())
            await promised(ledger, ledger.counts, reading)
            await asyncio.sleep(chance.uniform(0, 0.05))
            child.kill()
            await asyncio.wait_for(reading, WAIT_S)
            assert await child.wait() == -9
        await judge(url_of(gateway), ledger)
        print(f"sent, done, moved, sought: {ledger.counts}")
