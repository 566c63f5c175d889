"""Cost of the table of events: the same load on gateways that keep none, some and most events.

    python -m bench.event_table [--only PATTERN] [--seconds S] [--repeat N]

Settings of `events.kinds` take turns within each workload, so that ratios hold on a busy machine; of the
repeats the median counts. Workloads are those of `bench.compare`; where they are of latency, each message
comes alone.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.compare import measure
from bench.load import Result
from bench.report import machine, middle
from bench.workloads import WORKLOADS, Workload
from tests.support.brokers import Gateway

KINDS = ("", "connect", "deliver,ack")
NAMES = (
    "mqtt_qos0_100B_1_to_1",
    "mqtt_qos1_100B_1_to_1",
    "amqp_transient_autoack_100B_1_to_1",
    "amqp_durable_confirm_ack_100B_1_to_1",
    "mqtt_qos0_latency_1000_per_s",
    "mqtt_qos1_latency_1000_per_s",
    "amqp_durable_confirm_ack_latency_1000_per_s",
)
HEADS = ("workload", "events.kinds", "CPU us/message", "more", "messages/s", "p50 us", "p99 us")


def turns(workload: Workload, folder: Path, seconds: float, warm_s: float, repeat: int) -> dict[str, Result]:
    """The middle of the runs by setting."""
    taken: dict[str, list[Result]] = {kinds: [] for kinds in KINDS}
    for run in range(repeat):
        for number, kinds in enumerate(KINDS):
            settings = {"events.kinds": kinds} if kinds else {}
            with Gateway(folder / f"{workload.name}-{run}-{number}", settings=settings) as gateway:
                taken[kinds].append(measure(gateway, workload.load, seconds, warm_s))
    return {kinds: middle(results) for kinds, results in taken.items()}


def rows(workload: Workload, results: dict[str, Result]) -> list[tuple[str, ...]]:
    """Rows of the table."""
    off = results[""].cpu_us_per_delivered
    found = []
    for kinds, result in results.items():
        cost = result.cpu_us_per_delivered
        assert cost is not None and off is not None
        latency = [f"{result.latency_us[name]:.0f}" if result.latency_us else "" for name in ("p50", "p99")]
        more = f"{cost / off - 1:+.0%}" if kinds else ""
        found.append(
            (workload.name, kinds or "none", f"{cost:.3f}", more, f"{result.delivered_per_s:,.0f}", *latency)
        )
    return found


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warm", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print("; ".join(f"{key} {value}" for key, value in machine().items()), end="\n\n")
    for line in (HEADS, tuple("---" for _ in HEADS)):
        print(f"| {' | '.join(line)} |")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        for workload in WORKLOADS:
            if workload.name in NAMES and options.only in workload.name:
                results = turns(workload, Path(folder), options.seconds, options.warm, options.repeat)
                for line in rows(workload, results):
                    print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
