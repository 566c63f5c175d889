"""How long nothing is confirmed when a node fails: `python -m bench.cluster_takeovers --times 10`.

Two systems in turn, with the same publishers:

    cluster    three brokers of Kafka and three nodes of penstock
    rabbitmq   three nodes of Debian's package, one quorum queue with three members

Each node has one publisher, which sends a durable message of 100 bytes each 20 ms, with confirms. A publisher
whose connection ends, or that hears nothing for a second, goes on at the next node. So those at the other
nodes show the system's own time, and the one at the failed node that of its client as well. Told for each
fault are the longest time without any confirm (`service`), the longest of a publisher at another node
(`others`), and the longest of all publishers (`clients`).

    handover   the owner (leader) is stopped cleanly
    kill       its process is killed
    machine    all processes of its node are killed, and started again 6 s later
    freeze     it is stopped by SIGSTOP until another node serves, then goes on
    cut        its links to Kafka, or RabbitMQ's between nodes, pass nothing until another node serves
    silent     all processes of its node are stopped by SIGSTOP, and all its links pass nothing: as a machine
               that has lost its power, which answers nothing

Links that can be cut are there for `cut` and `silent` alone, since bytes take longer through them: these have
nodes of their own. RabbitMQ's node is frozen, cut off or silent for 15 s. It has one process for each node,
so its `machine` differs from its `kill` in the time until it is started again.
With `--steps`, the steps of each takeover of the cluster are told as well, in ms since the last confirm, by
the new owner's log: its claim was sent, it was read, the log was open, the listeners were open, a client had
logged in, a message was confirmed.
Both systems are warmed up with 1,000 lone messages per second for 45 s: Java compiles Kafka's code while it
serves.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from bench.kafka import HEAP, VERSION, jars
from bench.load_amqp import CONFIRM_BYTES, UNBLOCKED, Client, confirmed, message
from bench.publish_latency import probe
from bench.report import machine
from tests.cluster import faults
from tests.support.brokers import BrokerFailed, RabbitMQ
from tests.support.cluster import Network, Node, make_nodes, start_brokers, wait_for_owner
from tests.support.epmd import PortMapper
from tests.support.proxy import Link, Links

EACH_S = 0.02
SILENT_S = 1.0
"""A publisher that hears nothing for so long goes to the next node."""
WINDOW = 50
WARM_EACH_S = 0.001
STEADY_S = 2.0
"""Every publisher gets confirms for so long before a fault, and behind it."""
LIMIT_S = 120.0
FREEZE_S = 15.0
"""RabbitMQ's node is frozen, or cut off, for so long."""
DEAD_S = 6.0
"""A machine that died is there again after so long."""
QUEUE = "takeovers"
STEPS = {
    "claimed": "penstock.cluster claimed ",
    "log open": "penstock.server log opened",
    "listening": "penstock.server ready",
    "login": " connection opened ",
}
"""Words of the log's lines."""
FAULTS = ("handover", "kill", "machine", "freeze", "cut", "silent")
LINKED = ("cut", "silent")
"""They need links."""


class Publisher(threading.Thread):
    """Publishes at the first of its ports that answers, and notes when something was confirmed."""

    def __init__(self, ports: Sequence[int], *, quorum: bool) -> None:
        """`ports`: of its own node, and of the others in the order in which it tries them."""
        super().__init__(daemon=True)
        self.times: list[float] = []
        """When confirms came."""
        self.stopping = False
        self._ports = ports
        self._quorum = quorum

    def run(self) -> None:
        for port in itertools.cycle(self._ports):
            if self.stopping:
                return
            with suppress(OSError, EOFError, RuntimeError):  # the node is gone, or refuses: the next one
                self._publish(port)
            time.sleep(EACH_S)

    def _publish(self, port: int) -> None:
        client = Client(port, timeout_s=SILENT_S, capabilities=UNBLOCKED)
        try:
            client.declare(QUEUE, durable=True, quorum=self._quorum)
            client.call(85, 10, b"\0", 11)
            client.socket.settimeout(EACH_S)
            one = message(QUEUE, 100, durable=True)
            sent = answered = 0
            rest, heard_at = b"", time.monotonic()
            while not self.stopping:
                if sent - answered < WINDOW:
                    client.socket.sendall(one)
                    sent += 1
                due = time.monotonic() + EACH_S
                while (now := time.monotonic()) < due:
                    with suppress(TimeoutError):
                        got = client.socket.recv(WINDOW * CONFIRM_BYTES)
                        if not got:
                            return
                        now = heard_at = time.monotonic()
                        before = answered
                        answered, rest = confirmed(rest + got, answered)
                        if answered > before:
                            self.times.append(now)
                if now - heard_at > SILENT_S:
                    return
        finally:
            client.close()

    def longest(self, began: float, end: float) -> float:
        """The longest time without a confirm in that time."""
        return longest(self.times, began, end)


def longest(times: Sequence[float], began: float, end: float) -> float:
    """The longest time between two of these moments, `began` and `end`."""
    inside = [began, *(at for at in list(times) if began < at < end), end]
    return max(later - earlier for earlier, later in itertools.pairwise(inside))


@dataclass
class Gaps:
    """Of one kind of fault; seconds, one for each time."""

    service: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    clients: list[float] = field(default_factory=list)


@dataclass
class System:
    """A system under test: its nodes' ports, and how it is hurt."""

    ports: list[int]
    quorum: bool
    faults: dict[str, Callable[[], int]]
    """Each does one fault, waits until all is as before, and tells the number of the node that failed."""
    steps: Callable[[float], dict[str, float]] = lambda since: {}
    """Of the newest takeover since a moment of the system's clock: when its steps were, by that clock."""


def measure(
    system: System, kinds: Sequence[str], times: int, warm_s: float, *, steps: bool = False
) -> dict[str, Gaps]:
    """Each kind of fault so often, behind `warm_s` seconds of lone messages; `steps`: tell those, too."""
    probe(system.ports[0], warm_s, each_s=WARM_EACH_S, size=100, quorum=system.quorum)
    order = system.ports
    publishers = [
        Publisher([*order[number:], *order[:number]], quorum=system.quorum) for number in range(len(order))
    ]
    for publisher in publishers:
        publisher.start()
    found: dict[str, Gaps] = {}
    try:
        for kind in kinds:
            if kind not in system.faults:
                continue
            gaps = found.setdefault(kind, Gaps())
            for _ in range(times):
                steady(publishers)
                began = time.monotonic()
                failed = system.faults[kind]()
                steady(publishers)
                end = time.monotonic()
                each = [publisher.longest(began, end) for publisher in publishers]
                together = sorted(itertools.chain(*(publisher.times for publisher in publishers)))
                gaps.service.append(longest(together, began, end))
                gaps.others.append(max(gap for number, gap in enumerate(each) if number != failed))
                gaps.clients.append(max(each))
                print(f"{kind}: {gaps.service[-1]:.2f} s", flush=True)
                if steps:
                    print(told_steps(system, together, began, end), flush=True)
    finally:
        for publisher in publishers:
            publisher.stopping = True
        for publisher in publishers:
            publisher.join()
    return found


def told_steps(system: System, times: Sequence[float], began: float, end: float) -> str:
    """The steps of a takeover in ms since the last confirm before it; `times`: of all confirms, in order."""
    inside = [began, *(at for at in times if began < at < end), end]
    last, first = max(itertools.pairwise(inside), key=lambda pair: pair[1] - pair[0])
    ahead = time.time() - time.monotonic()
    found = {name: at - ahead for name, at in system.steps(began + ahead).items()} | {"first confirm": first}
    return "    " + ", ".join(f"{name} {(at - last) * 1000:.0f}" for name, at in found.items())


def steps_of(node: Node, since: float) -> dict[str, float]:
    """By the log of a node that took over since then."""
    found: dict[str, float] = {}
    for line in node.log_path.read_text(errors="replace").splitlines():
        for name, words in STEPS.items():
            if words not in line or name in found or (name != "claimed" and "claimed" not in found):
                continue
            at = datetime.fromisoformat(line.partition(" ")[0]).timestamp()
            if at >= since:
                if name == "claimed":
                    found["claim sent"] = at - float(line.rpartition("seconds=")[2])
                found[name] = at
    return found


def steady(publishers: Sequence[Publisher]) -> None:
    """Wait until each publisher has had confirms for a while. Raises BrokerFailed: one gets none."""
    began = time.monotonic()
    while True:
        now = time.monotonic()
        gaps = [publisher.longest(now - STEADY_S, now) for publisher in publishers]
        if now - began >= STEADY_S and max(gaps) < STEADY_S / 2:
            return
        if now - began > LIMIT_S:
            raise BrokerFailed("a publisher gets no confirms")
        time.sleep(0.05)


@contextmanager
def cluster(folder: Path, options: argparse.Namespace, *, linked: bool) -> Iterator[System]:
    """Three brokers and three nodes; `linked`: through links that can be cut, which cost time."""
    names = "abc"
    with ExitStack() as ends:
        network = Network(ends.enter_context(Links()), 3, names) if linked else None
        place = jars(options.jars.absolute())
        doors = network.doors if network else ()
        brokers = start_brokers(ends, folder, place, 3, HEAP, doors=doors)
        nodes = make_nodes(folder, brokers, names, network)
        if network is not None:
            network.join(nodes)
        for node in nodes:
            ends.callback(node.kill9)
            node.start()
        world = faults.World(nodes, brokers, network, random.Random(1))

        def each(hurt: Callable[[faults.World], None]) -> Callable[[], int]:
            def fault() -> int:
                owner = world.owner()
                hurt(world)
                whole(nodes)
                return nodes.index(owner)

            return fault

        def machine(world: faults.World) -> None:
            owner = world.owner()
            owner.kill_machine()
            time.sleep(DEAD_S)
            owner.launch()

        def cut(world: faults.World) -> None:
            owner = world.owner()
            for link in world.links(owner):
                Link.stall(link)
            wait_for_owner(world.others(owner))
            for link in world.links(owner):
                link.heal()

        def silent(world: faults.World) -> None:
            owner = world.owner()
            processes = [owner.pid, *owner.children()]
            links = [*world.links(owner), *world.peers(owner)]
            for pid in processes:
                os.kill(pid, signal.SIGSTOP)
            for link in links:
                link.stall()
            wait_for_owner(world.others(owner))
            for link in links:
                link.heal()
            for pid in processes:
                os.kill(pid, signal.SIGCONT)

        whole(nodes)
        kinds = {
            "handover": faults.stop_owner,
            "kill": faults.kill_process,
            "machine": machine,
            "freeze": faults.freeze,
            "cut": cut,
            "silent": silent,
        }
        ports = [node.amqp_port for node in nodes]
        faults_of = {name: each(hurt) for name, hurt in kinds.items()}
        yield System(ports, False, faults_of, lambda since: steps_of(world.owner(), since))


def whole(nodes: Sequence[Node]) -> None:
    """Wait until one node is the owner, and the others follow it."""
    for node in nodes:
        node.wait_until_serving()
    deadline = time.monotonic() + LIMIT_S
    while [node.is_owner for node in nodes].count(True) != 1:
        if time.monotonic() > deadline:
            raise BrokerFailed("there is not one owner")
        time.sleep(0.02)


@contextmanager
def rabbitmq(folder: Path, options: argparse.Namespace, *, linked: bool) -> Iterator[System]:
    """Three nodes; the queue is made at the first one. `linked`: as of `cluster`."""
    with ExitStack() as ends:
        links = ends.enter_context(Links())
        ports: list[dict[str, int]] = [{} for _ in range(3)]
        registered: dict[str, int] = {}
        nodes: list[RabbitMQ] = []
        for number in range(3):
            mapper = ends.enter_context(PortMapper(ports[number], registered))
            peer = nodes[0] if nodes else None
            nodes.append(RabbitMQ(folder / f"rabbitmq-{number}", peer=peer, epmd_port=mapper.port))
        of_nodes: list[list[Link]] = [[] for _ in nodes]
        for number, other in itertools.permutations(range(3), 2):
            name, _, _ = nodes[other].node.partition("@")
            ports[number][name] = nodes[other].dist_port
            if linked:
                link = links.add(nodes[other].dist_port)
                ports[number][name] = link.port
                of_nodes[number].append(link)
                of_nodes[other].append(link)
        for node in nodes:
            ends.callback(node.close)
            node.start()
        first = nodes[0]
        client = Client(first.amqp_port)
        client.declare(QUEUE, durable=True, quorum=True)
        client.close()

        def leader() -> int:
            for line in first.ctl("list_queues", "name", "leader").splitlines():
                name, _, node = line.partition("\t")
                if name == QUEUE:
                    return [node.strip() == it.node for it in nodes].index(True)
            raise BrokerFailed("the queue is gone")

        def stop(how: Callable[[RabbitMQ], object], away_s: float = 0.0) -> Callable[[], int]:
            def fault() -> int:
                number = leader()
                how(nodes[number])
                time.sleep(away_s)
                nodes[number].launch()
                nodes[number].wait_until_serving()
                return number

            return fault

        def pause(*, process: bool, linked: bool) -> Callable[[], int]:
            def fault() -> int:
                number = leader()
                links = of_nodes[number] if linked else []
                if process:
                    os.kill(nodes[number].pid, signal.SIGSTOP)
                for link in links:
                    link.stall()
                try:
                    time.sleep(FREEZE_S)
                finally:
                    for link in links:
                        link.heal()
                    if process:
                        os.kill(nodes[number].pid, signal.SIGCONT)
                return number

            return fault

        kinds = {"handover": stop(RabbitMQ.terminate), "kill": stop(RabbitMQ.kill9)}
        kinds |= {
            "machine": stop(RabbitMQ.kill9, DEAD_S),
            "freeze": pause(process=True, linked=False),
            "cut": pause(process=False, linked=True),
            "silent": pause(process=True, linked=True),
        }
        yield System([node.amqp_port for node in nodes], True, kinds)


SYSTEMS = {"cluster": cluster, "rabbitmq": rabbitmq}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="of each fault (default 10)")
    parser.add_argument("--only", default=",".join(SYSTEMS), help="systems, separated by commas")
    parser.add_argument("--faults", default=",".join(FAULTS), help="kinds, separated by commas")
    parser.add_argument("--warm", type=float, default=45.0, help="seconds of lone messages before")
    parser.add_argument("--steps", action="store_true", help="tell the steps of each takeover")
    parser.add_argument("--jars", type=Path, default=Path("build/kafka"))
    parser.add_argument("--data", metavar="DIR", help="where the data goes")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends all that was started
    print(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in machine().items()), flush=True)
    told = ["| system | fault | times | service, median / longest | others | clients |", "|---|" + "---|" * 5]
    for name in options.only.split(","):
        found: dict[str, Gaps] = {}
        for linked in (False, True):
            kinds = [kind for kind in options.faults.split(",") if (kind in LINKED) == linked]
            if not kinds:
                continue
            with ExitStack() as ends:
                temporary = tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=options.data)
                place = Path(ends.enter_context(temporary))
                system = ends.enter_context(SYSTEMS[name](place, options, linked=linked))
                found |= measure(system, kinds, options.times, options.warm, steps=options.steps)
        for kind, gaps in found.items():
            columns = [
                f"{sorted(each)[len(each) // 2]:.2f} / {max(each):.2f} s"
                for each in (gaps.service, gaps.others, gaps.clients)
            ]
            told.append(f"| {name} | {kind} | {len(gaps.service)} | {' | '.join(columns)} |")
    print(f"kafka {VERSION}, goals: handover 1 s, kill 2 s, machine 1 s, freeze, cut and silent 4.5 s")
    print("\n".join(told))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
