"""A cluster of penstock over Kafka beside RabbitMQ's quorum queues: `python -m bench.cluster`.

Three systems in turn, each with the same clients:

    rabbitmq   three nodes of Debian's package on loopback, one quorum queue with three members
    local      one gateway with log.engine = "local", which syncs its own disk
    cluster    three brokers of Kafka and two nodes of penstock, log.engine = "kafka"

Ten publishers send durable messages of 100 bytes with confirms to one queue, whose consumer acknowledges.
CPU is of all server processes in a window of time, and told for each of them. Then a lone publisher sends 200
and 1,000 messages per second, and the time from when each was due until its confirm is told.

Then a bare producer of Kafka does the same at the brokers of `cluster`: no gateway over them can be quicker.
With `--layers` the brokers of `cluster` note each request with its times, which costs some CPU. Told is then
where the time of a confirm goes: see `bench.kafka_latency`.

Kafka has the heap of its start script, and neither it nor RabbitMQ's quorum queues have settings of their
own. Both keep three copies and confirm with two. Each is warmed up with lone messages for 45 s.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from urllib.request import urlopen

import confluent_kafka

from bench.cpu import resident_bytes, wait_until_idle
from bench.kafka import HEAP, VERSION, Kafka, jars
from bench.kafka_latency import Layers, broker_layers, lone, make_topic
from bench.load import Load, Result, run
from bench.publish_latency import probe
from bench.report import machine
from penstock.config import Config
from penstock.log_core.replication.owner import ANSWER_BOUNDS_S
from tests.support.brokers import Gateway, RabbitMQ, free_port
from tests.support.cluster import Node, make_nodes, start_brokers, wait_for_owner

RATES = (200, 1000)


@dataclass
class Figures:
    """Of one system."""

    cpu_us: dict[str, float] = field(default_factory=dict)
    """CPU per message that was delivered, by part of the system."""
    per_s: float = 0.0
    latency_ms: dict[int, tuple[float, float]] = field(default_factory=dict)
    """p50 and p99, by rate."""
    layers: dict[int, Layers] = field(default_factory=dict)
    """Where the time of confirms goes, by rate."""
    resident: dict[str, int] = field(default_factory=dict)
    bare: Figures | None = None
    """Of a bare producer at the same brokers."""

    @property
    def total_us(self) -> float:
        """Of all server processes."""
        return sum(self.cpu_us.values())


def measured(
    port: int,
    served: tuple[str, int],
    beside: dict[str, int],
    options: argparse.Namespace,
    *,
    quorum: bool,
    layers: Callable[[], Layers] = dict,
) -> Figures:
    """Both loads on the broker at `port`, whose part of the system and process `served` names.

    `layers`: tells where the time of confirms went since its last call.
    """
    part, pid = served
    load = Load(
        "amqp",
        publishers=10,
        durable=True,
        confirm=True,
        ack=True,
        quorum=quorum,
        window=options.window,
        prefetch=options.window,
    )
    for each in (pid, *beside.values()):
        wait_until_idle(each, 10)
    found = run(
        load, port, broker_pid=pid, seconds=options.seconds, warm_s=options.warm, beside=beside, drain_s=60
    )
    if found.lost:
        raise AssertionError(f"{part} lost {found.lost} messages")
    figures = Figures(cpu_us=_each(part, found), per_s=found.delivered_per_s)
    figures.resident = {name: resident_bytes(each) for name, each in {part: pid, **beside}.items()}
    # Kafka's machine code is made while it serves: its first lone confirms take a hundred times as long.
    probe(port, options.warm_lone, each_s=1 / max(RATES), size=100, quorum=quorum)
    layers()
    for rate in RATES:
        took = probe(port, options.seconds, each_s=1 / rate, size=100, quorum=quorum)
        figures.latency_ms[rate] = _cuts_ms(took)
        figures.layers[rate] = {"confirm": figures.latency_ms[rate], **layers()}
    return figures


def _cuts_ms(took_s: list[float]) -> tuple[float, float]:
    """p50 and p99 in ms."""
    cuts = quantiles(took_s, n=100)
    return cuts[49] * 1e3, cuts[98] * 1e3


def bare(brokers: list[Kafka], options: argparse.Namespace, layers: Callable[[], Layers]) -> Figures:
    """A producer without a gateway, at brokers that are warm."""
    figures = Figures()
    make_topic(brokers, "bare")
    lone(brokers, "bare", 2.0, each_s=1 / max(RATES))
    layers()
    for rate in RATES:
        found = lone(brokers, "bare", options.seconds, each_s=1 / rate)
        figures.latency_ms[rate] = _cuts_ms(found.took_s)
        figures.layers[rate] = {"answer": figures.latency_ms[rate], **found.layers, **layers()}
    return figures


class _Answers:
    """The owner's histogram of Kafka's answer times, since the last look."""

    def __init__(self, address: str) -> None:
        self._page = f"http://{address}/metrics"
        self._before = [0.0] * (len(ANSWER_BOUNDS_S) + 1)

    def cuts_ms(self) -> tuple[float, float]:
        """p50 and p99 in ms, by interpolation."""
        with urlopen(self._page, timeout=30) as page:
            lines = page.read().decode().splitlines()
        counts = [float(line.rsplit(" ", 1)[1]) for line in lines if "answer_seconds_bucket" in line]
        new = [now - before for now, before in zip(counts, self._before, strict=True)]
        self._before = counts
        return self._at(new, 0.5) * 1e3, self._at(new, 0.99) * 1e3

    @staticmethod
    def _at(counts: list[float], part: float) -> float:
        wanted, below, lower = part * counts[-1], 0.0, 0.0
        for bound, count in zip(ANSWER_BOUNDS_S, counts, strict=False):
            if count >= wanted and count > below:
                return lower + (bound - lower) * (wanted - below) / (count - below)
            below, lower = count, bound
        return ANSWER_BOUNDS_S[-1]


def _each(part: str, found: Result) -> dict[str, float]:
    delivered = found.delivered_per_s * found.seconds
    own = {part: found.cpu_us_per_delivered or 0.0}
    return own | {name: used / delivered * 1e6 for name, used in found.beside_s.items()}


def rabbitmq(folder: Path, options: argparse.Namespace) -> Figures:
    """Three nodes; clients use the first one, where the queue's leader is."""
    with ExitStack() as ends:
        first = ends.enter_context(RabbitMQ(folder / "rabbitmq-1"))
        others = [
            ends.enter_context(RabbitMQ(folder / f"rabbitmq-{number}", peer=first)) for number in (2, 3)
        ]
        beside = {f"rabbitmq {number}": node.pid for number, node in enumerate(others, 2)}
        return measured(first.amqp_port, ("rabbitmq 1", first.pid), beside, options, quorum=True)


def local(folder: Path, options: argparse.Namespace) -> Figures:
    """One gateway."""
    with Gateway(folder / "local") as gateway:
        return measured(gateway.amqp_port, ("gateway", gateway.pid), {}, options, quorum=False)


def cluster(folder: Path, options: argparse.Namespace) -> Figures:
    """Three brokers and two nodes; clients use the owner. The bare producer comes behind them."""
    log = Config().log
    sizes = {
        "log.segment_bytes": str(log.segment_bytes),
        "log.checkpoint_bytes": str(log.checkpoint_bytes),
    }
    with ExitStack() as ends:
        place = jars(options.jars.absolute())
        brokers = start_brokers(ends, folder, place, 3, HEAP, notes_requests=options.layers)
        nodes: list[Node] = make_nodes(folder, brokers, "ab", None, **sizes)
        for node in nodes:
            node.settings["metrics.listen"] = f"127.0.0.1:{free_port()}"
            ends.callback(node.kill9)
            node.start()
        owner = wait_for_owner(nodes)
        [standby] = [node for node in nodes if node is not owner]
        [served], [follows] = owner.children(), standby.children()
        beside = {"standby": follows}
        beside |= {f"kafka {number}": broker.pid for number, broker in enumerate(brokers, 1)}
        print(f"owner pid {served}, standby pid {follows}", flush=True)
        answers, skip = _Answers(owner.settings["metrics.listen"]), dict[int, int]()

        def of_brokers() -> Layers:
            return broker_layers(brokers, skip) if options.layers else {}

        def layers() -> Layers:
            return {"Kafka's answer": answers.cuts_ms(), **of_brokers()}

        figures = measured(owner.amqp_port, ("gateway", served), beside, options, quorum=False, layers=layers)
        figures.bare = bare(brokers, options, of_brokers)
        return figures


SYSTEMS = {"rabbitmq": rabbitmq, "local": local, "cluster": cluster}


def lines(found: dict[str, Figures]) -> list[str]:
    """The tables and the quotients that the goals are about."""
    rates = [f"p50 / p99 at {rate:,}/s" for rate in RATES]
    told = [
        f"| system | messages/s | CPU us/message | {' | '.join(rates)} | of it |",
        f"|---|---|---|{'---|' * len(RATES)}---|",
    ]
    for name, it in found.items():
        latency = [f"{it.latency_ms[rate][0]:.2f} / {it.latency_ms[rate][1]:.2f} ms" for rate in RATES]
        parts = ", ".join(
            f"{part} {us:.2f} us ({it.resident[part] / 2**20:.0f} MiB)" for part, us in it.cpu_us.items()
        )
        told.append(f"| {name} | {it.per_s:,.0f} | {it.total_us:.2f} | {' | '.join(latency)} | {parts} |")
        if it.bare is not None:
            latency = [f"{p50:.2f} / {p99:.2f} ms" for p50, p99 in it.bare.latency_ms.values()]
            told.append(f"| kafka, a bare producer | | | {' | '.join(latency)} | |")
    told.append("")
    if (kafka := found.get("cluster")) is None:
        return told
    told += [*_layers(kafka), ""]
    standby, gateway = kafka.cpu_us["standby"], kafka.cpu_us["gateway"]
    told.append(
        f"- standby: {standby / gateway:.1%} of the owner's CPU (goal 15 %), "
        f"{kafka.resident['standby'] / 2**20:.0f} MiB (goal 150)"
    )
    if (alone := found.get("local")) is not None:
        quotient = gateway / alone.total_us
        told.append(f"- gateway: {quotient:.2f} x its CPU with the local engine (goal 1.3)")
    if (peer := found.get("rabbitmq")) is not None:
        told.append(
            f"- all processes: {peer.total_us / kafka.total_us:.1f} x RabbitMQ's messages per CPU second "
            "(goal 5)"
        )
        for rate in RATES:
            ours, theirs = kafka.latency_ms[rate], peer.latency_ms[rate]
            told.append(
                f"- confirms at {rate:,}/s: p50 {ours[0] / theirs[0]:.2f} x, p99 {ours[1] / theirs[1]:.2f} x "
                "RabbitMQ's (goal 1.5)"
            )
    return told


def _layers(cluster: Figures) -> list[str]:
    """Where the time of confirms goes."""
    assert cluster.bare is not None
    told = ["| layer, p50 / p99 in ms |" + "".join(f" at {rate:,}/s |" for rate in RATES)]
    told.append("|---|" + "---|" * len(RATES))
    for system, figures in (("gateway", cluster), ("bare producer", cluster.bare)):
        for layer in figures.layers[RATES[0]]:
            cells = [f"{it[layer][0]:.2f} / {it[layer][1]:.2f}" for it in figures.layers.values()]
            told.append(f"| {system}: {layer} | {' | '.join(cells)} |")
    return told


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(SYSTEMS), help="systems, separated by commas")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each window (default 10)")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds of load before it (default 10)")
    parser.add_argument("--window", type=int, default=2000, help="unconfirmed messages of a publisher")
    parser.add_argument("--warm-lone", type=float, default=45.0, help="seconds of lone messages before")
    parser.add_argument("--layers", action="store_true", help="brokers note the times of their requests")
    parser.add_argument("--jars", type=Path, default=Path("build/kafka"))
    parser.add_argument("--data", metavar="DIR", help="where the data goes")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends all that was started
    facts = machine()
    print(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in facts.items()))
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=options.data) as name:
        folder = Path(name)
        for system in options.only.split(","):
            found[system] = SYSTEMS[system](folder, options)
            print(f"{system}: {found[system].per_s:,.0f}/s", flush=True)
        gateway, peer = Gateway(folder / "any"), RabbitMQ(folder / "peer")
        versions = f"penstock {gateway.version()}, kafka {VERSION}, rabbitmq {peer.version()}"
    print(f"{versions}, librdkafka {confluent_kafka.libversion()[0]}")
    print("\n".join(lines(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
