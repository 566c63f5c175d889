"""The same work by each Python client: what `bench.compare_sdk` runs. Topics are there and filled before.

Each function does `count` messages of `BODY` and returns its latencies in seconds, [] where it has none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import penstock

__all__ = ["BODY", "CLIENTS", "Place"]

BODY = b"x" * 100
AT_ONCE = 10_000
WAIT_S = 120.0


@dataclass(frozen=True)
class Place:
    """Where the brokers listen, and which topics of them are for what."""

    penstock_url: str
    kafka: str
    write: str = "written"
    flushed: str = "flushed"
    """Of Kafka: each message is synced before it is confirmed."""
    read: str = "filled"


async def _in_flight(count: int, at_once: int, send: Callable[[], Awaitable[object]]) -> list[float]:
    """`count` sends, so many of which wait at any moment; how long each took."""
    took: list[float] = []

    async def one(n: int) -> None:
        for _ in range(n):
            began = time.perf_counter()
            await send()
            took.append(time.perf_counter() - began)

    await asyncio.gather(*(one(count // at_once) for _ in range(at_once)))
    return took


# penstock


async def _penstock_send(place: Place, count: int) -> list[float]:
    async with penstock.connect(place.penstock_url) as client, client.producer(place.write) as producer:
        for _ in range(count // 5000):
            for _ in range(5000):
                producer.send_nowait(BODY)
            await producer.flush()
    return []


async def _penstock_batches(place: Place, count: int) -> list[float]:
    bodies = [BODY] * AT_ONCE
    async with penstock.connect(place.penstock_url) as client, client.producer(place.write) as producer:
        for _ in range(count // AT_ONCE):
            await producer.send_many(bodies)
    return []


async def _penstock_iterate(place: Place, count: int) -> list[float]:
    async with (
        penstock.connect(place.penstock_url) as client,
        client.reader(place.read, start="earliest") as reader,
    ):
        async for message in reader:
            assert message.body
            count -= 1
            if not count:
                break
    return []


async def _penstock_read_batches(place: Place, count: int) -> list[float]:
    async with (
        penstock.connect(place.penstock_url) as client,
        client.reader(place.read, start="earliest", prefetch=50_000) as reader,
    ):
        async for batch in reader.batches(AT_ONCE):
            count -= len(batch.bodies)
            if count <= 0:
                break
    return []


def _penstock_latency(acks: str, at_once: int) -> Callable[[Place, int], Awaitable[list[float]]]:
    async def run(place: Place, count: int) -> list[float]:
        async with (
            penstock.connect(place.penstock_url) as client,
            client.producer(place.write, acks=acks) as producer,  # type: ignore[arg-type]
        ):
            return await _in_flight(count, at_once, lambda: producer.send(BODY))

    return run


# aiokafka


def _aiokafka_producer(place: Place, **options: Any) -> Any:
    from aiokafka import AIOKafkaProducer

    return AIOKafkaProducer(bootstrap_servers=place.kafka, acks="all", max_batch_size=262_144, **options)


async def _aiokafka_send(place: Place, count: int) -> list[float]:
    async with _aiokafka_producer(place, linger_ms=5) as producer:
        for _ in range(count // 5000):
            for _ in range(5000):
                await producer.send(place.write, BODY)
            await producer.flush()
    return []


async def _aiokafka_batches(place: Place, count: int) -> list[float]:
    async with _aiokafka_producer(place) as producer:
        left = count
        while left > 0:
            batch = producer.create_batch()
            while left and batch.append(key=None, value=BODY, timestamp=None) is not None:
                left -= 1
            await (await producer.send_batch(batch, place.write, partition=0))
    return []


def _aiokafka_consumer(place: Place) -> Any:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(place.read, bootstrap_servers=place.kafka, auto_offset_reset="earliest")


async def _aiokafka_iterate(place: Place, count: int) -> list[float]:
    async with _aiokafka_consumer(place) as consumer:
        async for message in consumer:
            assert message.value
            count -= 1
            if not count:
                break
    return []


async def _aiokafka_read_batches(place: Place, count: int) -> list[float]:
    async with _aiokafka_consumer(place) as consumer:
        while count > 0:
            found = await consumer.getmany(timeout_ms=1000, max_records=AT_ONCE)
            for messages in found.values():
                count -= len([message.value for message in messages])
    return []


def _aiokafka_latency(topic: str, at_once: int) -> Callable[[Place, int], Awaitable[list[float]]]:
    async def run(place: Place, count: int) -> list[float]:
        async with _aiokafka_producer(place) as producer:
            return await _in_flight(count, at_once, lambda: producer.send_and_wait(topic, BODY))

    return run


# confluent-kafka, which has threads of its own


def _confluent_producer(place: Place, **options: Any) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": place.kafka, "acks": "all", **options})


async def _confluent_send(place: Place, count: int) -> list[float]:
    producer = _confluent_producer(place, **{"linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    for _ in range(count // 5000):
        for _ in range(5000):
            producer.produce(place.write, BODY)
        producer.poll(0)
    producer.flush(WAIT_S)
    return []


async def _confluent_batches(place: Place, count: int) -> list[float]:
    producer = _confluent_producer(place, **{"linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    messages = [{"value": BODY}] * AT_ONCE
    for _ in range(count // AT_ONCE):
        producer.produce_batch(place.write, messages)
        producer.poll(0)
    producer.flush(WAIT_S)
    return []


def _confluent_consumer(place: Place) -> Any:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    options = {"bootstrap.servers": place.kafka, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer(options)
    consumer.assign([TopicPartition(place.read, 0, OFFSET_BEGINNING)])
    return consumer


async def _confluent_iterate(place: Place, count: int) -> list[float]:
    consumer = _confluent_consumer(place)
    while count:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.value()
            count -= 1
    consumer.close()
    return []


async def _confluent_read_batches(place: Place, count: int) -> list[float]:
    consumer = _confluent_consumer(place)
    while count > 0:
        count -= len([message.value() for message in consumer.consume(AT_ONCE, 0.1)])
    consumer.close()
    return []


def _confluent_latency(topic: str, at_once: int) -> Callable[[Place, int], Awaitable[list[float]]]:
    async def run(place: Place, count: int) -> list[float]:
        producer = _confluent_producer(place, **{"linger.ms": 0})
        took: list[float] = []
        sent = 0

        def send() -> None:
            nonlocal sent
            sent += 1
            began = time.perf_counter()

            def done(error: object, _: object) -> None:
                assert error is None, error
                took.append(time.perf_counter() - began)
                if sent < count:
                    send()

            producer.produce(topic, BODY, on_delivery=done)

        for _ in range(at_once):
            send()
        while len(took) < count:
            producer.poll(1.0)
        return took

    return run


Run = Callable[[Place, int], Awaitable[list[float]]]

CLIENTS: dict[str, dict[str, Run]] = {
    f"send and wait, {at_once} in flight": {
        "penstock, synced": _penstock_latency("all", at_once),
        "penstock, written": _penstock_latency("written", at_once),
        "aiokafka, synced": _aiokafka_latency("flushed", at_once),
        "aiokafka, written": _aiokafka_latency("written", at_once),
        "confluent-kafka, synced": _confluent_latency("flushed", at_once),
        "confluent-kafka, written": _confluent_latency("written", at_once),
    }
    for at_once in (1, 100)
}
CLIENTS |= {
    "send each, without waiting": {
        "penstock": _penstock_send,
        "aiokafka": _aiokafka_send,
        "confluent-kafka": _confluent_send,
    },
    "send in batches": {
        "penstock": _penstock_batches,
        "aiokafka": _aiokafka_batches,
        "confluent-kafka": _confluent_batches,
    },
    "consume one by one": {
        "penstock": _penstock_iterate,
        "aiokafka": _aiokafka_iterate,
        "confluent-kafka": _confluent_iterate,
    },
    "consume in batches": {
        "penstock": _penstock_read_batches,
        "aiokafka": _aiokafka_read_batches,
        "confluent-kafka": _confluent_read_batches,
    },
}
