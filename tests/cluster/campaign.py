"""Faults in turn under clients of all protocols: `python -m tests.cluster.campaign --faults 200 --seed 7`.

Each fault is chosen by the seed, from `tests.cluster.faults`. Rounds have new nodes and a topic of their own
over the same brokers. At the end of a round the crash checker judges each stream, the folders of all nodes
become equal, and `penstock log verify` finds nothing in them.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.kafka import Kafka, jars
from tests.cluster.faults import FAULTS, NETWORK_FAULTS, World
from tests.cluster.work import KINDS, SdkWork, streams_of
from tests.crash.checker import Verdict, check
from tests.crash.streams import Stream
from tests.support.brokers import free_port
from tests.support.cluster import Network, Node, fronts, make_nodes, start_brokers
from tests.support.proxy import Links

SETTLE_S = 120.0
SILENT_S = 2.5
"""A client that gets no answer for so long goes to another node, as one with heartbeats does."""
SAMPLE_S = 0.2
ACKED_MIN = 50


@dataclass
class Report:
    """The verdict of one round."""

    verdict: Verdict = field(default_factory=Verdict)
    findings: list[str] = field(default_factory=list)
    """Broken promises that the crash checker does not know of."""
    pauses: dict[str, list[float]] = field(default_factory=dict)
    """Longest times without a confirm of AMQP, by fault."""
    takeovers: int = 0

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return self.verdict.word == "PASS" and not self.findings

    def __str__(self) -> str:
        return "\n".join([str(self.verdict), *self.findings, f"{self.takeovers} takeovers"])


@dataclass
class Total:
    """Of all rounds."""

    confirmed: int = 0
    received: int = 0
    lost: int = 0
    takeovers: int = 0

    def add(self, report: Report) -> None:
        """One more round."""
        self.confirmed += report.verdict.acked
        self.received += report.verdict.received
        self.lost += len(report.verdict.lost)
        self.takeovers += report.takeovers

    def __str__(self) -> str:
        return (
            f"{self.confirmed:,} confirmed, {self.received:,} received, {self.lost} lost, "
            f"{self.takeovers} takeovers"
        )


class _Moments(threading.Thread):
    """Notes moments at which a node may stop to be the owner: acknowledgements of that time may be lost."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        self.on = threading.Event()
        self.ends = False

    def run(self) -> None:
        while not self.ends:
            if self.on.wait(SAMPLE_S):
                self.times.append(time.monotonic())
                time.sleep(SAMPLE_S)


def run(
    folder: Path,
    brokers: list[Kafka],
    *,
    names: str,
    faults: list[str],
    seed: int,
    links: Links,
    network: Network | None = None,
    cluster: str = "penstock",
    kinds: tuple[str, ...] = KINDS,
    per_s: float = 100.0,
    sdk: bool = True,
    has_lease: bool = True,
) -> Report:
    """Do the faults in turn over brokers that serve; the verdict. The nodes are ended.

    `kinds`, `per_s`: of the streams; `sdk`: with its work, too; `has_lease`: as of `Node`.
    """
    report = Report()
    with ExitStack() as ends:
        nodes = make_nodes(
            folder, brokers, names, network, **{"cluster.name": cluster, "kafka.spare_bytes": "1MiB"}
        )
        for node in nodes:
            node.has_lease = has_lease
            for listener in ("native.listen", "http.listen"):
                node.settings[listener] = f"127.0.0.1:{free_port()}"
        if network is not None:
            network.join(nodes)
        for node in nodes:
            ends.callback(node.kill9)
            node.launch()
        world = World(nodes, brokers, network, random.Random(seed))
        world.owner()
        for node in nodes:
            node.wait_until_serving()
        ports = fronts(links, nodes, SILENT_S)
        streams = streams_of(ports, kinds, per_s)
        work = SdkWork(ports["native"], per_s / 4) if sdk else None
        moments = _Moments()
        moments.start()
        moments.on.set()
        for stream in streams:
            stream.start()
        if work is not None:
            work.start()
        _settle(streams, work, nodes)
        for name in faults:
            moments.on.set()
            began = time.monotonic()
            next(it for it in (*FAULTS, *NETWORK_FAULTS) if it.__name__ == name)(world)
            _settle(streams, work, nodes)
            pause = max(_longest(stream, began) for stream in streams[:1])
            report.pauses.setdefault(name, []).append(pause)
            print(f"{name}: {pause:.2f} s without a confirm", flush=True)
        _finish(streams, work)
        moments.ends = True
        report.verdict = check(
            [stream.history for stream in streams], fault_times=moments.times, acked_min=ACKED_MIN
        )
        report.findings += [f"{it.name}: {it.failure}" for it in streams if it.failure]
        lost = sum(stream.sessions_lost for stream in streams)
        report.findings += [f"{lost} sessions or queues lost"] if lost else []
        if work is not None:
            report.findings += work.findings()
        compare(nodes)
        for node in nodes:
            node.terminate()
            report.takeovers += node.log_path.read_text(errors="replace").count("\nready ")
        report.findings += [text for node in nodes for text in _verify(node)]
        if not report.ok:
            _keep(nodes)
    return report


def _keep(nodes: list[Node]) -> None:
    for node in nodes:
        print(f"--- {node.folder.name}\n{node.log_path.read_text(errors='replace')[-20000:]}", flush=True)


def _longest(stream: Stream, began: float) -> float:
    """The longest time without a confirm from `began` on."""
    times = sorted(acked for _, acked in list(stream.history.answers) if acked >= began)
    return max(
        (later - earlier for earlier, later in itertools.pairwise([began, *times, time.monotonic()])),
        default=0.0,
    )


def _settle(streams: list[Stream], work: SdkWork | None, nodes: list[Node]) -> None:
    """Wait until each stream has a new confirm and a new delivery, and one node is the owner."""
    after = time.monotonic()
    sent = len(work.sent) if work else 0

    def waits() -> str:
        for stream in streams:
            if stream.failure:
                return stream.failure
            if stream.last_acked_at <= after or stream.last_received_at <= after:
                return f"{stream.name} gets no confirm or no delivery"
        if work is not None and (work.failure or len(work.sent) <= sent):
            return work.failure or "the SDK gets no confirm"
        owners = [node.folder.name for node in nodes if node.is_owner]
        return "" if len(owners) == 1 else f"owners are {owners}"

    while reason := waits():
        if time.monotonic() - after > SETTLE_S:
            _keep(nodes)
            raise AssertionError(reason)
        time.sleep(0.02)
    for node in nodes:
        node.wait_until_serving()


def _finish(streams: list[Stream], work: SdkWork | None) -> None:
    """Publish nothing more, and wait until all that was confirmed has come."""
    for stream in streams:
        stream.finish_publishing()
    if work is not None:
        work.stopping.set()
        work.join(SETTLE_S)
        assert not work.is_alive(), "the SDK does not end"
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        quiet_s = time.monotonic() - max(stream.last_received_at for stream in streams)
        missing = [
            stream
            for stream in streams
            if stream.history.acked - {receipt.sequence for receipt in stream.history.receipts}
        ]
        if not missing and quiet_s > 1.0:
            break
        time.sleep(0.2)
    for stream in streams:
        stream.stop()


def _verify(node: Node) -> list[str]:
    command = [sys.executable, "-m", "penstock", "log", "verify", str(node.data_dir)]
    environment = {**os.environ, **node.environment()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return [] if done.returncode == 0 else [f"log verify of {node.folder.name}: {done.stdout}{done.stderr}"]


def compare(nodes: list[Node]) -> None:
    """The folders of all nodes become equal when nothing is published any more."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        folders = [contents(node.data_dir) for node in nodes]
        if all(folder == folders[0] for folder in folders):
            return
        if time.monotonic() > deadline:
            found = {name for folder in folders for name in folder}
            odd = [name for name in found if len({folder.get(name) for folder in folders}) > 1]
            raise AssertionError(f"the folders differ in {sorted(odd)}")
        time.sleep(0.3)


def contents(data_dir: Path) -> dict[str, bytes]:
    """The files of a folder that all nodes have."""
    found = {}
    for path in data_dir.glob("shard-000/**/*"):
        try:
            if path.is_file() and not path.name.endswith((".new", ".part")):
                found[str(path.relative_to(data_dir))] = path.read_bytes()
        except FileNotFoundError:
            continue
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.campaign")
    parser.add_argument("--faults", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--round", type=int, default=20, help="faults for the same nodes (default 20)")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--skip", type=int, default=0, help="so many of them were done by an earlier run")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rate", type=float, default=100.0, help="messages per second of each stream")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument(
        "--without-lease", action="store_true", help="owners hand out messages while Kafka is silent"
    )
    parser.add_argument("--only", default="", help="names of faults, separated by commas")
    parser.add_argument("--jars", type=Path, default=Path("build/kafka"))
    options = parser.parse_args()
    chosen = [it.__name__ for it in (*FAULTS, *NETWORK_FAULTS)]
    chosen = options.only.split(",") if options.only else chosen
    order = [chosen[number % len(chosen)] for number in range(options.faults)]
    random.Random(options.seed).shuffle(order)
    names = "abcdef"[: options.nodes]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends all that was started
    print(f"seed {options.seed}, {options.brokers} brokers, {options.nodes} nodes", flush=True)
    pauses: dict[str, list[float]] = {}
    good, total = True, Total()
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="penstock-cluster-")))
        links = ends.enter_context(Links())
        network = Network(links, options.brokers, names)
        place = jars(options.jars.absolute())
        brokers = start_brokers(ends, folder, place, options.brokers, doors=network.doors)
        for first in range(options.skip, len(order), options.round):
            number = first // options.round
            report = run(
                folder / f"round-{number}",
                brokers,
                names=names,
                faults=order[first : first + options.round],
                seed=options.seed + number,
                links=links,
                network=network,
                cluster=f"round{number}",
                per_s=options.rate,
                has_lease=not options.without_lease,
            )
            print(f"round {number}: {report}", flush=True)
            good &= report.ok
            total.add(report)
            done = min(first + options.round, len(order)) - options.skip
            print(f"so far, {done} faults: {total}", flush=True)
            for name, found in report.pauses.items():
                pauses.setdefault(name, []).extend(found)
    for name, found in sorted(pauses.items()):
        print(f"{name}: {len(found)} times, longest without a confirm {max(found):.2f} s")
    print("PASS" if good else "FAIL")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
