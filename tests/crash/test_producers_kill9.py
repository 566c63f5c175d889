"""A named producer that sends again what a kill -9 left unconfirmed: each number once, in order.

Messages are published without waiting, and all that are not confirmed are sent again on the next
connection, so that a kill meets many of which nobody knows whether they were kept.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from dataclasses import dataclass

import pika
import pika.exceptions
import pytest

from tests.support.brokers import Broker
from tests.support.draining import LIMIT_S, drained, wait_until

KILLS = 4
AT_ONCE = 50


@dataclass
class Producer:
    """Publishes 0, 1, 2 ... by name until it is told to end and everything is confirmed."""

    broker: Broker
    sent: int = 0
    confirmed: int = 0
    """Numbers below it are."""
    again: int = 0
    """Messages that were sent a second time."""
    ending: bool = False
    failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not (self.ending and self.confirmed == self.sent):
                with contextlib.suppress(pika.exceptions.AMQPError, OSError, EOFError):
                    self._run_once()
                time.sleep(0.02)
        except BaseException as error:
            self.failure = error

    def _run_once(self) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.broker.amqp_port))
        channel = connection.channel()
        base = self.confirmed
        # Beneath the blocking face, which waits for each confirm.
        channel._impl.confirm_delivery(lambda frame: self._on_confirm(base, frame.method), lambda _: None)
        self.again += self.sent - base
        next_number = base
        while not (self.ending and self.confirmed == self.sent):
            while next_number < self.confirmed + AT_ONCE and (next_number < self.sent or not self.ending):
                headers = {"x-penstock-producer": "p", "x-penstock-sequence": next_number}
                properties = pika.BasicProperties(delivery_mode=2, headers=headers)
                channel._impl.basic_publish("", "q", b"%d" % next_number, properties)
                next_number += 1
                self.sent = max(self.sent, next_number)
            connection.process_data_events(0.002)
        connection.close()

    def _on_confirm(self, base: int, method: pika.spec.Basic.Ack | pika.spec.Basic.Nack) -> None:
        assert isinstance(method, pika.spec.Basic.Ack)
        self.confirmed = max(self.confirmed, base + method.delivery_tag)


@pytest.mark.timeout(900)
@pytest.mark.penstock_only("RabbitMQ has no named producers")
def test_kill_9_with_a_named_producer_keeps_each_message_once(own_broker: Broker, seed: int) -> None:
    chance = random.Random(seed)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", own_broker.amqp_port)) as connection:
        connection.channel().queue_declare("q", durable=True)
    producer = Producer(own_broker)
    thread = threading.Thread(target=producer.run, daemon=True)
    thread.start()
    for _ in range(KILLS):
        want = producer.confirmed + AT_ONCE
        time.sleep(chance.uniform(0.3, 1.2))
        wait_until(
            lambda want=want: want <= producer.confirmed < producer.sent or producer.failure is not None
        )
        own_broker.kill9()
        own_broker.launch()
        own_broker.wait_until_serving()
    producer.ending = True
    thread.join(LIMIT_S)
    assert producer.failure is None and not thread.is_alive()
    found = drained(own_broker, "q", producer.confirmed)
    assert found == list(range(producer.confirmed)), f"seed {seed}"
    assert producer.again > 0, f"seed {seed}: no kill met what was not confirmed"
    print(f"{producer.confirmed} messages, {producer.again} of them sent again")
