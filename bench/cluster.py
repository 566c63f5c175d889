"""A cluster of penstock over Kafka beside RabbitMQ's quorum queues: `python -m bench.cluster`.

Three systems in turn, each with the same clients:

    rabbitmq   three nodes of Debian's package on loopback, one quorum queue with three members
    local      one gateway with log.engine = "local", which syncs its own disk
    cluster    three brokers of Kafka and two nodes of penstock, log.engine = "kafka"

Ten publishers send durable messages of 100 bytes with confirms to one queue, whose consumer acknowledges.
CPU is of all server processes in a window of time, and told for each of them. Then a lone publisher sends 200
and 1,000 messages per second, and the time from when each was due until its confirm is told.

Kafka has the heap of its start script, and neither it nor RabbitMQ's quorum queues have settings of their
own. Both keep three copies and confirm with two. Each is warmed up with lone messages for 45 s.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import confluent_kafka

from bench.cpu import resident_bytes, wait_until_idle
from bench.kafka import HEAP, VERSION, Kafka, jars
from bench.load import Load, Result, run
from bench.publish_latency import probe
from bench.report import machine
from penstock.config import Config
from tests.support.brokers import Gateway, RabbitMQ
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
    resident: dict[str, int] = field(default_factory=dict)

    @property
    def total_us(self) -> float:
        """Of all server processes."""
        return sum(self.cpu_us.values())


def measured(
    port: int, served: tuple[str, int], beside: dict[str, int], options: argparse.Namespace, *, quorum: bool
) -> Figures:
    """Both loads on the broker at `port`, whose part of the system and process `served` names."""
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
    for rate in RATES:
        cuts = quantiles(probe(port, options.seconds, each_s=1 / rate, size=100, quorum=quorum), n=100)
        figures.latency_ms[rate] = (cuts[49] * 1e3, cuts[98] * 1e3)
    return figures


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
    """Three brokers and two nodes; clients use the owner."""
    log = Config().log
    sizes = {
        "log.segment_bytes": str(log.segment_bytes),
        "log.checkpoint_bytes": str(log.checkpoint_bytes),
    }
    with ExitStack() as ends:
        brokers: list[Kafka] = start_brokers(ends, folder, jars(options.jars.absolute()), 3, HEAP)
        nodes: list[Node] = make_nodes(folder, brokers, "ab", None, **sizes)
        for node in nodes:
            ends.callback(node.kill9)
            node.start()
        owner = wait_for_owner(nodes)
        [standby] = [node for node in nodes if node is not owner]
        [served], [follows] = owner.children(), standby.children()
        beside = {"standby": follows}
        beside |= {f"kafka {number}": broker.pid for number, broker in enumerate(brokers, 1)}
        print(f"owner pid {served}, standby pid {follows}", flush=True)
        return measured(owner.amqp_port, ("gateway", served), beside, options, quorum=False)


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
    told.append("")
    if (kafka := found.get("cluster")) is None:
        return told
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


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(SYSTEMS), help="systems, separated by commas")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each window (default 10)")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds of load before it (default 10)")
    parser.add_argument("--window", type=int, default=2000, help="unconfirmed messages of a publisher")
    parser.add_argument("--warm-lone", type=float, default=45.0, help="seconds of lone messages before")
    parser.add_argument("--jars", type=Path, default=Path("build/kafka"))
    parser.add_argument("--data", metavar="DIR", help="where the data goes")
    options = parser.parse_args()
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
