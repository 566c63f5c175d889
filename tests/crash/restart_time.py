"""How long a restart takes with a large log: python -m tests.crash.restart_time --gib 1 [--size 1000].

Fills a durable queue with confirmed persistent messages, kills the broker with -9, starts it again, and
times from the start of the process: until it says it is ready, until the first confirmed publish, until the
first delivery.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.cpu import cpu_seconds, resident_bytes
from bench.load_amqp import Client, message, short_string
from tests.support.brokers import BROKERS, Broker, Gateway

QUEUE = "restart-time"
WINDOW_BYTES = 4 << 20
LIMIT_S = 2.0


def fill(port: int, count: int, size: int) -> None:
    """Publish `count` persistent messages of `size` bytes and wait until every one is confirmed."""
    client = Client(port)
    client.declare(QUEUE, durable=True)
    client.call(85, 10, b"\0", 11)
    one = message(QUEUE, size, durable=True)
    per_chunk = max(1, 262144 // len(one))
    window = max(per_chunk, WINDOW_BYTES // len(one))
    sent = confirmed = 0
    while confirmed < count:
        while sent < count and sent - confirmed + per_chunk <= window:
            batch = min(per_chunk, count - sent)
            client.socket.sendall(one * batch)
            sent += batch
        confirmed = max(confirmed, _next_confirm(client))
    client.close()


def _next_confirm(client: Client) -> int:
    tag, _ = struct.unpack(">QB", client.wait_for(60, 80)[:9])
    return int(tag)


def first_confirm_and_delivery(port: int, size: int) -> tuple[float, float]:
    """(confirm, delivery): the clock at the first confirm of a new message and at the first delivery of an
    old one.
    """
    client = Client(port)
    client.call(85, 10, b"\0", 11)
    client.socket.sendall(message(QUEUE, size, durable=True))
    client.wait_for(60, 80)
    confirmed = time.monotonic()
    client.call(60, 10, struct.pack(">IH", 0, 1) + b"\0", 11)
    client.call(60, 20, b"\0\0" + short_string(QUEUE) + short_string("t") + b"\0\0\0\0\0", 21)
    client.wait_for(60, 60)
    delivered = time.monotonic()
    client.close()
    return confirmed, delivered


def measure(broker: Broker, gib: float, size: int, rounds: int) -> list[dict[str, float]]:
    """Fill once, then kill and restart `rounds` times; seconds per round."""
    count = int(gib * (1 << 30) / size)
    began = time.monotonic()
    fill(broker.amqp_port, count, size)
    took = time.monotonic() - began
    stored = sum(f.stat().st_blocks * 512 for f in broker.data_dir.rglob("*") if f.is_file())
    print(
        f"{broker.name}: {count:,} messages of {size} B confirmed in {took:.1f} s, "
        f"{stored / (1 << 30):.2f} GiB on disk"
    )
    results = []
    for _ in range(rounds):
        broker.kill9()
        launched = time.monotonic()
        broker.launch()
        broker.wait_until_serving()
        ready, cpu_s = time.monotonic(), cpu_seconds(broker.pid)
        confirmed, delivered = first_confirm_and_delivery(broker.amqp_port, size)
        results.append(
            {
                "ready": ready - launched,
                "of CPU": cpu_s,
                "confirm": confirmed - launched,
                "delivery": delivered - launched,
                "MiB": resident_bytes(broker.pid) / (1 << 20),
            }
        )
        print(
            "  ".join(f"{k} {v:.2f}" + ("" if k == "MiB" else " s") for k, v in results[-1].items()),
            flush=True,
        )
    return results


def _made(name: str, folder: Path, whole: bool) -> Broker:
    if whole:
        return Gateway(folder, settings={"log.checkpoint_bytes": "64GiB"})
    return BROKERS[name](folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when a restart took longer than the limit to deliver again."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.restart_time", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--gib", type=float, default=1.0, help="payload to store")
    parser.add_argument("--size", type=int, default=1000, help="bytes per message")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--broker", choices=["penstock", "rabbitmq"], default="penstock")
    parser.add_argument(
        "--whole",
        action="store_true",
        help="penstock: without checkpoints, so that all of the log is scanned",
    )
    parser.add_argument("--data", metavar="DIR", help="where the data goes (default: the temporary folder)")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-restart-", dir=options.data) as folder,
        _made(options.broker, Path(folder), options.whole) as broker,
    ):
        results = measure(broker, options.gib, options.size, options.rounds)
    slowest = max(max(r["confirm"], r["delivery"]) for r in results)
    print(f"slowest {slowest:.2f} s, limit {LIMIT_S:.0f} s")
    return 0 if slowest <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
