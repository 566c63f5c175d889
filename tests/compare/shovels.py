"""A shovel between two queues of one broker, penstock beside RabbitMQ: python -m tests.compare.shovels.

Prints messages per second, beside the rate at which they were published, and the CPU time of the broker's
process. One runs after the other. Exit code 0 if ours moves ten times as many as RabbitMQ's, also by AMQP
1.0, and by AMQP 0-9-1 and by the native protocol half of what a client publishes in batches.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import httpx
from pamqp import commands

from tests.crash.native_shovels import fill
from tests.support.amqp_client import Connection
from tests.support.brokers import Broker, Gateway, RabbitMQ
from tests.support.management import SETTINGS

_LIMIT_S = 600.0
_UNDER_WAY = 1000
"""RabbitMQ's default prefetch; ours is larger."""


def _cpu_s(pid: int) -> float:
    """CPU time of a process so far. Source: proc(5), stat."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _measure(
    name: str,
    broker: Broker,
    management_port: int,
    count: int,
    size: int,
    *,
    address: str = "",
    **settings: str | int,
) -> tuple[float, float]:
    """(messages a second that were published, that the shovel moved); by AMQP 1.0 with `address`."""
    source, target = f"{name}.from", f"{name}.to"
    cpu_s = _cpu_s(broker.pid)
    published = fill(broker.amqp_port, source, count, b"x" * size)
    filled_s = _cpu_s(broker.pid) - cpu_s
    ends = {"src-uri": "amqp://", "dest-uri": "amqp://"}
    if address:
        ends |= {"src-protocol": "amqp10", "src-address": f"{address}{source}"}
        ends |= {"dest-protocol": "amqp10", "dest-address": f"{address}{target}"}
    else:
        ends |= {"src-queue": source, "dest-queue": target}
    url = f"http://127.0.0.1:{management_port}/api/parameters/shovel/%2F/{name}"
    with Connection(broker.amqp_port) as connection:
        connection.channel()
        connection.call(1, commands.Queue.Declare(queue=target, durable=True))
        cpu_s, began = _cpu_s(broker.pid), time.monotonic()
        httpx.put(
            url, auth=("guest", "guest"), json={"value": ends | settings}, timeout=60
        ).raise_for_status()
        moved = 0
        while moved < count and time.monotonic() - began < _LIMIT_S:
            time.sleep(0.02)
            connection.send(1, commands.Queue.Declare(queue=target, passive=True))
            found = connection.wait_for(commands.Queue.DeclareOk)
            assert isinstance(found, commands.Queue.DeclareOk)
            moved = found.message_count or 0
        rate = moved / (time.monotonic() - began)
        cpu_s = _cpu_s(broker.pid) - cpu_s
    rates = f"{published:>10,.0f} published/s{rate:>10,.0f} moved/s"
    cpu = f"{1e6 * filled_s / count:.2f} and {1e6 * cpu_s / count:.2f} µs of CPU for each"
    print(f"{name:<10}{rates}   {cpu}", flush=True)
    return published, rate


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.compare.shovels")
    parser.add_argument(
        "--messages", type=int, default=50_000, help="of RabbitMQ; forty times as many of ours"
    )
    parser.add_argument("--size", type=int, default=100, help="of a body, in bytes")
    options = parser.parse_args()
    plugins = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management", "rabbitmq_amqp1_0")
    settings = {**SETTINGS, "native.listen": "127.0.0.1:0"}
    size = options.size
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        with RabbitMQ(folder / "rabbitmq", plugins=plugins) as rabbitmq:
            port, count = rabbitmq.management_port, options.messages
            _, theirs = _measure("rabbitmq", rabbitmq, port, count, size)
            uri = f"amqp://guest:guest@127.0.0.1:{rabbitmq.amqp_port}"
            uris = {"src-uri": uri, "dest-uri": uri}
            _, theirs_10 = _measure("rabbitmq10", rabbitmq, port, count, size, address="/amq/queue/", **uris)
        with Gateway(folder / "penstock", settings=settings) as gateway:
            # More of them, since the time until the first one counts, too.
            port, count = gateway.ports["management"], 40 * options.messages
            uri = f"penstock://guest:guest@127.0.0.1:{gateway.ports['native']}"
            published, ours = _measure("penstock", gateway, port, count, size)
            narrow = {"src-prefetch-count": _UNDER_WAY}
            _, as_theirs = _measure("prefetch", gateway, port, count, size, **narrow)
            _, ours_10 = _measure("penstock10", gateway, port, 4 * options.messages, size, address="/queues/")
            protocol = {"src-protocol": "penstock", "dest-protocol": "penstock"}
            uris = {"src-uri": uri, "dest-uri": uri}
            filled, batches = _measure("native", gateway, port, count, size, **protocol, **uris)
    print(
        f"AMQP: {ours / theirs:.1f} times RabbitMQ's, {as_theirs / theirs:.1f} times with its prefetch; "
        f"AMQP 1.0: {ours_10 / theirs_10:.1f} times; "
        f"of publishing: AMQP {ours / published:.2f}, native {batches / filled:.2f}"
    )
    many = ours >= 10 * theirs and ours_10 >= 10 * theirs_10
    return 0 if many and ours >= published / 2 and batches >= filled / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
