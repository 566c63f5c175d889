"""Shovels between two queues, penstock beside RabbitMQ: python -m tests.compare.shovels [--rounds N].

Each kind of shovel is measured within one broker, and between two of them with the shovel at the target. Each
line has messages a second as a client publishes them in batches, and as the shovel moves them. The client is
the shovel's own, with as many messages under way. CPU is that of all brokers' processes. One measurement runs
after the other; of several rounds the median counts. Exit code 0 if all that is printed last holds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
from pamqp import commands

from penstock.lazy_dataclass import dataclass
from tests.compare.publishing import AMQP, AMQP10, NATIVE, declare, publish
from tests.support.amqp_client import Connection
from tests.support.brokers import Broker, Gateway, RabbitMQ
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS

_LIMIT_S: Final = 600.0
_THEIRS: Final = 1000
"""RabbitMQ's default prefetch; ours is larger."""
_TIMES: Final = 10
"""Ours moves as many times what RabbitMQ's shovel moves."""
_PART: Final = 0.5
"""Ours moves such a part of what a client publishes."""
_PLUGINS: Final = (
    "rabbitmq_management",
    "rabbitmq_shovel",
    "rabbitmq_shovel_management",
    "rabbitmq_amqp1_0",
)


_ONE: Final = "within one"
_TWO: Final = "between two"
"""The shapes."""


@dataclass(frozen=True)
class Kind:
    """A kind of shovel."""

    name: str
    protocol: str
    prefetch: int = 0
    """0 = the default."""
    judged: tuple[str, ...] = ()
    """Shapes in which it must move that part of what a client publishes."""


KINDS: Final = (
    Kind("0-9-1", AMQP, judged=(_ONE, _TWO)),
    Kind("0-9-1, 1,000 under way", AMQP, _THEIRS),
    Kind("1.0", AMQP10, judged=(_TWO,)),
    Kind("native", NATIVE, judged=(_ONE, _TWO)),
)


class Measured(NamedTuple):
    """Messages a second, and microseconds of CPU for each."""

    published: float
    moved: float
    publish_us: float
    move_us: float


class Pair(NamedTuple):
    """The brokers of a shovel: the same one, or two."""

    source: Broker
    target: Broker

    @property
    def shape(self) -> str:
        return _ONE if self.source is self.target else _TWO

    def cpu_s(self) -> float:
        """CPU time of their processes so far. Source: proc(5), stat."""
        pids = {self.source.pid, self.target.pid}
        words = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        return sum(int(one[11]) + int(one[12]) for one in words) / os.sysconf("SC_CLK_TCK")


def _address(broker: Broker, queue: str) -> str:
    return f"/amq/queue/{queue}" if isinstance(broker, RabbitMQ) else f"/queues/{queue}"


def _publish(kind: Kind, broker: Broker, queue: str, count: int, size: int) -> float:
    if kind.protocol == NATIVE and isinstance(broker, Gateway):
        return publish(NATIVE, broker.ports["native"], queue, count, size)
    target = _address(broker, queue) if kind.protocol == AMQP10 else queue
    return publish(kind.protocol, broker.amqp_port, target, count, size)


def _ends(kind: Kind, pair: Pair, source: str, target: str) -> dict[str, str | int]:
    """The value of the shovel. Its own broker is named by no host, where that protocol may."""
    value: dict[str, str | int] = {"src-protocol": kind.protocol, "dest-protocol": kind.protocol}
    for end, broker, queue in (("src", pair.source, source), ("dest", pair.target, target)):
        scheme, port = "amqp", broker.amqp_port
        if kind.protocol == NATIVE and isinstance(broker, Gateway):
            scheme, port = "penstock", broker.ports["native"]
        here = broker is pair.target and not (isinstance(broker, RabbitMQ) and kind.protocol == AMQP10)
        value[f"{end}-uri"] = f"{scheme}://" if here else f"{scheme}://guest:guest@127.0.0.1:{port}"
        if kind.protocol == AMQP10:
            value[f"{end}-address"] = _address(broker, queue)
        else:
            value[f"{end}-queue"] = queue
    return value | ({"src-prefetch-count": kind.prefetch} if kind.prefetch else {})


def measure(kind: Kind, pair: Pair, management_port: int, name: str, count: int, size: int) -> Measured:
    """Publish to the source, and then move all of it to the target, which has its shovel."""
    source, target = f"{name}.from", f"{name}.to"
    declare(pair.source.amqp_port, source)
    declare(pair.target.amqp_port, target)
    cpu_s = pair.cpu_s()
    published = _publish(kind, pair.source, source, count, size)
    publish_s = pair.cpu_s() - cpu_s
    url = f"http://127.0.0.1:{management_port}/api/parameters/shovel/%2F/{name}"
    with (
        Connection(pair.target.amqp_port) as connection,
        httpx.Client(auth=("guest", "guest"), timeout=LIMIT_S) as api,
    ):
        connection.channel()
        cpu_s, began = pair.cpu_s(), time.monotonic()
        value = _ends(kind, pair, source, target)
        api.put(url, json={"value": value}, timeout=60).raise_for_status()
        moved = 0
        while moved < count:
            if time.monotonic() - began > _LIMIT_S:
                raise TimeoutError(f"{name}: only {moved} of {count} moved within {_LIMIT_S:g} s")
            time.sleep(0.02)
            connection.send(1, commands.Queue.Declare(queue=target, passive=True))
            found = connection.wait_for(commands.Queue.DeclareOk)
            assert isinstance(found, commands.Queue.DeclareOk)
            moved = found.message_count or 0
        rate = moved / (time.monotonic() - began)
        move_s = pair.cpu_s() - cpu_s
        api.delete(url, timeout=60).raise_for_status()
        connection.call(1, commands.Queue.Delete(queue=target))
    return Measured(published, rate, 1e6 * publish_s / count, 1e6 * move_s / count)


@contextmanager
def _brokers(folder: Path, product: str) -> Iterator[tuple[Pair, ...]]:
    """Two brokers of a product, as pairs of both shapes."""
    settings = {**SETTINGS, "native.listen": "127.0.0.1:0"}
    if product == "rabbitmq":
        with (
            RabbitMQ(folder / "rabbitmq", plugins=_PLUGINS) as other,
            RabbitMQ(folder / "rabbitmq2", plugins=_PLUGINS) as one,
        ):
            yield Pair(one, one), Pair(other, one)
    else:
        with (
            Gateway(folder / "other", settings=settings) as other_gateway,
            Gateway(folder / "penstock", settings=settings) as gateway,
        ):
            yield Pair(gateway, gateway), Pair(other_gateway, gateway)


def _management_port(broker: Broker) -> int:
    return broker.management_port if isinstance(broker, RabbitMQ) else broker.ports["management"]  # type: ignore[attr-defined]


def _all(
    folder: Path, product: str, kinds: list[Kind], counts: dict[str, int], size: int, rounds: int
) -> dict[tuple[str, str], Measured]:
    """The medians by kind and shape."""
    found: dict[tuple[str, str], list[Measured]] = {}
    with _brokers(folder, product) as pairs:
        for number in range(rounds):
            for kind in kinds:
                for pair in pairs:
                    name = f"{kind.protocol}-{kind.prefetch}-{pair.shape}-{number}".replace(" ", "-")
                    port = _management_port(pair.target)
                    one = measure(kind, pair, port, name, counts[kind.protocol], size)
                    found.setdefault((kind.name, pair.shape), []).append(one)
                    print(
                        f"{product:<9}{kind.name:<24}{pair.shape:<12}{one.published:>10,.0f} published/s"
                        f"{one.moved:>10,.0f} moved/s{one.moved / one.published:>6.2f}   "
                        f"{one.publish_us:.2f} and {one.move_us:.2f} µs of CPU",
                        flush=True,
                    )
    return {key: Measured(*map(statistics.median, zip(*some, strict=True))) for key, some in found.items()}


def _judged(ours: dict[tuple[str, str], Measured], theirs: dict[tuple[str, str], Measured]) -> bool:
    """Print each promise and whether it holds; whether all do."""
    verdicts = []
    for (name, shape), one in ours.items():
        (kind,) = (kind for kind in KINDS if kind.name == name)
        part = one.moved / one.published
        verdict = [f"{part:.2f} of the published rate"]
        holds = part >= _PART or shape not in kind.judged
        if kind.judged and (name, shape) in theirs:
            times = one.moved / theirs[name, shape].moved
            verdict.append(f"{times:.1f} times RabbitMQ's")
            holds &= times >= _TIMES
        print(f"{name}, {shape}: {', '.join(verdict)}{'' if holds else ': TOO LITTLE'}")
        verdicts.append(holds)
    return all(verdicts)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.compare.shovels")
    parser.add_argument(
        "--messages", type=int, default=50_000, help="of RabbitMQ; forty times as many of ours"
    )
    parser.add_argument("--size", type=int, default=100, help="of a body, in bytes")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="a kind, such as 0-9-1")
    parser.add_argument("--no-rabbitmq", action="store_true", help="measure ours alone")
    options = parser.parse_args()
    kinds = [kind for kind in KINDS if options.only in ("", kind.name)]
    few = options.messages
    theirs: dict[tuple[str, str], Measured] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        if not options.no_rabbitmq:
            of_amqp = [kind for kind in kinds if kind.protocol != NATIVE and not kind.prefetch]
            counts = {AMQP: few, AMQP10: few}
            theirs = _all(folder, "rabbitmq", of_amqp, counts, options.size, options.rounds)
        # More of ours, since the time until the first one counts, too.
        counts = {AMQP: 40 * few, AMQP10: 8 * few, NATIVE: 40 * few}
        ours = _all(folder, "penstock", kinds, counts, options.size, options.rounds)
    return 0 if _judged(ours, theirs) else 1


if __name__ == "__main__":
    sys.exit(main())
