"""Cost of delayed messages: scheduling, waiting, a start with them, and coming due.

    python -m bench.micro_delays [--count 1000000] [--size 100] [--order random|equal] [--data FOLDER]

Schedules `count` messages of `size` bytes to one queue, with delays from an hour to 30 days (`random`) or all
of a day (`equal`), stops, starts again, and moves the clock behind the last of them. Prints the rate of
scheduling, memory before and with all of them waiting, the time of a start, and CPU per message when they are
due. Memory counts this process without the caches of the log, which are made small. The log is in `--data`,
or in a temporary folder of the working folder: random delays read it at random, which is its worst case.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import tempfile
import time
from pathlib import Path

from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.router.authorization.identity import Actor, Identity
from penstock.router.broker import Broker
from penstock.subscriptions.tick.tick import Tick

MIB = 1024 * 1024
HOUR_MS = 3_600_000
KEY = b"\0\x01q"
PROPS = b"\x10\0\x02"


class Clock:
    """The machine's clock, and how far ahead of it the broker is."""

    skew_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.skew_s


def rss_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / MIB


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def opened(folder: Path, clock: Clock) -> tuple[Log, Tick, Broker]:
    options = LogOptions(tail_cache_bytes=8 * MIB, read_cache_bytes=8 * MIB, feed_cache_bytes=8 * MIB)
    log = Log.open(folder, options, clock=clock)
    loop = asyncio.get_running_loop()
    tick = Tick(log, loop)
    log.attach(loop.call_soon_threadsafe)
    broker = Broker.open(log, tick)
    return log, tick, broker


async def closed(log: Log, tick: Tick, broker: Broker) -> None:
    broker.close()
    tick.run()
    tick.close()
    await log.close()


async def measure(folder: Path, count: int, size: int, order: str) -> None:
    clock = Clock()
    log, tick, broker = await opened(folder, clock)
    actor = Actor(Identity("guest"), object())
    broker.vhost("/").declare_queue("q", actor, durable=True)
    chance = random.Random(1)
    body = bytes(size)
    before_mib = rss_mib()
    began, cpu = time.perf_counter(), cpu_s()
    now = log.wall_ms()
    for i in range(count):
        delay = chance.randint(HOUR_MS, 720 * HOUR_MS) if order == "random" else 24 * HOUR_MS
        broker.delayed.schedule("/", now + delay, 1, KEY, PROPS, body, flags=PERSISTENT)
        if i % 500 == 499:
            await asyncio.sleep(0)
    took, cpu = time.perf_counter() - began, cpu_s() - cpu
    log.wait_synced(log.written_lsn)
    print(f"scheduled {count:,}: {count / took:,.0f}/s, {cpu / count * 1e6:.2f} us CPU each")
    print(
        f"memory: {before_mib:.0f} MiB before, {rss_mib():.0f} MiB with all waiting, not yet indexed ones too"
    )
    await closed(log, tick, broker)
    del log, tick, broker
    began = time.perf_counter()
    log, tick, broker = await opened(folder, clock)
    took = time.perf_counter() - began
    await asyncio.sleep(1)
    print(f"start: {took:.2f} s; memory {rss_mib():.0f} MiB; {log.delays.waiting:,} wait")
    clock.skew_s += 31 * 24 * 3600
    began, cpu = time.perf_counter(), cpu_s()
    while broker.delayed.published < count:
        await asyncio.sleep(0.05)
    took, cpu = time.perf_counter() - began, cpu_s() - cpu
    print(f"due: {count / took:,.0f}/s, {cpu / count * 1e6:.2f} us CPU each; memory {rss_mib():.0f} MiB")
    print(f"the queue has {broker.vhost('/').queues['q'].queue.ready_count:,}")
    await closed(log, tick, broker)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--order", choices=("random", "equal"), default="random")
    parser.add_argument("--data", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        data = options.data or Path(folder)
        asyncio.run(measure(data, options.count, options.size, options.order))


if __name__ == "__main__":
    main()
