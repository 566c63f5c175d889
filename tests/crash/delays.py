"""Random delays over kills: python -m tests.crash.delays --count 1000000 [--seed N].

Messages are scheduled by the SDK, each at a time of its own; while they become due the gateway is killed
again and again. The run then compares the topic with the confirmed messages: none early (each has a time
not before it was due), none lost, none twice. Exit code 0 only when all of that holds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import penstock
from tests.support.brokers import Gateway, free_port

_AT_ONCE = 10_000
_WAIT_S = 120.0
"""A missing message counts as lost when no message arrived for so long."""


@dataclass
class Report:
    """The result of a run."""

    scheduled: int
    lost: int
    twice: int
    early: int
    unknown: int
    """Messages that nobody scheduled."""
    kills: int
    latest_s: float
    """The longest time between due and published, those that waited for a restart included."""

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.twice or self.early or self.unknown)


def run(folder: Path, *, count: int, spread_s: float, kills: int, seed: int) -> Report:
    """Schedule `count` messages over `spread_s` seconds, kill so often meanwhile, and compare."""
    chance = random.Random(seed)
    listen = f"127.0.0.1:{free_port()}"
    with Gateway(folder, settings={"native.listen": listen}) as gateway:
        due = asyncio.run(_schedule(listen, count, spread_s, chance))
        for _ in range(kills):
            # Moments while messages become due, some of them while the gateway starts.
            time.sleep(chance.uniform(0, spread_s / (2 * kills)))
            gateway.kill9()
            gateway.launch()
            if chance.random() < 0.7:
                gateway.wait_until_serving()
        gateway.wait_until_serving()
        return asyncio.run(_compare(listen, due, kills))


async def _schedule(listen: str, count: int, spread_s: float, chance: random.Random) -> dict[int, int]:
    """By number: when it is due, in ms since the epoch."""
    due: dict[int, int] = {}
    async with penstock.connect(f"penstock://{listen}") as client, client.producer("t") as producer:

        async def one(number: int, at: float) -> None:
            due[number] = (await producer.send(b"%d" % number, deliver_at=at)).due_ms

        for first in range(0, count, _AT_ONCE):
            # From when all of them are scheduled, as far as one can know.
            now = time.time()
            numbers = range(first, min(first + _AT_ONCE, count))
            await asyncio.gather(*(one(number, now + chance.uniform(0, spread_s)) for number in numbers))
    return due


async def _compare(listen: str, due: dict[int, int], kills: int) -> Report:
    report = Report(len(due), 0, 0, 0, 0, kills, 0.0)
    seen: set[int] = set()
    async with (
        penstock.connect(f"penstock://{listen}") as client,
        client.reader("t", start="earliest", prefetch=50_000) as reader,
    ):
        while len(seen) < len(due):
            messages = await reader.receive_many(10_000, _WAIT_S)
            if not messages:
                break
            for message in messages:
                number = int(message.body)
                if number not in due:
                    report.unknown += 1
                    continue
                report.twice += number in seen
                seen.add(number)
                late_ms = message.timestamp_ms - due[number]
                report.early += late_ms < 0
                report.latest_s = max(report.latest_s, late_ms / 1000)
        # One more than there may be would come now: everything that was due is published.
        report.twice += (await client.admin.describe("t"))["messages"] - len(seen) - report.twice
    report.lost = len(due) - len(seen)
    return report


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.delays")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--spread", type=float, default=300.0, metavar="S", help="delays are up to so long")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="repeat an earlier run")
    parser.add_argument("--data", metavar="DIR", help="where the data goes (default: the temporary folder)")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-delays-", dir=options.data) as folder:
        report = run(
            Path(folder), count=options.count, spread_s=options.spread, kills=options.kills, seed=seed
        )
    print(report)
    print("PASS" if report.ok else "FAIL")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
