"""Many connections, one small message each: penstock, Mosquitto, RabbitMQ and the least that is possible.

python -m bench.connections [--only PART] [--seconds S] [--repeat N] [--brokers penstock,mosquitto,...]

All brokers run at once on free loopback ports and take turns row by row, so that a slow minute of the machine
hits all of them. The medians of the runs are printed as a table: CPU of the broker's processes per delivered
message, messages per second, latencies, and system calls per message where `perf` can count them. "limit" is
limit.c, which receives and sends and does nothing else. "limit_uring", which runs when asked for, is the
same on io_uring. penstock-settled confirms durable messages that are
settled at once without the disk (`log.confirm_settled`). `bar` says what the row's peer allows penstock, and
`unfair` how many times as long as the mean the slowest publisher of a closed load waited. In the row with a
flood the CPU is that of the flood, too.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.connections.calls import calls_counted
from bench.connections.drive import opened
from bench.connections.places import BROKERS, SETTLED, Place, allow_open_files, started
from bench.connections.rows import ROWS, Row
from bench.cpu import cpu_seconds, wait_until_idle
from bench.load import LoadFailed
from tests.support.brokers import BrokerMissing

UNFAIR_BAR = 5.0
"""Of 1,000 publishers of a closed load, none waits for its answer longer than so many times the mean."""
PEERS = {"mqtt": "mosquitto", "amqp": "rabbitmq"}


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one run, or of several in the middle."""

    cpu_us: float
    per_s: float
    p50_us: float
    p99_us: float
    gap_ms: float
    calls: float


def measure(row: Row, place: Place, seconds: float) -> Run:
    """Load a broker: to warm it up, then the measured window, then a short one to count system calls in."""
    with opened(row, place.port(row.protocol, row.layer)) as clients:
        clients.run(min(seconds / 2, 1.0))
        wait_until_idle(place.pid, 5.0)
        before = cpu_seconds(place.pid)
        seen = clients.run(seconds)
        cpu_s = cpu_seconds(place.pid) - before
        calls: list[int] = []
        with calls_counted(place.pid, calls):
            counted = clients.run(min(seconds, 0.5))
    return Run(
        cpu_us=cpu_s * 1e6 / max(seen.delivered, 1),
        per_s=seen.delivered / seen.seconds,
        p50_us=seen.p50_us,
        p99_us=seen.p99_us,
        gap_ms=seen.slowest_gap_ms,
        calls=calls[0] / max(counted.delivered, 1) if calls else 0.0,
    )


def middle(runs: list[Run]) -> Run:
    """The median of each figure."""
    fields = Run.__slots__
    return Run(**{name: statistics.median(getattr(run, name) for run in runs) for name in fields})


def report(row: Row, found: dict[str, Run]) -> str:
    """The row's lines of the table."""
    lines = []
    peer = found.get(PEERS[row.protocol])
    for name, run in found.items():
        bar = ""
        if name in ("penstock", SETTLED) and peer is not None:
            ratio = run.cpu_us / peer.cpu_us
            bar = f"{ratio:.2f} of {row.bar:g}{'' if ratio <= row.bar else ' MISSED'}"
        if name in ("penstock", SETTLED) and row.p99_bar_ms:
            kept = run.p99_us <= row.p99_bar_ms * 1000
            bar = f"p99 of {row.p99_bar_ms:g} ms{'' if kept else ' MISSED'}"
        unfair = ""
        if row.closed:
            times = run.gap_ms * run.per_s / 1000 / row.publishers
            missed = name == "penstock" and row.publishers >= 1000 and times > UNFAIR_BAR
            unfair = f"{times:.1f}{' MISSED' if missed else ''}"
        lines.append(
            f"| {row.name} | {name} | {run.cpu_us:.1f} | {run.per_s:,.0f} | {run.p50_us:,.0f} "
            f"| {run.p99_us:,.0f} | {unfair} | {run.calls:.2f} | {bar} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.connections", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", default="", metavar="PART", help="rows whose name contains this")
    parser.add_argument("--brokers", default=",".join(BROKERS), help="comma separated; default: all")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measured window; default: 3")
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the median counts; default: 5")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends all that was started
    rows = [row for row in ROWS if options.only in row.name]
    most = allow_open_files(max((row.connections for row in rows), default=0) + 200)
    for row in [row for row in rows if row.connections + 200 > most]:
        print(f"without {row.name}: only {most} files may be open: ulimit -n", file=sys.stderr)
        rows.remove(row)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places: dict[str, Place] = {}
        for name in options.brokers.split(","):
            if name == "rabbitmq" and not any(row.protocol == "amqp" for row in rows):
                continue
            try:
                places[name] = stack.enter_context(started(name, folder))
            except BrokerMissing as error:
                print(f"without {name}: {error}", file=sys.stderr)
        print("| row | broker | CPU us | per s | p50 us | p99 us | unfair | system calls | bar |")
        print("|---|---|---|---|---|---|---|---|---|")
        for row in rows:
            runs: dict[str, list[Run]] = {}
            for _ in range(options.repeat):
                for name, place in places.items():
                    settled = name == SETTLED and not row.settles_at_once
                    if settled or not place.port(row.protocol, row.layer):
                        continue
                    try:
                        runs.setdefault(name, []).append(measure(row, place, options.seconds))
                    except (LoadFailed, OSError, RuntimeError) as error:
                        print(f"{row.name} on {name}: {error}", file=sys.stderr)
            print(report(row, {name: middle(some) for name, some in runs.items() if some}), flush=True)


if __name__ == "__main__":
    main()
