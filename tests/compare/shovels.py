"""A shovel between two queues of one broker, penstock beside RabbitMQ: python -m tests.compare.shovels.

Prints messages per second, and the CPU time of the broker's process. Both run one after the other.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import httpx
from pamqp import commands

from tests.support.amqp_client import Connection
from tests.support.brokers import Broker, Gateway, RabbitMQ
from tests.support.management import SETTINGS

_LIMIT_S = 600.0
_BATCH = 1000


def _fill(port: int, count: int, size: int) -> None:
    """Publish persistent messages, with confirms."""
    kept = commands.Basic.Properties(delivery_mode=2)
    with Connection(port) as connection:
        connection.channel()
        connection.call(1, commands.Queue.Declare(queue="from", durable=True))
        connection.call(1, commands.Confirm.Select())
        for first in range(0, count, _BATCH):
            for _ in range(_BATCH):
                connection.publish(1, "", "from", b"x" * size, properties=kept)
            confirmed: set[int] = set()
            while len(confirmed) < _BATCH:
                ack = connection.wait_for(commands.Basic.Ack)
                assert isinstance(ack, commands.Basic.Ack)
                tags = range(first + 1, ack.delivery_tag + 1) if ack.multiple else (ack.delivery_tag,)
                confirmed.update(tags)


def _cpu_s(pid: int) -> float:
    """CPU time of a process so far. Source: proc(5), stat."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _measure(broker: Broker, management_port: int, count: int, size: int) -> str:
    _fill(broker.amqp_port, count, size)
    value = {"src-uri": "amqp://", "src-queue": "from", "dest-uri": "amqp://", "dest-queue": "to"}
    url = f"http://127.0.0.1:{management_port}/api/parameters/shovel/%2F/bench"
    with Connection(broker.amqp_port) as connection:
        connection.channel()
        connection.call(1, commands.Queue.Declare(queue="to", durable=True))
        cpu_s, began = _cpu_s(broker.pid), time.monotonic()
        httpx.put(url, auth=("guest", "guest"), json={"value": value}, timeout=60).raise_for_status()
        moved = 0
        while moved < count and time.monotonic() - began < _LIMIT_S:
            time.sleep(0.02)
            connection.send(1, commands.Queue.Declare(queue="to", passive=True))
            found = connection.wait_for(commands.Queue.DeclareOk)
            assert isinstance(found, commands.Queue.DeclareOk)
            moved = found.message_count or 0
        took_s = time.monotonic() - began
        cpu_s = _cpu_s(broker.pid) - cpu_s
    return f"{broker.name:<10}{moved / took_s:>10,.0f} messages/s{cpu_s:>8.1f} s of CPU"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.compare.shovels")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100, help="of a body, in bytes")
    options = parser.parse_args()
    plugins = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        with Gateway(folder / "penstock", settings=SETTINGS) as gateway:
            print(_measure(gateway, gateway.ports["management"], options.messages, options.size))
        with RabbitMQ(folder / "rabbitmq", plugins=plugins) as rabbitmq:
            print(_measure(rabbitmq, rabbitmq.management_port, options.messages, options.size))


if __name__ == "__main__":
    main()
