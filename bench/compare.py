"""The same load on penstock, Mosquitto and RabbitMQ, in one go, on this machine.

python -m bench.compare [--only PATTERN] [--seconds S] [--repeat N] [--quick] [--brokers penstock,mosquitto]

Mosquitto and RabbitMQ come from Debian's packages with their default limits and run on free loopback ports.
For each workload the brokers take turns, so that a slow minute of the machine hits all of them. Penstock
and Mosquitto get an empty data folder per workload; RabbitMQ, which takes long to start, runs through with
fresh queues. "Lost" counts messages that the broker took and did not deliver (Mosquitto drops QoS 1
messages past its queue limit).
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import fnmatch
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.cpu import wait_until_idle
from bench.load import Load, Result, run
from bench.report import machine, markdown, middle, ratios, reached, rows
from bench.workloads import WORKLOADS, Workload
from tests.support.brokers import Broker, BrokerMissing, Gateway, Mosquitto, RabbitMQ

RESULTS = Path(__file__).parent / "results"
BROKERS = ("penstock", "mosquitto", "rabbitmq")


class Stable:
    """The brokers of a comparison, started when first needed."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._folder = folder
        self._settings = settings
        self._rabbitmq: RabbitMQ | None = None
        self._runs = 0
        self.versions: dict[str, str] = {}

    @contextmanager
    def lend(self, name: str) -> Iterator[Broker]:
        """A broker that serves and is idle."""
        self._runs += 1
        folder = self._folder / f"{name}-{self._runs}"
        if name == "rabbitmq":
            if self._rabbitmq is None:
                self._rabbitmq = RabbitMQ(folder)
                self._rabbitmq.start()
                self.versions[name] = self._rabbitmq.version()
            wait_until_idle(self._rabbitmq.pid)
            yield self._rabbitmq
            return
        broker: Broker = Gateway(folder, settings=self._settings) if name == "penstock" else Mosquitto(folder)
        self.versions[name] = broker.version()
        with broker:
            yield broker
        shutil.rmtree(folder)

    def close(self) -> None:
        """Stop what still runs."""
        if self._rabbitmq is not None:
            self._rabbitmq.close()


def measure(broker: Broker, load: Load, seconds: float, warm_s: float) -> Result:
    """One run of a load on a broker."""
    port = broker.amqp_port if load.protocol == "amqp" else broker.mqtt_port
    return run(load, port, broker_pid=broker.pid, seconds=seconds, warm_s=warm_s)


def main() -> int:
    """Run the command line; 1 when penstock missed a goal, 0 otherwise."""
    options = _options()
    chosen = [w for w in WORKLOADS if fnmatch.fnmatch(w.name, f"*{options.only}*")]
    names = [name for name in BROKERS if name in options.brokers.split(",")]
    if not chosen or not names:
        print(
            "no workload or broker of that name; the workloads are:", *(w.name for w in WORKLOADS), sep="\n  "
        )
        return 2
    started = datetime.datetime.now(datetime.UTC)
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=options.data))
    settings = dict(item.split("=", 1) for item in options.set)
    stable = Stable(folder, settings)
    facts = machine()
    figures: list[tuple[Workload, dict[str, Result]]] = []
    try:
        for workload in chosen:
            figures.append((workload, _turns(stable, workload, names, options)))
            print(markdown(rows(*figures[-1])), end="\n\n", flush=True)
    except BrokerMissing as missing:
        print(f"{missing}; or leave it out: --brokers penstock", file=sys.stderr)
        return 2
    finally:
        stable.close()
        shutil.rmtree(folder, ignore_errors=True)
    text = _summary(started, facts, stable.versions, options, figures)
    print(text)
    if not options.no_write:
        _write(started, facts, stable.versions, options, figures, text)
    return 1 if any(reached(*figure) is False for figure in figures) else 0


def _turns(
    stable: Stable, workload: Workload, names: list[str], options: argparse.Namespace
) -> dict[str, Result]:
    taken: dict[str, list[Result]] = {}
    for _ in range(options.repeat):
        for name in names:
            if name in ("penstock", workload.peer):
                with stable.lend(name) as broker:
                    taken.setdefault(name, []).append(
                        measure(broker, workload.load, options.seconds, options.warm)
                    )
    return {name: middle(results) for name, results in taken.items()}


def _summary(
    started: datetime.datetime,
    facts: dict[str, str],
    versions: dict[str, str],
    options: argparse.Namespace,
    figures: list[tuple[Workload, dict[str, Result]]],
) -> str:
    table = [row for figure in figures for row in rows(*figure)]
    lines = [
        f"# Comparison of {started:%Y-%m-%d %H:%M} UTC",
        "",
        ", ".join(f"{k.replace('_', ' ')}: {v}" for k, v in facts.items()),
        ", ".join(f"{k} {v}" for k, v in versions.items())
        + f"; {options.seconds:g} s per run, median of {options.repeat}",
        "",
        markdown(table),
        "",
        "`penstock : peer` is how many times penstock is better: messages per broker-CPU-second, or latency.",
    ]
    return "\n".join(lines) + "\n"


def _write(
    started: datetime.datetime,
    facts: dict[str, str],
    versions: dict[str, str],
    options: argparse.Namespace,
    figures: list[tuple[Workload, dict[str, Result]]],
    text: str,
) -> None:
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / f"{started:%Y-%m-%d}"
    document = {
        "started": started.isoformat(timespec="seconds"),
        "machine": facts,
        "versions": versions,
        "seconds": options.seconds,
        "repeat": options.repeat,
        "workloads": [
            {
                "name": workload.name,
                "load": dataclasses.asdict(workload.load),
                "goal": workload.goal,
                "reached": reached(workload, results),
                "ratios": ratios(workload, results),
                "brokers": {name: dataclasses.asdict(result) for name, result in results.items()},
            }
            for workload, results in figures
        ],
    }
    stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    stem.with_suffix(".md").write_text(text)
    print(f"written to {stem}.json and {stem}.md")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description="The same load on penstock, Mosquitto and RabbitMQ."
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="workloads whose name contains this")
    parser.add_argument("--brokers", default=",".join(BROKERS), help="comma separated; default: all three")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="length of each measured window (default: 5)"
    )
    parser.add_argument("--warm", type=float, default=1.5, help="seconds of load before the window")
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs per workload and broker; the median counts"
    )
    parser.add_argument("--quick", action="store_true", help="2 s once: a look, not a result")
    parser.add_argument("--no-write", action="store_true", help="do not write bench/results")
    parser.add_argument(
        "--data", metavar="DIR", help="where the brokers' data goes (default: the temporary folder)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="a setting of penstock"
    )
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.repeat, options.warm = 2.0, 1, 1.0
    return options


if __name__ == "__main__":
    sys.exit(main())
