"""Shared parts of the comparisons with Kafka: their command line, both brokers, the file of the result."""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.kafka import Kafka, jars
from bench.report import machine
from tests.support.brokers import BrokerMissing, Gateway

__all__ = ["Brokers", "command_line", "compare"]

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Brokers:
    """Both, which run."""

    gateway: Gateway
    kafka: Kafka

    @property
    def versions(self) -> str:
        """In words."""
        return f"penstock {self.gateway.version()}, kafka {self.kafka.version()}"


def command_line(name: str) -> argparse.ArgumentParser:
    """The options that each comparison has; `name` is its module's."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--only", default="", metavar="WORD", help="works whose name contains this")
    parser.add_argument("--no-write", action="store_true", help="do not write bench/results")
    parser.add_argument("--data", metavar="DIR", help="where the brokers' data goes")
    cache = Path.home() / ".cache" / "penstock-bench"
    parser.add_argument("--jars", type=Path, default=cache, help=f"where Kafka's jars are kept ({cache})")
    return parser


def compare(
    options: argparse.Namespace,
    topic: str,
    title: str,
    measure: Callable[[Brokers], tuple[str, Sequence[str]]],
) -> int:
    """Start both, `measure`, and write bench/results/DATE-`topic`.md; the exit status.

    `measure` returns what was measured, in words, and the lines of the page; what it wants to be seen
    before, it prints.
    """
    started = datetime.datetime.now(datetime.UTC)
    facts = machine()
    try:
        place = jars(options.jars)
    except BrokerMissing as missing:
        print(missing, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=options.data) as folder:
        gateway = Gateway(Path(folder) / "penstock", settings={"native.listen": "127.0.0.1:0"})
        with gateway, Kafka(Path(folder) / "kafka", place) as kafka:
            what, lines = measure(Brokers(gateway, kafka))
    text = "\n".join(
        [
            f"# {title}, {started:%Y-%m-%d %H:%M} UTC",
            "",
            ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in facts.items()),
            f"{what}; median of {options.repeat}",
            "",
            *lines,
        ]
    )
    print(text)
    if not options.no_write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{started:%Y-%m-%d}-{topic}.md").write_text(text + "\n")
    return 0
