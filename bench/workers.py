"""One worker against two: the same load in two vhosts, and what each process uses of the CPU.

python -m bench.workers [--seconds 6] [--runs 3] [--workload NAME]

Two vhosts have a publisher and a consumer each. With one worker both are that one's; with two, each has one.
Where the cores are shared with the clients, and with others, the wall clock says little about what the
gateway could move on cores of its own: that is messages per CPU second of the busiest worker, since a worker
has one thread that moves messages. Both are shown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.cpu import cpu_seconds, descendants
from tests.support.brokers import Gateway

_VHOSTS = ("/", "b")


@dataclass(frozen=True, slots=True)
class Run:
    """One run with so many workers."""

    workers: int
    delivered: int
    """Messages, of both vhosts together."""
    delivered_per_s: float
    cpu_s: tuple[float, ...]
    """Of each worker; the largest first."""

    @property
    def per_busiest_cpu_s(self) -> float:
        """Messages per CPU second of the busiest worker."""
        return self.delivered / self.cpu_s[0]


def measure(workers: int, workload: str, seconds: float) -> Run:
    """Start a gateway, load both vhosts at the same time, stop it."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        settings = {"server.workers": str(workers), "management.listen": "127.0.0.1:0"}
        with Gateway(Path(folder), settings=settings) as gateway:
            url = f"http://127.0.0.1:{gateway.ports['management']}/api/vhosts/b"
            httpx.put(url, auth=("guest", "guest"), timeout=60).raise_for_status()
            pids = [pid for pid in descendants(gateway.pid) if workers == 1 or pid != gateway.pid]
            before = {pid: cpu_seconds(pid) for pid in pids}
            runs = [_start(gateway.amqp_port, vhost, workload, seconds) for vhost in _VHOSTS]
            results = [json.loads(run.communicate()[0]) for run in runs]
            if any(run.returncode for run in runs):
                raise SystemExit("a load failed")
            used = sorted((cpu_seconds(pid) - before[pid] for pid in pids), reverse=True)
    if lost := sum(result["lost"] for result in results):
        raise SystemExit(f"{lost} messages were lost")
    return Run(
        workers,
        sum(result["delivered_total"] for result in results),
        sum(result["delivered_per_s"] for result in results),
        tuple(used),
    )


def _start(port: int, vhost: str, workload: str, seconds: float) -> subprocess.Popen[str]:
    words = ["--port", str(port), "--vhost", vhost, "--seconds", str(seconds)]
    return subprocess.Popen(
        [sys.executable, "-m", "bench.run", workload, *words], stdout=subprocess.PIPE, text=True
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--workload", default="amqp_durable_confirm_ack_100B_1_to_1", help="an AMQP workload of bench.run"
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each window")
    parser.add_argument("--runs", type=int, default=3, help="of each kind, in turns")
    options = parser.parse_args()
    print("workers  delivered/s  CPU s per worker  delivered per CPU s of the busiest")
    found: dict[int, list[Run]] = {1: [], 2: []}
    for _ in range(options.runs):
        for workers, runs in found.items():
            run = measure(workers, options.workload, options.seconds)
            runs.append(run)
            used = " ".join(f"{one:.2f}" for one in run.cpu_s)
            print(f"{workers:7}  {run.delivered_per_s:11,.0f}  {used:>16}  {run.per_busiest_cpu_s:11,.0f}")
    wall, cpu = (
        max(getattr(run, name) for run in found[2]) / max(getattr(run, name) for run in found[1])
        for name in ("delivered_per_s", "per_busiest_cpu_s")
    )
    print(f"two workers against one: {wall:.2f} by the clock, {cpu:.2f} by the CPU of the busiest")


if __name__ == "__main__":
    main()
