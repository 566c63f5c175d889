"""Kill -9 in a loop: load, kill at a random time, start again on the same data, and in the end judge.

Some kills come twice: the second while the broker is still starting, because recovery itself may be
interrupted. Restart times count from the start of the process: until it says it is ready, until the slowest
stream has its first confirm and its first delivery.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.cpu import cpu_seconds
from tests.crash.checker import Verdict, check
from tests.crash.streams import AmqpStream, MqttStream, Stream
from tests.support.brokers import Broker

SECOND_KILL_CHANCE = 0.2
PROGRESS_LIMIT_S = 120.0
DRAIN_LIMIT_S = 240.0
DRAIN_STALL_S = 90.0
"""An acknowledged message counts as lost when no message arrived for so long."""
ACKED_MIN = 200


@dataclass(frozen=True, slots=True)
class Cycle:
    """One load, kill, restart."""

    load_s: float
    acked: int
    """Acks since the restart before, over all streams."""
    in_flight: int
    killed_twice: bool
    ready_s: float
    """From the start of the process to the line that says it serves."""
    ready_cpu_s: float
    """The CPU time of that start: hardly more on a busy machine."""
    confirm_s: float
    """From the start of the process to the first confirm of the slowest stream."""
    delivery_s: float


@dataclass(slots=True)
class Report:
    """The work and the findings of a run."""

    broker: str
    seed: int
    cycles: list[Cycle] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    sessions_lost: int = 0
    drain_s: float = 0.0

    def __str__(self) -> str:
        lines = [
            f"{self.broker}, seed {self.seed}",
            "cycle  load s    acked  in flight  ready s  confirm s  delivery s",
        ]
        lines += [
            f"{i:5}  {c.load_s:6.2f}  {c.acked:7,}  {c.in_flight:9}  {c.ready_s:7.2f}  {c.confirm_s:9.2f}"
            f"  {c.delivery_s:10.2f}{'  killed twice' if c.killed_twice else ''}"
            for i, c in enumerate(self.cycles, 1)
        ]
        if self.cycles:
            lines.append(
                f"slowest: ready {max(c.ready_s for c in self.cycles):.2f} s, first confirm "
                f"{max(c.confirm_s for c in self.cycles):.2f} s, first delivery "
                f"{max(c.delivery_s for c in self.cycles):.2f} s; drained in {self.drain_s:.1f} s"
            )
        lines.append(f"sessions or queues lost: {self.sessions_lost}")
        lines.append(str(self.verdict))
        return "\n".join(lines)


def streams_for(broker: Broker) -> list[Stream]:
    """A stream of each kind that the broker speaks."""
    streams: list[Stream] = []
    if broker.amqp_port:
        streams.append(AmqpStream("amqp-durable", broker.amqp_port))
    if broker.mqtt_port and broker.name != "rabbitmq":
        streams.append(MqttStream("mqtt-qos1", broker.mqtt_port, 1))
        streams.append(MqttStream("mqtt-qos2", broker.mqtt_port, 2))
    return streams


def run_cycles(
    broker: Broker,
    *,
    cycles: int,
    seed: int,
    load_s: tuple[float, float] = (0.1, 1.5),
    acked_min: int = ACKED_MIN,
    streams: Sequence[Stream] | None = None,
    drain_stall_s: float = DRAIN_STALL_S,
) -> Report:
    """Run `cycles` kills against a broker that serves, drain, and judge. The broker is left running.

    Args:
        broker: The broker; it is killed and restarted here.
        cycles: How often it is killed.
        seed: Of the random times; the same seed gives the same times, not the same interleaving.
        load_s: Bounds of the load between a restart (once every stream moves) and the next kill, in seconds.
            It goes on until every stream has had its part of `acked_min`, and while nothing is in flight.
        acked_min: See `check`.
        streams: The load; None: a stream of each kind that the broker speaks.
        drain_stall_s: See `DRAIN_STALL_S`.

    """
    random_times = random.Random(seed)
    report = Report(broker.name, seed)
    streams = streams_for(broker) if streams is None else streams
    kills: list[float] = []
    for stream in streams:
        stream.start()
    try:
        _first_progress(streams, time.monotonic())
        for _ in range(cycles):
            acked_each = acked_min // cycles + 1
            report.cycles.append(_one_cycle(broker, streams, random_times, load_s, acked_each, kills))
        for stream in streams:
            stream.finish_publishing()
        report.drain_s = _drain(streams, drain_stall_s)
    finally:
        for stream in streams:
            stream.stop()
    failures = "".join(stream.failure for stream in streams)
    if failures:
        raise RuntimeError(f"a client failed\n{failures}\n{broker.log_tail()}")
    report.sessions_lost = sum(stream.sessions_lost for stream in streams)
    report.verdict = check((s.history for s in streams), fault_times=kills, acked_min=acked_min)
    return report


def _one_cycle(
    broker: Broker,
    streams: Sequence[Stream],
    random_times: random.Random,
    bounds: tuple[float, float],
    acked_each: int,
    kills: list[float],
) -> Cycle:
    before = [len(stream.history.acked) for stream in streams]
    load_s = random_times.uniform(*bounds)
    twice = random_times.random() < SECOND_KILL_CHANCE
    second_after_s = random_times.uniform(0, 0.4)
    time.sleep(load_s)
    wants = [count + acked_each for count in before]
    _wait_for_acks(streams, wants)
    in_flight = [stream.in_flight for stream in streams]
    while not any(in_flight):
        time.sleep(0.001)
        in_flight = [stream.in_flight for stream in streams]
    for stream, count in zip(streams, in_flight, strict=True):
        stream.history.in_flight_at_fault.append(count)
    broker.kill9()
    kills.append(time.monotonic())
    acked = sum(len(stream.history.acked) for stream in streams) - sum(before)
    if twice:
        broker.launch()
        time.sleep(second_after_s)
        broker.kill9()
        kills.append(time.monotonic())
    launched = time.monotonic()
    broker.launch()
    broker.wait_until_serving()
    ready_s, ready_cpu_s = time.monotonic() - launched, cpu_seconds(broker.pid)
    confirm_s, delivery_s = _first_progress(streams, launched)
    return Cycle(load_s, acked, sum(in_flight), twice, ready_s, ready_cpu_s, confirm_s, delivery_s)


def _wait_for_acks(streams: Sequence[Stream], wants: Sequence[int]) -> None:
    """Wait until each stream has had so many acks in all."""
    deadline = time.monotonic() + PROGRESS_LIMIT_S
    while any(len(stream.history.acked) < want for stream, want in zip(streams, wants, strict=True)):
        if time.monotonic() > deadline:
            found = {stream.name: len(stream.history.acked) for stream in streams}
            raise TimeoutError(f"acked after {PROGRESS_LIMIT_S} s: {found}, wanted {list(wants)}")
        time.sleep(0.002)


def _first_progress(streams: Sequence[Stream], since: float) -> tuple[float, float]:
    """Wait until every stream has had a confirm and a delivery after `since`; how long the slowest took."""
    confirm: dict[str, float] = {}
    delivery: dict[str, float] = {}
    while len(confirm) < len(streams) or len(delivery) < len(streams):
        for stream in streams:
            if stream.last_acked_at > since:
                confirm.setdefault(stream.name, stream.last_acked_at - since)
            if stream.last_received_at > since:
                delivery.setdefault(stream.name, stream.last_received_at - since)
        if time.monotonic() - since > PROGRESS_LIMIT_S:
            stuck = [s.name for s in streams if s.name not in confirm or s.name not in delivery]
            failures = "".join(stream.failure for stream in streams)
            raise TimeoutError(
                f"no confirm or delivery in {PROGRESS_LIMIT_S} s: {', '.join(stuck)} {failures}"
            )
        time.sleep(0.002)
    return max(confirm.values()), max(delivery.values())


def _drain(streams: Sequence[Stream], stall_s: float) -> float:
    """Wait until every acked message has arrived and nothing comes any more; seconds it took."""
    began = time.monotonic()
    while time.monotonic() - began < DRAIN_LIMIT_S:
        quiet_s = time.monotonic() - max(stream.last_received_at for stream in streams)
        missing = any(
            stream.history.acked - {receipt.sequence for receipt in stream.history.receipts}
            for stream in streams
        )
        if quiet_s > (stall_s if missing else 0.5):
            break
        time.sleep(0.1)
    return time.monotonic() - began
