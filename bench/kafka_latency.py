"""How long a lone producer waits for Kafka, and where the time goes: the yardstick of `bench.cluster`.

A producer of confluent-kafka with the settings of penstock's journal (acks=all, idempotent, one request in
flight, linger 0) sends single messages at a rate. Time counts from when a message was due until its answer.

Layers, from the outside in:

    answer          due until the producer is told
    queue           in librdkafka until it is part of a request (`int_latency`): behind the one in flight
    buffer          of the request until it is written to the socket (`outbuf_latency`)
    round trip      of the request (`rtt`)
    broker          of the request in the leader, in all
    ... queue       until a thread of the leader takes it
    ... append      in the leader's log
    ... followers   until all copies in sync have fetched it, and said so by their next fetch
    ... send        until the answer is on its way
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka import Kafka

__all__ = ["Layers", "Lone", "broker_layers", "lone", "make_topic"]

SIZE = 230
"""Bytes of a message: about those of an entry with a message of 100 bytes."""
_BROKER_LAYERS = {
    "broker": ("totalTimeMs",),
    "... queue": ("requestQueueTimeMs",),
    "... append": ("localTimeMs",),
    "... followers": ("remoteTimeMs",),
    "... send": ("responseQueueTimeMs", "sendTimeMs"),
}
_CLIENT_LAYERS = {"queue": "int_latency", "buffer": "outbuf_latency", "round trip": "rtt"}

Layers = dict[str, tuple[float, float]]
"""p50 and p99 in ms, by layer."""


@dataclass
class Lone:
    """One run of a lone producer."""

    took_s: list[float] = field(default_factory=list)
    layers: Layers = field(default_factory=dict)
    """Those in librdkafka; p99 is the mean of those of each second."""


def servers_of(brokers: Sequence[Kafka]) -> str:
    """Their addresses for a client."""
    return ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)


def make_topic(
    brokers: Sequence[Kafka], topic: str, *, copies: int = 3, config: Mapping[str, str] | None = None
) -> None:
    """A topic as penstock makes its own: one partition, three copies, two in sync; with further settings."""
    admin = AdminClient({"bootstrap.servers": servers_of(brokers)})
    admin.list_topics(timeout=60)
    settings = {"min.insync.replicas": "2", **(config or {})}
    new = NewTopic(topic, num_partitions=1, replication_factor=copies, config=settings)
    admin.create_topics([new])[topic].result()


def lone(brokers: Sequence[Kafka], topic: str, seconds: float, *, each_s: float, **settings: Any) -> Lone:
    """Produce one message each `each_s`; `settings`: of librdkafka, with _ for its dots."""
    found, told = Lone(), []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers_of(brokers),
            "acks": "all",
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 1,
            "linger.ms": 0,
            "message.timeout.ms": 0,
            "statistics.interval.ms": 1000,
            "stats_cb": lambda text: told.append(json.loads(text)),
            "log_level": 2,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    producer.list_topics(topic, timeout=60)
    body, total, sent = os.urandom(SIZE), int(seconds / each_s), 0
    begins = time.monotonic() + 0.5
    while len(found.took_s) < total:
        due = begins + sent * each_s
        now = time.monotonic()
        if sent < total and now >= due:

            def answered(error: object, _: object, due: float = due) -> None:
                assert error is None, error
                found.took_s.append(time.monotonic() - due)

            producer.produce(topic, value=body, partition=0, on_delivery=answered)
            sent += 1
            continue
        producer.poll(max(due - now, 0.0) if sent < total else 1.0)
    for layer, name in _CLIENT_LAYERS.items():
        windows = [
            broker[name]
            for second in told
            for broker in second["brokers"].values()
            if broker["req"].get("Produce") and broker[name]["cnt"]
        ]
        count = sum(window["cnt"] for window in windows) or 1
        found.layers[layer] = tuple(
            sum(window[cut] * window["cnt"] for window in windows) / count / 1e3 for cut in ("p50", "p99")
        )
    return found


def broker_layers(brokers: Sequence[Kafka], skip: dict[int, int]) -> Layers:
    """The leader's part of the PRODUCE requests since the last call, which `skip` remembers.

    The brokers note requests. Only those with acks=all count.
    """
    most: list[dict[str, float]] = []
    for broker in brokers:
        rows = list(broker.requests("PRODUCE"))
        new = rows[skip.get(broker.port, 0) :]
        skip[broker.port] = len(rows)
        most = max(most, [row for row in new if row["acks"] == -1], key=len)
    found = {}
    for layer, names in _BROKER_LAYERS.items():
        cuts = quantiles([sum(row[name] for name in names) for row in most], n=100)
        found[layer] = (cuts[49], cuts[98])
    return found
