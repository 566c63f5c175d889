"""The SDK beside Kafka's Python clients: what each costs its program, and how long a send takes.

    python -m bench.compare_sdk [--repeat 3] [--messages 200000] [--sends 2000] [--only WORD] [--no-write]

Needs the extra `bench`, and Java and Maven for Kafka. Messages of 100 B, one partition, loopback; clients
take turns in this process. CPU is that of this process, all its threads, so librdkafka's count; connecting
counts, too, which is little at these numbers. The median of the runs counts, beside it the best. Sends
confirm what is on the disk ("synced"; Kafka's topic has flush.messages=1) or in the page cache ("written",
Kafka's default). "The call" is `send_nowait` alone, without what the loop does later. Imports are in
processes of their own, less what `python -c pass` takes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from statistics import median

import penstock
from bench.beside_kafka import Brokers, command_line, compare
from bench.sdk_clients import BODY, CLIENTS, Place

IMPORT = "import penstock; penstock.connect, penstock.Producer, penstock.Consumer"
BUDGETS_US = {
    "consume one by one": 1.0,
    "consume in batches": 0.1,
}
CALL_BUDGET_US = 1.5
IMPORT_BUDGET_MS = 60.0


@dataclass(frozen=True)
class Sample:
    """One run."""

    cpu_us: float
    """Per message."""
    rate: float
    took_us: list[float]

    def percentile(self, part: float) -> float:
        """Of the latencies."""
        return sorted(self.took_us)[min(int(part * len(self.took_us)), len(self.took_us) - 1)]


async def sample(name: str, client: str, place: Place, count: int) -> Sample:
    """Run a client once."""
    cpu, began = time.process_time(), time.perf_counter()
    took = await CLIENTS[name][client](place, count)
    seconds = time.perf_counter() - began
    return Sample((time.process_time() - cpu) / count * 1e6, count / seconds, [one * 1e6 for one in took])


async def call_us(place: Place, count: int) -> float:
    """CPU of one `send_nowait`."""
    used = 0.0
    async with penstock.connect(place.penstock_url) as client, client.producer(place.write) as producer:
        for _ in range(count // 5000):
            before = time.thread_time()
            for _ in range(5000):
                producer.send_nowait(BODY)
            used += time.thread_time() - before
            await producer.flush()
    return used / (count // 5000 * 5000) * 1e6


def import_ms(program: str) -> float:
    """CPU of a program of imports, less what Python itself takes."""

    def used(program: str) -> float:
        pid = os.posix_spawn(sys.executable, [sys.executable, "-c", program], os.environ)
        _, status, usage = os.wait4(pid, 0)
        if status:
            raise RuntimeError(f"python -c {program!r} ended with {os.waitstatus_to_exitcode(status)}")
        return usage.ru_utime + usage.ru_stime

    # In turn: what else the machine does is felt by both.
    runs = [(used(program), used("pass")) for _ in range(15)]
    return (median(one for one, _ in runs) - median(other for _, other in runs)) * 1000


def rows(name: str, found: dict[str, list[Sample]]) -> list[str]:
    """Of the table, one per client."""
    lines = []
    ours = next(iter(found.values()))
    for client, runs in found.items():
        cpu = median(run.cpu_us for run in runs)
        cells = [name, client, f"{cpu:.2f}", f"{min(run.cpu_us for run in runs):.2f}"]
        cells.append(f"{median(run.rate for run in runs):,.0f}")
        for part in (0.5, 0.99):
            cells.append(f"{median(run.percentile(part) for run in runs):,.0f}" if runs[0].took_us else "")
        cells.append(f"{cpu / median(run.cpu_us for run in ours):.1f}x")
        budget = BUDGETS_US.get(name) if client == "penstock" else None
        if budget is not None:
            best = min(run.cpu_us for run in runs)
            cells.append(f"<= {budget} us: {'reached' if best <= budget else 'missed'}")
        else:
            cells.append("")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


HEAD = [
    "| work | client | CPU us/message | best | messages/s | p50 us | p99 us | CPU to ours | budget |",
    "|------|--------|----------------|------|------------|--------|--------|-------------|--------|",
]


async def measure(place: Place, options: argparse.Namespace) -> list[str]:
    """All works; the lines of the table, which are printed as they come."""
    lines: list[str] = []
    for name, clients in CLIENTS.items():
        if options.only not in name:
            continue
        found: dict[str, list[Sample]] = {}
        waits = "flight" in name
        count, warm = (options.sends, 100) if waits else (options.messages, 10_000)
        for number in range(options.repeat + 1):
            for client in clients:
                one = await sample(name, client, place, count if number else warm)
                if number:  # the first is to warm up: of the brokers, too
                    found.setdefault(client, []).append(one)
        lines += rows(name, found)
        print("\n".join(rows(name, found)), flush=True)
    return lines


async def fill(place: Place, options: argparse.Namespace) -> None:
    """Make the topics, and fill those that are read."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": place.kafka})
    topics = [NewTopic(name, 1, 1) for name in (place.write, place.read)]
    topics.append(NewTopic(place.flushed, 1, 1, config={"flush.messages": "1"}))
    for future in admin.create_topics(topics).values():
        future.result()
    filling = Place(place.penstock_url, place.kafka, write=place.read)
    for client in ("penstock", "confluent-kafka"):
        await CLIENTS["send in batches"][client](filling, options.messages)


def main() -> int:
    """Run the command line."""
    parser = command_line("compare_sdk")
    parser.add_argument("--messages", type=int, default=200_000, help="of each run but those that wait")
    parser.add_argument("--sends", type=int, default=2000, help="of each run that waits for each")
    options = parser.parse_args()
    options.messages = max(options.messages // 10_000, 1) * 10_000
    try:
        clients = ", ".join(f"{name} {version(name)}" for name in ("aiokafka", "confluent-kafka"))
    except PackageNotFoundError as missing:
        print(f"{missing}; install the extra: pip install '.[bench]'", file=sys.stderr)
        return 2

    def measured(brokers: Brokers) -> tuple[str, list[str]]:
        place = Place(
            f"penstock://127.0.0.1:{brokers.gateway.ports['native']}", f"127.0.0.1:{brokers.kafka.port}"
        )
        asyncio.run(fill(place, options))
        lines = asyncio.run(measure(place, options))
        call = min(asyncio.run(call_us(place, options.messages)) for _ in range(options.repeat))
        alone, used, loop = import_ms("import penstock"), import_ms(IMPORT), import_ms("import asyncio")
        what = (
            f"{brokers.versions}, {clients}; {options.messages:,} messages a run, {options.sends:,} where "
            "each is waited for"
        )
        return what, [
            *HEAD,
            *lines,
            "",
            f"`send_nowait`, the call: {call:.2f} us (budget {CALL_BUDGET_US}). `import penstock`: "
            f"{alone:.0f} ms; with connect, Producer and Consumer {used:.0f} ms (budget "
            f"{IMPORT_BUDGET_MS:.0f}), of which asyncio {loop:.0f}.",
            "",
            "How it is measured is told in `bench/compare_sdk.py`.",
        ]

    return compare(options, "sdk", "Python clients: penstock's SDK and Kafka's", measured)


if __name__ == "__main__":
    sys.exit(main())
