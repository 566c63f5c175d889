"""Replays the data set through the gateway, checks that all of it came through, and says how fast."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict

from tqdm import tqdm

from demo.clients import Consumer, Publisher, Received
from demo.data import Reading, readings
from demo.gateway import gateway

PATIENCE_S = 10.0


def main() -> int:
    """Run the command line; exit code 1 when a reading is missing, doubled, changed or out of order."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--amqp", metavar="HOST:PORT", help="AMQP address of a running gateway")
    parser.add_argument("--mqtt", metavar="HOST:PORT", help="MQTT address of the same gateway")
    given = parser.parse_args()
    if (given.amqp is None) != (given.mqtt is None):
        parser.error("give both --amqp and --mqtt, or neither")
    if given.amqp is not None:
        return replay(given.amqp, given.mqtt)
    with gateway() as (amqp, mqtt):
        return replay(amqp, mqtt)


def replay(amqp: str, mqtt: str) -> int:
    """Send every reading to `mqtt` and take it from `amqp`; returns the exit code."""
    sent = readings()
    print(f"{len(sent):,} readings of vega_datasets: paho (MQTT 5, QoS 1) -> {mqtt}")
    print(f"a queue bound to amq.topic with weather.#: {amqp} -> pika (AMQP 0-9-1)")
    with tqdm(total=len(sent), unit="msg", desc="delivered", smoothing=0.1) as bar:
        consumer = Consumer(amqp, len(sent), bar.update)
        consumer.start()
        consumer.bound.wait()
        began = consumer.last_at = time.perf_counter()
        if consumer.failure is None:
            with Publisher(mqtt) as publisher:
                publisher.publish(sent)
                published_s = time.perf_counter() - began
        while consumer.is_alive():
            consumer.join(0.2)
            if time.perf_counter() - consumer.last_at > PATIENCE_S:
                consumer.stopping.set()
    if consumer.failure is not None:
        raise SystemExit(f"the consumer failed: {consumer.failure!r}")
    problems = compare(sent, consumer.received)
    table(sent, consumer.received)
    print(f"\npublished and acknowledged: {publisher.acknowledged:,} in {published_s:.2f} s", end=", ")
    print(f"{publisher.acknowledged / published_s:,.0f} msg/s")
    delivered_s = consumer.last_at - began
    print(f"delivered and acknowledged: {len(consumer.received):,} in {delivered_s:.2f} s", end=", ")
    print(f"{len(consumer.received) / delivered_s:,.0f} msg/s, {consumer.redelivered} redelivered")
    print("\n".join(problems) if problems else "nothing is missing, doubled, changed or out of order")
    return 1 if problems else 0


def compare(sent: list[Reading], received: Received) -> list[str]:
    """The faults of `received`: one line per kind of fault and routing key; empty when nothing is."""
    wanted: dict[str, list[bytes]] = defaultdict(list)
    for reading in sent:
        wanted[reading.topic.replace("/", ".")].append(reading.payload)
    got: dict[str, list[bytes]] = defaultdict(list)
    for key, body in received:
        got[key].append(body)
    problems = [f"{key}: {len(got[key])} messages with a key that nobody sent" for key in got.keys() - wanted]
    for key, bodies in wanted.items():
        missing = (Counter(bodies) - Counter(got[key])).total()
        extra = (Counter(got[key]) - Counter(bodies)).total()
        if missing or extra:
            problems.append(f"{key}: {missing} missing, {extra} doubled or changed")
        elif bodies != got[key]:
            problems.append(f"{key}: out of order")
    return problems


def table(sent: list[Reading], received: Received) -> None:
    """Print what went where."""
    arrived = Counter(key for key, _ in received)
    values: dict[str, list[str]] = defaultdict(list)
    for reading in sent:
        values[reading.topic].append(reading.value)
    print(f"\n{'MQTT topic':36}{'AMQP routing key':36}{'sent':>7}{'received':>10}  values")
    for topic, texts in values.items():
        key = topic.replace("/", ".")
        try:
            numbers = sorted(map(float, texts))
            spread = f"{numbers[0]:g} to {numbers[-1]:g}"
        except ValueError:
            spread = ", ".join(sorted(set(texts)))
        print(f"{topic:36}{key:36}{len(texts):>7,}{arrived[key]:>10,}  {spread}")


if __name__ == "__main__":
    sys.exit(main())
