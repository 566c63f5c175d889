"""The two clients as their own documentation shows them: paho publishes over MQTT 5, pika consumes over AMQP.

Nothing here is specific to penstock: the publisher knows topics, the consumer knows an exchange, a binding
and a queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

import pika
from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from demo.data import Reading

WINDOW = 500
"""Messages under way: published and not yet acknowledged, or delivered and not yet acknowledged."""

Received = list[tuple[str, bytes]]
"""(routing key, body) in the order of arrival."""


def split(address: str) -> tuple[str, int]:
    """HOST:PORT taken apart."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class Consumer(threading.Thread):
    """A pika consumer in a thread: a queue bound to amq.topic with weather.#, acknowledging each message."""

    def __init__(self, address: str, expected: int, on_message: Callable[[], object]) -> None:
        super().__init__(name="pika", daemon=True)
        host, port = split(address)
        self.parameters = pika.ConnectionParameters(
            host, port, credentials=pika.PlainCredentials("guest", "guest")
        )
        self.expected = expected
        self.on_message = on_message
        self.received: Received = []
        self.redelivered = 0
        self.failure: Exception | None = None
        self.bound = threading.Event()
        self.stopping = threading.Event()
        self.last_at = time.perf_counter()

    def run(self) -> None:
        try:
            with pika.BlockingConnection(self.parameters) as connection:
                channel = connection.channel()
                channel.basic_qos(prefetch_count=WINDOW)
                queue = channel.queue_declare("", exclusive=True).method.queue
                channel.queue_bind(queue, exchange="amq.topic", routing_key="weather.#")
                channel.basic_consume(queue, self._on_message)
                self.bound.set()
                while len(self.received) < self.expected and not self.stopping.is_set():
                    connection.process_data_events(time_limit=0.2)
        except Exception as error:
            self.failure = error
        finally:
            self.bound.set()

    def _on_message(
        self, channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, body: bytes
    ) -> None:
        self.received.append((method.routing_key, body))
        self.redelivered += method.redelivered
        channel.basic_ack(method.delivery_tag)
        self.last_at = time.perf_counter()
        self.on_message()


class Publisher:
    """A paho client that publishes with QoS 1 and keeps at most WINDOW messages unacknowledged."""

    def __init__(self, address: str) -> None:
        self.host, self.port = split(address)
        self.client = Client(CallbackAPIVersion.VERSION2, "demo", protocol=MQTTProtocolVersion.MQTTv5)
        self.client.max_inflight_messages_set(WINDOW)
        self.acknowledged = 0

    def __enter__(self) -> Self:
        self.client.connect(self.host, self.port)
        self.client.loop_start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def publish(self, readings: Iterable[Reading]) -> None:
        """Publish all and return when all are acknowledged."""
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ContentType = "application/json"
        under_way: list[MQTTMessageInfo] = []
        for reading in readings:
            under_way.append(self.client.publish(reading.topic, reading.payload, 1, properties=properties))
            if len(under_way) >= WINDOW:
                half = WINDOW // 2
                self._wait(under_way[:half])
                del under_way[:half]
        self._wait(under_way)

    def _wait(self, infos: list[MQTTMessageInfo]) -> None:
        for info in infos:
            info.wait_for_publish(timeout=30)
            if not info.is_published():
                raise SystemExit("the gateway did not acknowledge a message within 30 s")
            self.acknowledged += 1
