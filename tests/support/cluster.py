"""A cluster on this machine: brokers of Kafka, and nodes of penstock over them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from bench.kafka import Door, Kafka, cluster_id
from tests.support.brokers import BrokerFailed, Gateway, free_port
from tests.support.certificates import Authority
from tests.support.proxy import Link, Links

__all__ = [
    "SMALL_HEAP",
    "Network",
    "Node",
    "fronts",
    "make_brokers",
    "make_nodes",
    "secured",
    "start_brokers",
    "wait_for_owner",
]

WITHOUT_LEASE = Path(__file__).with_name("without_lease")
SMALL_HEAP = ("-Xms192m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Node(Gateway):
    """One node. It serves when it is a standby, which passes clients on, or the owner."""

    has_lease = True
    """False: its owner never stops to hand out messages while Kafka is silent."""
    _killed_at = 0
    """Size of its log when its process was killed."""

    def environment(self) -> Mapping[str, str]:
        found = dict(super().environment())
        if not self.has_lease:
            found["PYTHONPATH"] = f"{WITHOUT_LEASE}{os.pathsep}{found['PYTHONPATH']}"
        return found

    def serving(self) -> bool:
        return "standby node=" in self.log_text() or super().serving()

    @property
    def is_owner(self) -> bool:
        """Whether the newest process of this node has said that it is the owner, and was not killed."""
        with suppress(FileNotFoundError), self.log_path.open("rb") as log:
            log.seek(max(self._log_offset, self._killed_at))
            text = log.read()
            return text.rfind(b"\nready ") > text.rfind(b"standby node=")
        return False

    @property
    def listener_ports(self) -> dict[str, int]:
        """By protocol."""
        set_ports = {
            name.removesuffix(".listen"): int(address.rpartition(":")[2])
            for name, address in self.settings.items()
            if name in ("native.listen", "http.listen")
        }
        return {"amqp": self.amqp_port, "mqtt": self.mqtt_port, **set_ports}

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
        if number == signal.SIGKILL:
            self._killed_at = self.log_path.stat().st_size

    def kill_machine(self) -> None:
        """Kill all processes of the node at once."""
        children = self.children()
        os.kill(self.pid, signal.SIGSTOP)  # or it would see its child end, and release
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        self.kill9()


class Network:
    """The links of each node, which a test can cut: to each broker, and from the other nodes.

    It is there before the brokers are.
    """

    def __init__(self, links: Links, brokers: int, names: str) -> None:
        self._made_by = links
        self.peers: dict[str, list[Link]] = {name: [] for name in names}
        """By node, from the other nodes to each of its listeners."""
        self.hosts = {name: f"127.0.0.{number}" for number, name in enumerate(names, 2)}
        """Where the other nodes reach a node."""
        self.doors: list[tuple[Door, ...]] = []
        """Of each broker."""
        self.links: dict[str, list[Link]] = {name: [] for name in names}
        """By node, to each broker."""
        for _ in range(brokers):
            doors = []
            for name in names:
                port = free_port()
                self.links[name].append(links.add(port))
                doors.append(Door(f"NODE_{name.upper()}", port, self.links[name][-1].port))
            self.doors.append(tuple(doors))

    def join(self, nodes: Sequence[Node]) -> None:
        """These nodes are not started yet, and have their ports; those of an earlier round are gone."""
        for node in nodes:
            name = node.settings["cluster.node"]
            node.settings["cluster.advertise"] = host = self.hosts[name]
            watched = free_port()
            node.settings["cluster.watch_listen"] = f"127.0.0.1:{watched}"
            self.peers[name] = [
                self._made_by.add(port, place=(host, port))
                for port in (*node.listener_ports.values(), watched)
            ]


def make_brokers(
    folder: Path,
    jars: Path,
    count: int,
    heap: tuple[str, ...] = SMALL_HEAP,
    doors: Sequence[tuple[Door, ...]] = (),
    users: Mapping[str, str] | None = None,
    *,
    notes_requests: bool = False,
    options: tuple[str, ...] = (),
) -> list[Kafka]:
    """Brokers that are started together by `launch`, then waited for; `doors` of each of them.

    `users`: passwords of those that log in by SCRAM. `notes_requests`: as of `Kafka`. `options`: further
    lines of their configuration.
    """
    quorum = {number: free_port() for number in range(1, count + 1)}
    cluster = cluster_id()
    options = (f"default.replication.factor={count}", "broker.session.timeout.ms=4000", *options)
    return [
        Kafka(
            folder / f"kafka-{number}",
            jars,
            options,
            number=number,
            quorum=quorum,
            cluster=cluster,
            heap=heap,
            doors=doors[number - 1] if doors else (),
            users=users,
            notes_requests=notes_requests,
        )
        for number in quorum
    ]


def secured(authority: Authority) -> Door:
    """A door of a broker with TLS, at which clients log in by SCRAM."""
    pair = authority.server("kafka")
    store = authority.folder / "kafka-store.pem"
    store.write_bytes(pair.key.read_bytes() + pair.cert.read_bytes())
    port = free_port()
    of_door = "listener.name.secure"
    options = (
        f"{of_door}.ssl.keystore.type=PEM",
        f"{of_door}.ssl.keystore.location={store}",
        f"{of_door}.sasl.enabled.mechanisms=SCRAM-SHA-512",
        f"{of_door}.scram-sha-512.sasl.jaas.config="
        "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    )
    return Door("SECURE", port, port, "SASL_SSL", options)


def start_brokers(
    ends: ExitStack,
    folder: Path,
    jars: Path,
    count: int,
    heap: tuple[str, ...] = SMALL_HEAP,
    doors: Sequence[tuple[Door, ...]] = (),
    *,
    notes_requests: bool = False,
    options: tuple[str, ...] = (),
) -> list[Kafka]:
    """Brokers that serve; `ends` ends them. The rest: as of `make_brokers`."""
    brokers = make_brokers(folder, jars, count, heap, doors, notes_requests=notes_requests, options=options)
    for broker in brokers:
        ends.callback(broker.kill9)  # without its majority, a broker does not stop by itself
        broker.launch()
    for broker in brokers:
        broker.wait_until_serving()
    return brokers


def make_nodes(
    folder: Path, brokers: list[Kafka], names: str, network: Network | None = None, **settings: str
) -> list[Node]:
    """Nodes of one cluster, not started; each reaches Kafka by its own links of `network`."""

    def servers(name: str) -> str:
        ports = [end.port for end in (network.links[name] if network else brokers)]
        return ",".join(f"127.0.0.1:{port}" for port in ports)

    return [
        Node(
            folder / f"node-{name}",
            settings={
                "log.engine": "kafka",
                "kafka.bootstrap_servers": servers(name),
                "kafka.allow_weak": "true" if len(brokers) < 3 else "false",
                "cluster.node": name,
                "log.segment_bytes": "1MiB",
                "log.checkpoint_bytes": "2MiB",
                **settings,
            },
        )
        for name in names
    ]


def fronts(links: Links, nodes: Sequence[Node], silent_s: float) -> dict[str, int]:
    """Ports of links to all nodes in turn, by protocol; `silent_s`: as of `Links.add`."""
    ports = [node.listener_ports for node in nodes]
    return {name: links.add(*(each[name] for each in ports), silent_s=silent_s).port for name in ports[0]}


def wait_for_owner(nodes: list[Node], timeout_s: float = 60.0) -> Node:
    """The node that serves. Raises BrokerFailed: none does in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for node in nodes:
            if node.running and node.is_owner:
                return node
        time.sleep(0.02)
    raise BrokerFailed("\n".join(f"{node.folder.name}:\n{node.log_tail()}" for node in nodes))
