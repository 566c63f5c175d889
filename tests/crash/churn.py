"""Connect, open, send, receive, close, again and again: python -m tests.crash.churn [--cycles 5000].

Nothing may be left of it: no task, descriptor or object in the client, no descriptor in the gateway, and no
memory in either beyond `GROWTH_BYTES` a cycle once both are warm. Some of the cycles end badly: the
connection is cut, the task cancelled, the producer fenced.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import penstock
from bench.cpu import resident_bytes
from penstock.sdk.connection.link import Link
from penstock.sdk.errors import ClientError
from tests.support.brokers import Gateway

GROWTH_BYTES = 1500
"""Of resident memory, per cycle. The growth of the gateway is bounded: the feed has 4 bytes for each
message of the open segment, about 120 a cycle, in an array that doubles; of the log's slabs (1 MiB) up to
16 are kept, and are touched one after the other. Python's objects and blocks stay as many as they were."""
WAIT_S = 120.0
AT_ONCE = 8
_SMALL_CACHES = {f"log.{name}_cache_bytes": "1MiB" for name in ("tail", "read", "feed")}
_OURS = (Link, penstock.Producer, penstock.Consumer, penstock.Client)


@dataclass(frozen=True)
class Left:
    """The resources in use after some cycles."""

    tasks: int
    descriptors: int
    objects: int
    """Of the client: links, producers, consumers."""
    gateway_descriptors: int
    resident: int
    gateway_resident: int


async def prepare(url: str) -> None:
    """The topic, of which little is kept."""
    async with penstock.connect(url) as client:
        await client.admin.create_topic("churn", max_bytes=1 << 20)


async def cycle(url: str, chance: random.Random, slot: int) -> None:
    """One life of a client; how it ends is drawn. `slot`: which of those that live at the same time.

    Its subscriptions are deleted with it: for one that stays, the gateway keeps the unread messages.
    """
    end = chance.choice(("well", "well", "cut", "cancelled", "fenced"))
    async with penstock.connect(url, reconnect=end != "cut") as client:
        async with (
            client.producer("churn", name=f"p{slot}" if end == "fenced" else None) as producer,
            client.subscribe("churn", f"s{slot}", start="latest", durable=False) as consumer,
            client.reader("churn", start="earliest") as reader,
        ):
            await producer.send_many([b"x"] * 20)
            message = await reader.receive(WAIT_S)
            assert message is not None
            found = await consumer.receive(WAIT_S)
            assert found is not None
            await consumer.ack(found, durable=True)
            async with client.transaction() as tx:
                tx.send(b"y", to=producer)
            match end:
                case "cut":
                    (await client.link()).abort()
                    producer.send_nowait(b"lost").cancel()
                case "cancelled":
                    waiting = asyncio.create_task(producer.send_many([b"z"] * 50))
                    await asyncio.sleep(0)
                    waiting.cancel()
                    await asyncio.wait([waiting])
                case "fenced":
                    async with client.producer("churn", name=producer.name):
                        with contextlib.suppress(ClientError):
                            await producer.send(b"fenced")


async def run(url: str, pid: int, cycles: int, chance: random.Random) -> Left:
    """So many cycles, some at once; what is left of them."""
    begun = 0

    async def one_after_the_other(slot: int) -> None:
        nonlocal begun
        while begun < cycles:
            begun += 1
            with contextlib.suppress(ClientError):  # of those that were cut
                await cycle(url, chance, slot)

    await asyncio.gather(*(one_after_the_other(slot) for slot in range(AT_ONCE)))
    return await left(pid)


async def left(pid: int) -> Left:
    """Look, when what is being closed is closed."""
    end = asyncio.get_running_loop().time() + WAIT_S
    while True:
        gc.collect()
        objects = sum(type(one) in _OURS for one in gc.get_objects())
        tasks = len(asyncio.all_tasks())
        if (objects == 0 and tasks == 1) or asyncio.get_running_loop().time() > end:
            break
        await asyncio.sleep(0.01)
    return Left(
        tasks,
        len(os.listdir("/proc/self/fd")),
        objects,
        len(os.listdir(f"/proc/{pid}/fd")),
        resident_bytes(os.getpid()),
        resident_bytes(pid),
    )


async def churn(url: str, pid: int, cycles: int, seed: int) -> list[str]:
    """The faults after `cycles` cycles, which follow half as many that fill the caches; [] = none."""
    chance = random.Random(seed)
    await prepare(url)
    before = await run(url, pid, max(cycles // 2, 20), chance)
    after = await run(url, pid, cycles, chance)
    print(before, after, sep="\n", flush=True)
    wrong = []
    if after.objects or after.tasks > 1:
        wrong.append(f"{after.objects} objects and {after.tasks - 1} tasks in the client")
    async with asyncio.timeout(WAIT_S):
        # The gateway closes its end when it sees that ours is closed.
        while after.gateway_descriptors > before.gateway_descriptors + 5:
            after = await left(pid)
    if after.descriptors > before.descriptors:
        wrong.append(f"{after.descriptors - before.descriptors} descriptors in the client")
    for where, grown in (
        ("the client", after.resident - before.resident),
        ("the gateway", after.gateway_resident - before.gateway_resident),
    ):
        print(f"{where}: {grown / cycles:,.0f} bytes a cycle")
        if cycles >= 2000 and grown > GROWTH_BYTES * cycles:
            wrong.append(f"{grown:,} bytes in {where}, {grown // cycles} a cycle")
    return wrong


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.churn", description=__doc__.split("\n")[0])
    parser.add_argument("--cycles", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", metavar="DIR", help="where the data goes (default: the temporary folder)")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-churn-", dir=options.data) as folder,
        Gateway(Path(folder), settings={"native.listen": "127.0.0.1:0", **_SMALL_CACHES}) as gateway,
    ):
        url = f"penstock://127.0.0.1:{gateway.ports['native']}"
        wrong = asyncio.run(churn(url, gateway.pid, options.cycles, options.seed))
    print("\n".join(wrong) or "nothing is left")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
