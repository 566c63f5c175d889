"""A cluster on this machine: brokers of Kafka, and nodes of penstock over them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from bench.kafka import Kafka, cluster_id
from tests.support.brokers import BrokerFailed, Gateway, free_port

__all__ = ["SMALL_HEAP", "Node", "make_brokers", "make_nodes", "start_brokers", "wait_for_owner"]

SMALL_HEAP = ("-Xms192m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Node(Gateway):
    """One node. It serves when it is a standby, which passes clients on, or the owner."""

    def serving(self) -> bool:
        return "standby node=" in self.log_text() or super().serving()

    @property
    def is_owner(self) -> bool:
        """Whether the newest process of this node has said that it is the owner."""
        text = self.log_text()
        return text.rfind("\nready ") > text.rfind("standby node=")

    def children(self) -> list[int]:
        """The processes of the node below its supervisor."""
        with suppress(FileNotFoundError):
            words = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            return [int(word) for word in words]
        return []

    def signal_process(self, number: signal.Signals) -> None:
        """Send a signal to the process that serves, not to its supervisor."""
        for pid in self.children():
            os.kill(pid, number)

    def kill_machine(self) -> None:
        """Kill all processes of the node at once."""
        children = self.children()
        os.kill(self.pid, signal.SIGSTOP)  # or it would see its child end, and release
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        self.kill9()


def make_brokers(folder: Path, jars: Path, count: int, heap: tuple[str, ...] = SMALL_HEAP) -> list[Kafka]:
    """Brokers that are started together by `launch`, then waited for."""
    quorum = {number: free_port() for number in range(1, count + 1)}
    cluster = cluster_id()
    options = (f"default.replication.factor={count}", "broker.session.timeout.ms=4000")
    return [
        Kafka(
            folder / f"kafka-{number}",
            jars,
            options,
            number=number,
            quorum=quorum,
            cluster=cluster,
            heap=heap,
        )
        for number in quorum
    ]


def start_brokers(
    ends: ExitStack, folder: Path, jars: Path, count: int, heap: tuple[str, ...] = SMALL_HEAP
) -> list[Kafka]:
    """Brokers that serve; `ends` ends them."""
    brokers = make_brokers(folder, jars, count, heap)
    for broker in brokers:
        ends.callback(broker.kill9)  # without its majority, a broker does not stop by itself
        broker.launch()
    for broker in brokers:
        broker.wait_until_serving()
    return brokers


def make_nodes(folder: Path, brokers: list[Kafka], names: str, **settings: str) -> list[Node]:
    """Nodes of one cluster, not started."""
    servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
    return [
        Node(
            folder / f"node-{name}",
            settings={
                "log.engine": "kafka",
                "kafka.bootstrap_servers": servers,
                "kafka.allow_weak": "true" if len(brokers) < 3 else "false",
                "cluster.node": name,
                "log.segment_bytes": "1MiB",
                "log.checkpoint_bytes": "2MiB",
                **settings,
            },
        )
        for name in names
    ]


def wait_for_owner(nodes: list[Node], timeout_s: float = 60.0) -> Node:
    """The node that serves. Raises BrokerFailed: none does in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for node in nodes:
            if node.running and node.is_owner:
                return node
        time.sleep(0.02)
    raise BrokerFailed("\n".join(f"{node.folder.name}:\n{node.log_tail()}" for node in nodes))
