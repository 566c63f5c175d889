"""Faults of nodes and brokers under publishers with confirms: `python -m tests.cluster.faults --faults 100`.

Each fault comes in turn, chosen by the seed. Publishers of AMQP and MQTT go on all the time, at any node that
answers. At the end every confirmed message must be there, in order, and the folders of all nodes are equal.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import paho.mqtt.client as paho
import pika
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

from bench.kafka import Kafka, jars
from tests.support.cluster import Node, make_nodes, start_brokers, wait_for_owner

SETTLE_S = 20.0


@dataclass
class Report:
    """The verdict of one run."""

    confirmed: int = 0
    lost: list[str] = field(default_factory=list)
    repeated: int = 0
    in_order: bool = True
    pauses: dict[str, list[float]] = field(default_factory=dict)
    """Longest times without a confirm, by fault."""


class Publisher(threading.Thread):
    """Publishes numbered messages with confirms, one at a time, at any node that answers."""

    def __init__(self, nodes: list[Node], queue: str, pause_s: float = 0.0) -> None:
        """`pause_s`: seconds between two messages."""
        super().__init__(daemon=True)
        self._pause_s = pause_s
        self.queue = queue
        self.confirmed: list[int] = []
        self.times: list[float] = []
        self.stopping = threading.Event()
        self._nodes = nodes
        self._next = 0

    def run(self) -> None:
        turn = 0
        while not self.stopping.is_set():
            turn += 1
            try:
                self.publish(self._nodes[turn % len(self._nodes)])
            except (AMQPError, AMQPConnectorException, OSError, TimeoutError):
                self.stopping.wait(0.02)

    def publish(self, node: Node) -> None:
        raise NotImplementedError

    def said(self) -> None:
        self.confirmed.append(self._next)
        self.times.append(time.monotonic())
        self._next += 1
        if self._pause_s:
            self.stopping.wait(self._pause_s)

    def longest_since(self, began: float) -> float:
        """The longest time without a confirm from `began` on."""
        times = [began, *(at for at in list(self.times) if at >= began), time.monotonic()]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


class AmqpPublisher(Publisher):
    def publish(self, node: Node) -> None:
        parameters = pika.ConnectionParameters(
            "127.0.0.1",
            node.amqp_port,
            socket_timeout=2,
            stack_timeout=4,
            blocked_connection_timeout=4,
            heartbeat=2,
        )
        connection = pika.BlockingConnection(parameters)
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare(self.queue, durable=True)
            durable = pika.BasicProperties(delivery_mode=2)
            while not self.stopping.is_set():
                channel.basic_publish("", self.queue, b"%d" % self._next, durable)
                self.said()
        finally:
            if connection.is_open:
                connection.close()


class MqttPublisher(Publisher):
    """At QoS 1; the messages go to the queue by the topic exchange."""

    def publish(self, node: Node) -> None:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.connect_timeout = 2
        gone = threading.Event()
        client.on_disconnect = lambda *_: gone.set()
        client.connect("127.0.0.1", node.mqtt_port, keepalive=2)
        client.loop_start()
        try:
            while not self.stopping.is_set():
                sent = client.publish(self.queue, b"%d" % self._next, qos=1)
                until = time.monotonic() + 4
                while not sent.is_published():
                    sent.wait_for_publish(0.02)
                    if gone.is_set() or time.monotonic() > until:
                        raise TimeoutError
                self.said()
        except (ValueError, RuntimeError) as error:
            raise OSError(error) from error
        finally:
            client.disconnect()
            client.loop_stop()


# Faults: each ends with all processes running.


def kill_process(nodes: list[Node], brokers: list[Kafka], chance: random.Random) -> None:
    wait_for_owner(nodes).signal_process(signal.SIGKILL)


def kill_machine(nodes: list[Node], brokers: list[Kafka], chance: random.Random) -> None:
    owner = wait_for_owner(nodes)
    owner.kill_machine()
    wait_for_owner([node for node in nodes if node is not owner])
    owner.launch()


def freeze(nodes: list[Node], brokers: list[Kafka], chance: random.Random) -> None:
    """Longer than the suspicion: another node serves meanwhile, and the frozen one wakes as a zombie."""
    owner = wait_for_owner(nodes)
    owner.signal_process(signal.SIGSTOP)
    try:
        wait_for_owner([node for node in nodes if node is not owner])
    finally:
        owner.signal_process(signal.SIGCONT)


def freeze_briefly(nodes: list[Node], brokers: list[Kafka], chance: random.Random) -> None:
    owner = wait_for_owner(nodes)
    owner.signal_process(signal.SIGSTOP)
    time.sleep(chance.uniform(0.2, 1.0))
    owner.signal_process(signal.SIGCONT)


def hand_over(nodes: list[Node], brokers: list[Kafka], chance: random.Random) -> None:
    owner = wait_for_owner(nodes)
    owner.terminate()
    wait_for_owner([node for node in nodes if node is not owner])
    owner.launch()


def kill_broker(nodes: list[Node], brokers: list[Kafka], chance: random.Random) -> None:
    broker = chance.choice(brokers)
    broker.kill9()
    time.sleep(chance.uniform(0.5, 8.0))
    broker.start()


def freeze_broker(nodes: list[Node], brokers: list[Kafka], chance: random.Random) -> None:
    broker = chance.choice(brokers)
    os.kill(broker.pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0.5, 8.0))
    os.kill(broker.pid, signal.SIGCONT)


FAULTS: list[Callable[[list[Node], list[Kafka], random.Random], None]] = [
    kill_process,
    kill_machine,
    freeze,
    freeze_briefly,
    hand_over,
    kill_broker,
    freeze_broker,
]


def run(
    folder: Path, kafka: list[Kafka], *, nodes: int, faults: list[str], seed: int, pause_s: float = 0.0
) -> Report:
    """Run the faults in turn over brokers that serve; the verdict. The nodes are ended.

    `pause_s`: of each publisher, between two messages.
    """
    chance = random.Random(seed)
    report = Report()
    with ExitStack() as ends:
        gateways = make_nodes(folder, kafka, "abcdef"[:nodes])
        for node in gateways:
            ends.callback(node.kill9)
            node.launch()
        wait_for_owner(gateways)
        prepare(gateways)
        publishers: list[Publisher] = [
            AmqpPublisher(gateways, "amqp", pause_s),
            MqttPublisher(gateways, "mqtt", pause_s),
        ]
        for publisher in publishers:
            publisher.start()
            while not publisher.confirmed:
                publisher.join(0.02)
        for name in faults:
            began = time.monotonic()
            next(fault for fault in FAULTS if fault.__name__ == name)(gateways, kafka, chance)
            settle(publishers, began, gateways)
            pauses = [publisher.longest_since(began) for publisher in publishers]
            report.pauses.setdefault(name, []).append(max(pauses))
            print(f"{name}: {max(pauses):.2f} s without a confirm", flush=True)
        for publisher in publishers:
            publisher.stopping.set()
            publisher.join(30)
        for publisher in publishers:
            judge(report, publisher, gateways)
        compare(gateways)
        for node in gateways:
            node.terminate()
    return report


def connect(nodes: list[Node]) -> pika.BlockingConnection:
    owner = wait_for_owner(nodes)
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", owner.amqp_port))


def prepare(nodes: list[Node]) -> None:
    """The queues, and the binding of the MQTT topic."""
    for attempt in range(20):
        try:
            connection = connect(nodes)
            channel = connection.channel()
            for queue in ("amqp", "mqtt"):
                channel.queue_declare(queue, durable=True)
            channel.queue_bind("mqtt", "amq.topic", "mqtt")
            connection.close()
        except AMQPError:  # several new nodes claimed at once, and this one was replaced
            if attempt == 19:
                raise
            time.sleep(0.5)
        else:
            return


def settle(publishers: list[Publisher], began: float, nodes: list[Node]) -> None:
    """Wait until each publisher is confirmed again, and each node follows."""
    after = time.monotonic()
    while any(not publisher.times or publisher.times[-1] < after for publisher in publishers):
        if time.monotonic() - after > 60:
            raise AssertionError("\n".join(f"{node.folder.name}:\n{node.log_tail(15)}" for node in nodes))
        time.sleep(0.05)
    for node in nodes:
        node.wait_until_serving()
    while sum(node.is_owner for node in nodes) != 1:  # one that was replaced has not noticed yet
        if time.monotonic() - after > 60:
            raise AssertionError("several nodes say that they are the owner")
        time.sleep(0.05)


def judge(report: Report, publisher: Publisher, nodes: list[Node]) -> None:
    """Read the queue to its end."""
    connection = connect(nodes)
    channel = connection.channel()
    found: list[int] = []
    while True:
        method, _, body = channel.basic_get(publisher.queue, auto_ack=True)
        if method is None:
            break
        found.append(int(body))
    connection.close()
    there = set(found)
    report.confirmed += len(publisher.confirmed)
    report.lost += [f"{publisher.queue} {it}" for it in publisher.confirmed if it not in there]
    report.repeated += len(found) - len(there)
    report.in_order &= found == sorted(found)


def compare(nodes: list[Node]) -> None:
    """The folders of all nodes become equal when nothing is published any more."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        folders = [contents(node.data_dir) for node in nodes]
        if all(folder == folders[0] for folder in folders):
            return
        if time.monotonic() > deadline:
            names = {name for folder in folders for name in folder}
            odd = [name for name in names if len({folder.get(name) for folder in folders}) > 1]
            raise AssertionError(f"the folders differ in {sorted(odd)}")
        time.sleep(0.3)


def contents(data_dir: Path) -> dict[str, bytes]:
    found = {}
    for path in data_dir.glob("shard-000/**/*"):
        try:
            if path.is_file() and not path.name.endswith((".new", ".part")):
                found[str(path.relative_to(data_dir))] = path.read_bytes()
        except FileNotFoundError:
            continue
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", default="", help="names of faults, separated by commas")
    parser.add_argument("--jars", type=Path, default=Path("build/kafka"))
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else [fault.__name__ for fault in FAULTS]
    order = [chosen[number % len(chosen)] for number in range(options.faults)]
    random.Random(options.seed).shuffle(order)
    print(f"seed {options.seed}, {options.brokers} brokers, {options.nodes} nodes")
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="penstock-cluster-")))
        kafka = start_brokers(ends, folder, jars(options.jars.absolute()), options.brokers)
        report = run(folder, kafka, nodes=options.nodes, faults=order, seed=options.seed)
    for name, pauses in sorted(report.pauses.items()):
        print(f"{name}: {len(pauses)} times, longest without a confirm {max(pauses):.2f} s")
    print(
        f"{report.confirmed} confirmed, {len(report.lost)} lost, {report.repeated} repeated, "
        f"{'in order' if report.in_order else 'OUT OF ORDER'}"
    )
    return 1 if report.lost or not report.in_order else 0


if __name__ == "__main__":
    sys.exit(main())
