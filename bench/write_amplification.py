"""Bytes written per byte of message, penstock beside RabbitMQ: `python -m bench.write_amplification`.

Persistent messages of 1 KiB, published over AMQP by pika: COUNT (20,000) in transactions of 500 to a queue
whose consumer keeps up, as many one by one without confirms to a stream, and COUNT / 400 in transactions
to 1,000 queues bound to one fanout exchange (RabbitMQ writes each of these 1,000 times). Counted is
`write_bytes` of /proc/PID/io of the broker's processes, from before the first message until 5 s after the
last: pages made dirty, whether or not the disk has them. RabbitMQ is Debian's package with its defaults.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic

from bench.cpu import descendants
from tests.support.brokers import Broker, Gateway, RabbitMQ

SIZE = 1024
WINDOW = 500
SETTLE_S = 5.0


def written(root: int) -> int:
    """Bytes that a process tree has caused to be written."""
    total = 0
    for pid in descendants(root):
        fields = dict(line.split(": ") for line in Path("/proc", str(pid), "io").read_text().splitlines())
        total += int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])
    return total


def _publish(channel: BlockingChannel, exchange: str, key: str, count: int) -> None:
    """In transactions of WINDOW messages: a commit returns when the disk has them."""
    rng = random.Random(1)
    channel.tx_select()
    for number in range(1, count + 1):
        channel.basic_publish(exchange, key, rng.randbytes(SIZE), pika.BasicProperties(delivery_mode=2))
        if number % WINDOW == 0 or number == count:
            channel.tx_commit()


def short_queue(channel: BlockingChannel, consumer: BlockingChannel, count: int) -> int:
    """A queue whose consumer keeps up; the bytes of its messages."""
    got = 0

    def take(_channel: object, method: Basic.Deliver, _properties: object, _body: bytes) -> None:
        nonlocal got
        got += 1
        consumer.basic_ack(method.delivery_tag)

    consumer.basic_qos(prefetch_count=WINDOW)
    consumer.basic_consume("short", take)
    while got < count:
        if got % WINDOW == 0:
            _publish(channel, "", "short", WINDOW)
        consumer.connection.process_data_events(time_limit=0.1)
    return got * SIZE


def stream(channel: BlockingChannel, _: BlockingChannel, count: int) -> int:
    """A stream that keeps everything."""
    rng = random.Random(1)
    for _number in range(count):
        channel.basic_publish("", "kept", rng.randbytes(SIZE), pika.BasicProperties(delivery_mode=2))
    return count * SIZE


def fanout(channel: BlockingChannel, _: BlockingChannel, count: int) -> int:
    """1,000 queues that get every message, and nobody who takes it."""
    _publish(channel, "fan", "", count // 400)
    return count // 400 * SIZE


def declare_short_queue(channel: BlockingChannel) -> None:
    """The queue that `short_queue` publishes to."""
    channel.queue_declare("short", durable=True)


def declare_stream(channel: BlockingChannel) -> None:
    """The stream that `stream` publishes to."""
    channel.queue_declare("kept", durable=True, arguments={"x-queue-type": "stream"})


def declare_fanout(channel: BlockingChannel) -> None:
    """The exchange that `fanout` publishes to."""
    channel.exchange_declare("fan", "fanout", durable=True)
    for number in range(1000):
        channel.queue_declare(f"fan-{number}", durable=True)
        channel.queue_bind(f"fan-{number}", "fan")


Workload = tuple[Callable[[BlockingChannel], None], Callable[[BlockingChannel, BlockingChannel, int], int]]
WORKLOADS: dict[str, Workload] = {
    "queue whose consumer keeps up": (declare_short_queue, short_queue),
    "stream": (declare_stream, stream),
    "fan-out to 1,000 queues": (declare_fanout, fanout),
}


def _measure(broker: Broker, workload: str, count: int) -> float:
    parameters = pika.ConnectionParameters(port=broker.amqp_port, heartbeat=0)
    publisher, consumer = pika.BlockingConnection(parameters), pika.BlockingConnection(parameters)
    declare, publish = WORKLOADS[workload]
    declare(publisher.channel())
    time.sleep(SETTLE_S)
    before = written(broker.pid)
    nbytes = publish(publisher.channel(), consumer.channel(), count)
    time.sleep(SETTLE_S)
    after = written(broker.pid)
    publisher.close()
    consumer.close()
    return (after - before) / nbytes


def main() -> None:
    """Run all and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--only", choices=list(WORKLOADS), default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for workload in [arguments.only] if arguments.only else WORKLOADS:
            for make in (Gateway, RabbitMQ):
                broker: Broker = make(Path(folder) / f"{make.name}-{len(workload)}")
                with broker:
                    factor = _measure(broker, workload, arguments.count)
                print(f"{workload:32} {broker.name:10} {factor:10.2f}", flush=True)


if __name__ == "__main__":
    main()
