"""Bridges between two MQTT brokers, penstock beside Mosquitto: python -m tests.compare.bridges [--rounds N].

A publisher sends to the source, and a bridge brings all of it to the target. "out": the source has the
bridge. "in": the target has it. A bridge is measured twice:

    live       both run; the time runs from the first message that is published
    backlog    the target is away while the source takes all; the time runs from the first that arrives

At the target a session that is away gets each message, and another one sees the first and the last of them.
The rate that counts is compared with that of a client which publishes batches to one broker, with as many
messages under way as the bridge has. That of one with 60,000 under way stands beside it. CPU is that of both
brokers' processes.

Mosquitto is told to keep any number of messages, since by default it drops more than 1,000, and to send at
once. Its bridge speaks MQTT 3.1.1: by MQTT 5 version 2.0.11 keeps no session of a bridge that is away, and so
no backlog. A rate of 0 says that the last message never came, as it happens to Mosquitto's bridge with QoS 2.

One measurement runs after the other; of several rounds the median counts. Exit code 0 if all that is printed
last holds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.cpu import cpu_seconds
from bench.load_mqtt import log_in, open_session, subscribe
from penstock.lazy_dataclass import dataclass
from tests.compare.mqtt_publishing import RAW_UNDER_WAY, publish
from tests.support.brokers import Broker, Gateway, Mosquitto

_LIMIT_S: Final = 300.0
_STALLED_S: Final = 10.0
"""A Mosquitto that moves nothing any more has been quiet for so long."""
_TIMES: Final = 10
"""Ours moves as many times what Mosquitto's bridge moves."""
_PART: Final = 0.5
"""Ours moves such a part of what a client publishes."""
_TOPIC: Final = "a/stream"
_MARKS: Final = "a/mark/#"
_FEW: Final = 20
"""Mosquitto's default of max_inflight_messages: it drops messages of QoS 2 above it."""
_MOSQUITTO: Final = ("mosquitto", "mosquitto, no limit")
_OPTIONS: Final = ("max_queued_messages 0", "set_tcp_nodelay true")
_UNLIMITED: Final = ("max_inflight_messages 0",)
_UNDER_WAY: Final = 16_000
"""Of our bridge it is 16,384: between two gateways by MQTT 5 by default, by MQTT 3 as the bridge is told."""


@dataclass(frozen=True)
class Case:
    """A bridge to measure."""

    product: str
    is_5: bool
    direction: str
    qos: int

    @property
    def under_way(self) -> int:
        """Messages under way of a publisher to one broker."""
        if self.product == _MOSQUITTO[0] and self.qos == 2:
            return _FEW
        return 1000 if self.product in _MOSQUITTO else _UNDER_WAY

    def __str__(self) -> str:
        return f"{self.product}, MQTT {'5' if self.is_5 else '3.1.1'}, QoS {self.qos}, {self.direction}"


class Measured(NamedTuple):
    """Messages a second, and microseconds of CPU for each."""

    raw: float
    published: float
    live: float
    backlog: float
    publish_us: float
    live_us: float
    backlog_us: float


_Found = Mapping[Case, Measured]


@dataclass(frozen=True)
class _Ends:
    """The two brokers of a bridge."""

    source: Broker
    target: Broker
    owner: Broker
    """Whose bridge it is."""

    def cpu_s(self) -> float:
        return cpu_seconds(self.source.pid) + cpu_seconds(self.target.pid)


def _give_bridge(owner: Broker, case: Case, port: int) -> None:
    """Configure the bridge of a broker to the other one, which listens at `port`."""
    topic = f"a/# {case.direction} {case.qos}"
    if isinstance(owner, Mosquitto):
        owner.options += (
            "connection bench",
            f"address 127.0.0.1:{port}",
            f"topic {topic}",
            "bridge_protocol_version mqttv311",
            "cleansession false",
            "restart_timeout 1",
        )
        return
    assert isinstance(owner, Gateway)
    bridge = {"name": "bench", "address": f"127.0.0.1:{port}", "topics": [topic], "restart_timeout": 1}
    more = {} if case.is_5 else {"protocol_version": "mqttv311", "max_inflight_messages": 16_384}
    words = ", ".join(f"{key} = {json.dumps(value)}" for key, value in (bridge | more).items())
    owner.settings["links.bridges"] = f"[{{{words}}}]"


@contextmanager
def _ends(folder: Path, case: Case) -> Iterator[_Ends]:
    """Two brokers, one of which has the bridge; both run."""
    source, target = _broker(folder / "source", case), _broker(folder / "target", case)
    owner, other = (source, target) if case.direction == "out" else (target, source)
    _give_bridge(owner, case, other.mqtt_port)
    with source, target:
        yield _Ends(source, target, owner)


def _broker(folder: Path, case: Case) -> Broker:
    if case.product not in _MOSQUITTO:
        return Gateway(folder)
    limits = _UNLIMITED if case.product == _MOSQUITTO[1] else ()
    return Mosquitto(folder, persistence=True, options=(*_OPTIONS, *limits))


class _Watch:
    """A session of the target that sees the marks."""

    def __init__(self, port: int, limit_s: float) -> None:
        self._socket, _ = log_in(port, "bench-watch", clean=False)
        self._socket.settimeout(limit_s)
        self._seen = b""

    def subscribe(self) -> None:
        """Once; the session keeps it."""
        subscribe(self._socket, _MARKS, 1)

    def at(self, mark: str) -> float:
        """When the mark came. Raises TimeoutError."""
        while mark.encode() not in self._seen:
            more = self._socket.recv(4096)
            if not more:
                raise ConnectionError("the target ended the connection")
            self._seen += more
        _, _, self._seen = self._seen.partition(mark.encode())
        return time.monotonic()

    def close(self) -> None:
        self._socket.close()


def _wait_up(broker: Broker) -> None:
    """Wait until the bridge says that it is connected."""
    with closing(open_session(broker.mqtt_port, "bench-state")) as state:
        state.settimeout(_LIMIT_S)
        subscribe(state, "$SYS/broker/connection/#", 0)
        seen = b""
        while b"/state1" not in seen:
            seen += state.recv(4096)


def _publish(case: Case, port: int, topic: str, count: int, size: int, under_way: int = 0) -> float:
    under_way = under_way or case.under_way
    return publish(
        port,
        topic,
        count,
        size,
        qos=case.qos,
        is_5=case.is_5 and under_way != RAW_UNDER_WAY,
        clean=under_way == RAW_UNDER_WAY,
        under_way=under_way,
        # So that a half is on its way while the other one is answered.
        batch=min(1000, max(under_way // 2, 1)),
    )


def _publish_marked(case: Case, port: int, name: str, count: int, size: int) -> None:
    for topic, number in ((_first(name), 1), (_TOPIC, count), (_last(name), 1)):
        _publish(case, port, topic, number, size, under_way=1 if number == 1 else 0)


def _first(name: str) -> str:
    return f"a/mark/first/{name}"


def _last(name: str) -> str:
    return f"a/mark/last/{name}"


def measure(folder: Path, case: Case, count: int, size: int) -> Measured:
    """Publish to one broker; then bring what is published to the other one meanwhile, and then a backlog."""
    with _ends(folder, case) as ends:
        with closing(log_in(ends.target.mqtt_port, "bench-sink", clean=False)[0]) as sink:
            subscribe(sink, "a/#", case.qos)
        _wait_up(ends.owner)
        raw = 0.0
        if case.product not in _MOSQUITTO:
            raw = _publish(case, ends.target.mqtt_port, "a/direct", count, size, RAW_UNDER_WAY)
        cpu_s = ends.cpu_s()
        published = _publish(case, ends.target.mqtt_port, "a/direct", count, size)
        publish_us = 1e6 * (ends.cpu_s() - cpu_s) / count
        live = backlog = live_us = backlog_us = 0.0
        try:
            live, live_us = _live(ends, case, count, size)
            backlog, backlog_us = _backlog(ends, case, count, size)
        except TimeoutError:
            if case.product not in _MOSQUITTO:
                raise
    return Measured(raw, published, live, backlog, publish_us, live_us, backlog_us)


def _limit_s(case: Case) -> float:
    return _STALLED_S if case.product in _MOSQUITTO else _LIMIT_S


def _live(ends: _Ends, case: Case, count: int, size: int) -> tuple[float, float]:
    with closing(_Watch(ends.target.mqtt_port, _limit_s(case))) as watch:
        watch.subscribe()
        cpu_s, began = ends.cpu_s(), time.monotonic()
        _publish_marked(case, ends.source.mqtt_port, "live", count, size)
        rate = count / (watch.at(_last("live")) - began)
        return rate, 1e6 * (ends.cpu_s() - cpu_s) / count


def _backlog(ends: _Ends, case: Case, count: int, size: int) -> tuple[float, float]:
    ends.target.terminate()
    _publish_marked(case, ends.source.mqtt_port, "backlog", count, size)
    ends.target.start()
    cpu_s, began = ends.cpu_s(), time.monotonic()
    with closing(_Watch(ends.target.mqtt_port, _limit_s(case))) as watch:
        first = watch.at(_first("backlog"))
        # A bridge of the target begins when that is ready, maybe before anybody can watch.
        began = first if ends.owner is ends.source else began
        rate = count / (watch.at(_last("backlog")) - began)
        return rate, 1e6 * (ends.cpu_s() - cpu_s) / count


def _cases(products: Sequence[str]) -> list[Case]:
    return [
        Case(product, is_5, direction, qos)
        for product in products
        for is_5, direction, qos in itertools.product((True, False), ("out", "in"), (1, 2))
        if not (is_5 and product in _MOSQUITTO)
    ]


def _all(folder: Path, cases: list[Case], counts: Mapping[bool, int], size: int, rounds: int) -> _Found:
    """The medians."""
    found: dict[Case, list[Measured]] = {}
    for number, case in itertools.product(range(rounds), cases):
        count = counts[case.product in _MOSQUITTO]
        one = measure(folder / f"{number}-{cases.index(case)}", case, count, size)
        found.setdefault(case, []).append(one)
        raw = f"{one.raw:>10,.0f} raw" if one.raw else ""
        print(
            f"{case!s:<46}{one.published:>10,.0f} published/s{one.live:>10,.0f} live/s"
            f"{one.backlog:>10,.0f} backlog/s{raw}   "
            f"{one.publish_us:.2f}, {one.live_us:.2f} and {one.backlog_us:.2f} µs of CPU",
            flush=True,
        )
    return {case: Measured(*map(statistics.median, zip(*some, strict=True))) for case, some in found.items()}


def _judged(found: _Found) -> bool:
    """Print each promise and whether it holds; whether all do."""
    verdicts = []
    for case, one in found.items():
        if case.product in _MOSQUITTO:
            continue
        for name, rate in (("live", one.live), ("backlog", one.backlog)):
            part = rate / one.published
            verdict = [f"{part:.2f} of the published rate", f"{rate / one.raw:.2f} of the raw one"]
            holds = part >= _PART
            theirs = [
                getattr(other, name)
                for their, other in found.items()
                if their.product in _MOSQUITTO and (their.direction, their.qos) == (case.direction, case.qos)
            ]
            if theirs:
                verdict.append(
                    f"{rate / max(theirs):.1f} times Mosquitto's" if max(theirs) else "Mosquitto's never ends"
                )
                holds &= rate >= _TIMES * max(theirs)
            print(f"{case}, {name}: {', '.join(verdict)}{'' if holds else ': TOO LITTLE'}")
            verdicts.append(holds)
    return all(verdicts)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.compare.bridges")
    parser.add_argument(
        "--messages", type=int, default=10_000, help="of Mosquitto; fifty times as many of ours"
    )
    parser.add_argument("--size", type=int, default=100, help="of a payload, in bytes")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of a line's name, such as 'MQTT 5, QoS 1'")
    parser.add_argument("--no-mosquitto", action="store_true", help="measure ours alone")
    options = parser.parse_args()
    products = ("penstock",) if options.no_mosquitto else ("penstock", *_MOSQUITTO)
    cases = [case for case in _cases(products) if options.only in str(case)]
    counts = {True: options.messages, False: 50 * options.messages}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        found = _all(Path(name), cases, counts, options.size, options.rounds)
    return 0 if _judged(found) else 1


if __name__ == "__main__":
    sys.exit(main())
