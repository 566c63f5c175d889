"""Clients that come and go: CPU of the broker per connect with login, and a storm of clients after a restart.

python -m bench.connections.churn [--only PART] [--connects N] [--storm N] [--repeat N] [--brokers A,B,...]

Clients are driven by the compiled loop in logins.c, eight at a time. AMQP clients open a channel and give a
password; MQTT clients give none. Rows: logins, plain and over TLS; take-overs, in which each client takes the
session of the one before it; persistent sessions that come back; and a storm, in which the broker has just
started and all clients connect at once and stay. In `mqtt_retained` one client publishes messages of QoS 1,
each retained for a topic of its own; there `--connects` counts the hundreds of messages. Brokers take turns,
and medians are printed. `bar` compares with Mosquitto (MQTT) or RabbitMQ (AMQP): CPU per client or retained
message, and the time of a storm.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bench.connections.logins import AMQP_LOGIN, Script, come_and_go, mqtt_login
from bench.connections.places import Place, allow_open_files, started
from bench.cpu import cpu_seconds, wait_until_idle
from bench.load import read_exactly
from bench.load_mqtt import PUBACK_BYTES, open_session, retained_packets
from tests.support.brokers import BrokerMissing

__all__ = ["ROWS", "Churn", "Row", "measure"]

_AT_ONCE: Final = 8
_UNANSWERED: Final = 1000
_RETAINED_BYTES: Final = 100
_runs: Final = itertools.count()
_PEERS: Final = {"mqtt": "mosquitto", "amqp": "rabbitmq"}


@dataclass(frozen=True, slots=True)
class Row:
    """One load."""

    name: str
    protocol: Literal["mqtt", "amqp"] = "mqtt"
    layer: Literal["tcp", "tls"] = "tcp"
    kind: Literal["login", "takeover", "return", "storm", "retain"] = "login"
    bar: float = 1.0
    """CPU per client, at most, as a part of the peer's; of a storm, the time."""

    def script(self) -> Script:
        """The words of each client in one run."""
        if self.protocol == "amqp":
            return AMQP_LOGIN
        takes_over = self.kind == "takeover"
        return mqtt_login(clean=self.kind != "return", same=takes_over, leaves=not takes_over)


ROWS: Final = (
    Row("mqtt_logins", bar=1.5),
    Row("mqtt_logins_tls", layer="tls"),
    Row("mqtt_takeovers", kind="takeover", bar=1.5),
    Row("mqtt_persistent_returns", kind="return", bar=1.5),
    Row("mqtt_retained", kind="retain", bar=1.5),
    Row("amqp_logins", protocol="amqp"),
    Row("amqp_logins_tls", protocol="amqp", layer="tls"),
    Row("mqtt_storm", kind="storm"),
    Row("amqp_storm", protocol="amqp", kind="storm"),
)


@dataclass(frozen=True, slots=True)
class Churn:
    """The figures of one run."""

    cpu_us: float
    """Of the broker, per client that asked."""
    per_s: float
    slowest_s: float
    """Of one client, until it was logged in."""
    refused: int
    """Clients without a login."""


def _retain(place: Place, count: int) -> Churn:
    """`count` messages, `_UNANSWERED` at a time; the CPU counts until the broker has stored the last one."""
    wait_until_idle(place.pid, 5.0)
    slowest_s = 0.0
    with closing(open_session(place.port("mqtt"), "retains")) as publisher:
        cpu_s, began = cpu_seconds(place.pid), time.perf_counter()
        begin = next(_runs) * count  # other topics than in the last run
        for first in range(begin, begin + count, _UNANSWERED):
            some = range(first, min(first + _UNANSWERED, begin + count))
            packets, sent = retained_packets(some, b"x" * _RETAINED_BYTES), time.perf_counter()
            publisher.sendall(packets)
            read_exactly(publisher, PUBACK_BYTES * len(some))
            slowest_s = max(slowest_s, time.perf_counter() - sent)
        per_s = count / (time.perf_counter() - began)
        wait_until_idle(place.pid, 5.0)
        cpu_us = (cpu_seconds(place.pid) - cpu_s) * 1e6 / count
    return Churn(cpu_us, per_s, slowest_s, 0)


def measure(row: Row, place: Place, count: int) -> Churn:
    """One run of `count` clients; the CPU counts until the broker has put the last one away."""
    if row.kind == "retain":
        return _retain(place, 100 * count)
    port, tls, script = place.port(row.protocol, row.layer), row.layer == "tls", row.script()
    if row.kind == "return":
        come_and_go(script, port, count, window=_AT_ONCE, tls=tls)
    wait_until_idle(place.pid, 5.0)
    cpu_s = cpu_seconds(place.pid)
    overlap, keep = row.kind == "takeover", row.kind == "storm"
    window = 1 if overlap else _AT_ONCE
    came = come_and_go(script, port, count, window=window, keep=keep, overlap=overlap, tls=tls)
    wait_until_idle(place.pid, 5.0)
    cpu_us = (cpu_seconds(place.pid) - cpu_s) * 1e6 / count
    return Churn(cpu_us, came.per_s, came.slowest_s, came.refused)


def _storm(row: Row, name: str, folder: Path, count: int) -> Churn:
    """The same in a broker that has just started."""
    folder.mkdir(parents=True)
    with started(name, folder) as place:
        return measure(row, place, count)


def report(row: Row, found: dict[str, list[Churn]]) -> str:
    """The row's lines of the table."""
    middle = {
        name: Churn(*[statistics.median(getattr(run, field) for run in runs) for field in Churn.__slots__])
        for name, runs in found.items()
    }
    lines = []
    peer = middle.get(_PEERS[row.protocol])
    for name, run in middle.items():
        bar = ""
        if name == "penstock" and peer is not None:
            ratio = peer.per_s / run.per_s if row.kind == "storm" else run.cpu_us / peer.cpu_us
            bar = f"{ratio:.2f} of {row.bar:g}{'' if ratio <= row.bar else ' MISSED'}"
        lines.append(
            f"| {row.name} | {name} | {run.cpu_us:.0f} | {run.per_s:,.0f} | {run.slowest_s:.2f} "
            f"| {run.refused:.0f} | {bar} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.connections.churn", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", default="", metavar="PART", help="rows whose name contains this")
    parser.add_argument("--connects", type=int, default=3000, help="eight at a time; default: 3000")
    parser.add_argument("--storm", type=int, default=20_000, help="at once; default: 20000")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median counts; default: 3")
    parser.add_argument("--brokers", default="penstock,mosquitto,rabbitmq", help="comma separated")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends all that was started
    rows = [row for row in ROWS if options.only in row.name]
    storms = any(row.kind == "storm" for row in rows)
    need = options.storm + 200 if storms else 0
    most = allow_open_files(need)
    if most < need:
        parser.error(f"--storm {options.storm} needs more open files than the limit of {most}: ulimit -n")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places: dict[str, Place] = {}
        for name in options.brokers.split(","):
            try:
                places[name] = stack.enter_context(started(name, folder))
            except BrokerMissing as error:
                print(f"without {name}: {error}", file=sys.stderr)
        print("| load | broker | CPU us per client | per s | slowest s | refused | bar |")
        print("|---|---|---|---|---|---|---|")
        for row in rows:
            runs: dict[str, list[Churn]] = {}
            for i in range(options.repeat):
                for name, place in places.items():
                    if not place.port(row.protocol, row.layer):
                        continue
                    if row.kind == "storm":
                        run = _storm(row, name, folder / f"{row.name}-{name}-{i}", options.storm)
                    else:
                        run = measure(row, place, options.connects)
                    runs.setdefault(name, []).append(run)
            print(report(row, runs), flush=True)


if __name__ == "__main__":
    main()
