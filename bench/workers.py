"""One worker against two: the same load in two vhosts, and what each process uses of the CPU.

python -m bench.workers [--seconds 3] [--runs 3] [--only NAME]

Two vhosts have one publisher each, and consumers that each get all of what it sends. With one worker both
vhosts are that one's; with two, each has one. On a machine with as many cores as workers the clients would
need the cores that they measure; so they are a load that costs little (`bench.light`), and the table says
how much: `load` is its share of all CPU time used.

by the clock           deliveries per second with two workers, against one
by the busiest's CPU   deliveries per CPU second of the busiest worker: what it would be with cores of its own
                       for the clients
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.cpu import cpu_seconds, descendants
from bench.light import Light, run
from tests.support.brokers import Gateway

_VHOSTS = ("/", "b")

LOADS = (
    Light("amqp_durable_confirm_ack_100B_1_to_10", "amqp", consumers=10, durable=True),
    Light("amqp_durable_confirm_ack_100B_1_to_1", "amqp", durable=True, window=20_000),
    Light("amqp_transient_autoack_100B_1_to_10", "amqp", consumers=10),
    Light("mqtt_qos0_100B_1_to_10", "mqtt", consumers=10),
    Light("mqtt_qos0_100B_1_to_1", "mqtt", window=20_000),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run with so many workers."""

    delivered: int
    delivered_per_s: float
    cpu_s: tuple[float, ...]
    """Of each worker; the largest first."""
    load_cpu_s: float

    @property
    def per_busiest_cpu_s(self) -> float:
        """Deliveries per CPU second of the busiest worker."""
        return self.delivered / self.cpu_s[0]

    @property
    def load_share(self) -> float:
        """Of all CPU time, what the load used."""
        return self.load_cpu_s / (self.load_cpu_s + sum(self.cpu_s))


def measure(workers: int, light: Light, seconds: float) -> Run:
    """Start a gateway, load both vhosts at the same time, stop it."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        settings = {"server.workers": str(workers), "management.listen": "127.0.0.1:0"}
        with Gateway(Path(folder), settings=settings) as gateway:
            url = f"http://127.0.0.1:{gateway.ports['management']}/api/vhosts/b"
            httpx.put(url, auth=("guest", "guest"), timeout=60).raise_for_status()
            pids = [pid for pid in descendants(gateway.pid) if workers == 1 or pid != gateway.pid]
            port = gateway.amqp_port if light.protocol == "amqp" else gateway.mqtt_port
            found = run(
                light,
                port,
                _VHOSTS,
                seconds=seconds,
                sample=lambda: {pid: cpu_seconds(pid) for pid in pids},
            )
    used = sorted((found.after[pid] - found.before[pid] for pid in pids), reverse=True)
    return Run(found.delivered, found.delivered / found.seconds, tuple(used), found.load_cpu_s)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="the loads whose name contains this")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each window")
    parser.add_argument("--runs", type=int, default=3, help="of each kind, in turns")
    options = parser.parse_args()
    loads = [light for light in LOADS if options.only in light.name]
    if not loads:
        parser.error(f"--only {options.only}: there are {', '.join(light.name for light in LOADS)}")
    print(
        f"{os.cpu_count()} cores; what counts is the median of {options.runs} runs of {options.seconds:g} s"
    )
    for light in loads:
        print(f"\n{light.name}\nworkers  delivered/s  CPU s per worker   load  per CPU s of the busiest")
        found: dict[int, list[Run]] = {1: [], 2: []}
        for _ in range(options.runs):
            for workers, runs in found.items():
                one = measure(workers, light, options.seconds)
                runs.append(one)
                used = " ".join(f"{each:.2f}" for each in one.cpu_s)
                print(
                    f"{workers:7}  {one.delivered_per_s:11,.0f}  {used:>16}  {one.load_share:5.0%}"
                    f"  {one.per_busiest_cpu_s:11,.0f}",
                    flush=True,
                )
        clock, cpu = (
            statistics.median(getattr(one, name) for one in found[2])
            / statistics.median(getattr(one, name) for one in found[1])
            for name in ("delivered_per_s", "per_busiest_cpu_s")
        )
        print(f"two workers against one: {clock:.2f} by the clock, {cpu:.2f} by the busiest's CPU")


if __name__ == "__main__":
    main()
