"""Clients that come and go: CPU of the broker per connect with login, and a storm of clients at once.

python -m bench.connections.churn [--connects N] [--storm N] [--repeat N] [--brokers penstock,mosquitto,...]

One after another, each client connects, logs in and closes. AMQP clients open a channel and give a password;
MQTT clients give none. In a storm all MQTT clients send their CONNECT before the first one reads its answer.
Brokers take turns, and medians are printed. The rate has the load's own Python in it. The CPU has not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from bench import load_amqp, load_mqtt
from bench.connections.__main__ import Place, started
from bench.cpu import cpu_seconds, wait_until_idle
from bench.load import connect, read_exactly
from tests.support.brokers import BrokerMissing

__all__ = ["Churn", "amqp_logins", "measure", "mqtt_logins", "mqtt_storm"]

_CONNACK_BYTES = 4


@dataclass(frozen=True, slots=True)
class Churn:
    """The figures of one run."""

    cpu_us: float
    """Of the broker, per client that asked."""
    per_s: float
    refused: int
    """Clients without a login."""


def mqtt_logins(port: int, count: int) -> int:
    """Connect, log in and close, one client after another; a refused one raises."""
    for i in range(count):
        load_mqtt.open_session(port, f"churn-{os.getpid()}-{i}").close()
    return 0


def amqp_logins(port: int, count: int) -> int:
    """Connect, log in, open a channel and close, one client after another; a refused one raises."""
    for _ in range(count):
        with closing(load_amqp.Client(port)):
            pass
    return 0


def mqtt_storm(port: int, count: int) -> int:
    """All clients ask at once; returns how many were refused."""
    refused = 0
    with ExitStack() as stack:
        waiting = []
        for i in range(count):
            try:
                s = stack.enter_context(closing(connect(port)))
                client_id = load_mqtt.utf8(f"storm-{os.getpid()}-{i}")
                head = load_mqtt.utf8("MQTT") + b"\x04\x02" + struct.pack(">H", 0)
                s.sendall(load_mqtt.packet(0x10, head + client_id))
            except OSError:
                refused += 1
            else:
                waiting.append(s)
        for s in waiting:
            answer = b""
            with contextlib.suppress(OSError, EOFError):
                answer = read_exactly(s, _CONNACK_BYTES)
            refused += answer[:1] != b"\x20" or answer[3] != 0
    return refused


def measure(load: Callable[[int, int], int], pid: int, port: int, count: int) -> Churn:
    """One run; the CPU counts until the broker has put the last client away."""
    wait_until_idle(pid, 5.0)
    cpu_s, began = cpu_seconds(pid), time.monotonic()
    refused = load(port, count)
    took_s = time.monotonic() - began
    wait_until_idle(pid, 5.0)
    return Churn((cpu_seconds(pid) - cpu_s) * 1e6 / count, count / took_s, refused)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.connections.churn", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--connects", type=int, default=3000, help="one after another; default: 3000")
    parser.add_argument("--storm", type=int, default=5000, help="at once; default: 5000")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the median counts; default: 3")
    parser.add_argument("--brokers", default="penstock,mosquitto,rabbitmq", help="comma separated")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.storm + 100 > hard:
        parser.error(
            f"--storm {options.storm} needs more open files than the limit of {hard}: raise ulimit -n"
        )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places: dict[str, Place] = {}
        for name in options.brokers.split(","):
            try:
                places[name] = stack.enter_context(started(name, folder))
            except BrokerMissing as error:
                print(f"without {name}: {error}", file=sys.stderr)
        print("| load | broker | CPU us per client | per s | refused |\n|---|---|---|---|---|")
        loads = (
            ("mqtt_logins", mqtt_logins, options.connects, False),
            ("amqp_logins", amqp_logins, options.connects, True),
            ("mqtt_storm", mqtt_storm, options.storm, False),
        )
        for title, load, count, amqp in loads:
            runs: dict[str, list[Churn]] = {}
            for _ in range(options.repeat):
                for name, place in places.items():
                    if port := place.amqp_port if amqp else place.mqtt_port:
                        runs.setdefault(name, []).append(measure(load, place.pid, port, count))
            for name, some in runs.items():
                cpu_us, per_s = (statistics.median(getattr(r, f) for r in some) for f in ("cpu_us", "per_s"))
                refused = max(r.refused for r in some)
                print(f"| {title} | {name} | {cpu_us:.0f} | {per_s:,.0f} | {refused} |", flush=True)


if __name__ == "__main__":
    main()
