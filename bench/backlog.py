"""Memory of a backlog, and the rate at which it is drained: `python -m bench.backlog [--messages N]`.

Inside one process, without sockets: the router over a log in --folder, with the default sizes of caches.
Publishes N (10,000,000) messages of 1 KiB to one queue and 1,000 to each of 1,000 others, waits until all is
durable and the closed segments have their indexes, then takes and settles the messages of the large queue.
Memory is what of the process no file backs, in MiB; "peak": the most while the large queue was filled.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.many_queues import declare
from penstock.log_core.batch._batch import PERSISTENT
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.memory import used_bytes
from penstock.router.authentication.users import AuthOptions
from penstock.router.authorization.identity import Actor, Identity
from penstock.router.authorization.permissions import Permission
from penstock.router.broker import DEFAULT_VHOST, Broker, BrokerOptions
from penstock.router.names import ENC_AMQP091, join_key_block
from penstock.router.vhost.vhost import Vhost
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.tick.tick import Tick

_MIB = 1 << 20
_TICK = 200
_TAKE = 256


async def _publish(log: Log, vhost: Vhost, identity: Identity, names: list[str], each: int) -> float:
    """MiB per second."""
    rng = random.Random(1)
    bodies = [rng.randbytes(768).ljust(1024) for _ in range(64)]
    table = vhost.publisher(identity, ENC_AMQP091)
    began = time.perf_counter()
    for name in names:
        key = join_key_block("", name)
        target = table.route(key).target
        for at in range(0, each, _TICK):
            body = bodies[at // _TICK % len(bodies)]
            log.appender.append_repeated(min(_TICK, each - at), 0, target, key, b"\0\0", body, PERSISTENT)
            log.flush()
            log.unwritten.take_dirty()
            while log.paused:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0)
    return len(names) * each / 1024 / (time.perf_counter() - began)


async def _wait(start: Callable[[Callable[[], object]], object]) -> None:
    done = asyncio.get_running_loop().create_future()
    start(lambda: done.set_result(None))
    await done


async def _drain(log: Log, queue: Queue) -> int:
    cursor = queue.cursor
    count = 0
    while True:
        taken = cursor.take(_TAKE)
        cursor.settle_taken()
        count += taken
        if cursor.cold:
            await _wait(partial(log.load, cursor.cold))
        elif (feed := cursor.cold_feed) is not None:
            await _wait(partial(log.load_feed, feed, cursor.cold_index))
        elif not taken and not cursor.more:
            return count


def _show(what: str, value: float, unit: str) -> None:
    print(f"{what:44} {value:10,.0f} {unit}", flush=True)


async def _run(folder: Path, messages: int, others: int) -> None:
    log = Log.open(folder, LogOptions())
    loop = asyncio.get_running_loop()
    log.attach(loop.call_soon_threadsafe, loop)
    broker = Broker.open(log, Tick(log, loop), BrokerOptions(auth=AuthOptions(default_user="")))
    broker.authorizer.set("guest", DEFAULT_VHOST, Permission())
    vhost, actor = broker.vhost(DEFAULT_VHOST), Actor(Identity("guest"), object())
    names = [f"queue-{number:04}" for number in range(others)]
    declare(log, vhost, actor, ["large", *names])
    _show("started", used_bytes() / _MIB, "MiB")
    peak = 0.0
    rate = 0.0
    part = 200_000
    for at in range(0, messages, part):
        rate = await _publish(log, vhost, actor.identity, ["large"], min(part, messages - at))
        peak = max(peak, used_bytes() / _MIB)
    _show(f"{messages:,} messages in one queue, peak", peak, "MiB")
    _show("  the last 200,000 of them at", rate, "MiB/s")
    await _publish(log, vhost, actor.identity, names, 1000)
    _show(f"and 1,000 in each of {others:,}", used_bytes() / _MIB, "MiB")
    while log.synced_lsn < log.written_lsn:
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)
    _show("  three seconds later", used_bytes() / _MIB, "MiB")
    for key, value in sorted(log.statistics().items()):
        if key.endswith("_bytes"):
            _show(f"  {key}", value / _MIB, "MiB")
    queue = vhost.queue("large", actor)
    began = time.perf_counter()
    count = await _drain(log, queue)
    assert count == messages, count
    _show("drained at", count / 1024 / (time.perf_counter() - began), "MiB/s")
    _show("memory then", used_bytes() / _MIB, "MiB")
    broker.close()
    await log.close()


def main() -> None:
    """Run it and print a line for each figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--folder", default=None, help="where the log is made; default: the temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        asyncio.run(_run(Path(folder) / "data", arguments.messages, arguments.queues))


if __name__ == "__main__":
    main()
