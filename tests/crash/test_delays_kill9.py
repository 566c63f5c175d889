"""Kill -9 while delayed messages are published and while they become due: none lost, none twice, order kept.

Nothing is consumed until the kills are over, so a message that is in the queue more than once was published
more than once. An unconfirmed message may be there or not.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from dataclasses import dataclass, field

import pika
import pika.exceptions
import pytest

from tests.support.brokers import Broker
from tests.support.draining import LIMIT_S, drained, wait_until

KILLS = 4
DELAYS_MS = (1, 3_000)
EQUAL_MS = 1_000
CONFIRMED_EACH = 15
"""Each publisher has so many confirms between two kills."""


@dataclass
class Publisher:
    """Publishes numbers with delays until it is told to end, over as many connections as that takes."""

    broker: Broker
    queue: str
    seed: int
    constant: bool
    confirmed: list[int] = field(default_factory=list)
    sent: int = 0
    ending: bool = False
    failure: BaseException | None = None

    def run(self) -> None:
        chance = random.Random(self.seed)
        try:
            while not self.ending:
                with contextlib.suppress(pika.exceptions.AMQPError, OSError, EOFError):
                    self._run_once(chance)
                time.sleep(0.02)
        except BaseException as error:
            self.failure = error

    def _run_once(self, chance: random.Random) -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.broker.amqp_port))
        channel = connection.channel()
        channel.confirm_delivery()
        while not self.ending:
            number = self.sent
            self.sent += 1
            delay = EQUAL_MS if self.constant else chance.randint(*DELAYS_MS)
            properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": delay})
            channel.basic_publish("later", self.queue, b"%d" % number, properties)
            self.confirmed.append(number)
        connection.close()


@pytest.mark.timeout(900)
@pytest.mark.penstock_only("the plugin keeps delayed messages beside the queues and promises less")
def test_kill_9_with_delayed_messages_loses_none_and_repeats_none(own_broker: Broker, seed: int) -> None:
    chance = random.Random(seed)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", own_broker.amqp_port)) as connection:
        channel = connection.channel()
        channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        for queue in ("equal", "random"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "later", queue)
    publishers = [
        Publisher(own_broker, "equal", seed, True),
        Publisher(own_broker, "random", seed + 1, False),
    ]
    threads = [threading.Thread(target=publisher.run, daemon=True) for publisher in publishers]
    for thread in threads:
        thread.start()
    for _ in range(KILLS):
        wants = [len(publisher.confirmed) + CONFIRMED_EACH for publisher in publishers]
        time.sleep(chance.uniform(0.3, 1.6))
        wait_until(
            lambda wants=wants: all(
                len(publisher.confirmed) >= want or publisher.failure is not None
                for publisher, want in zip(publishers, wants, strict=True)
            )
        )
        own_broker.kill9()
        if chance.random() < 0.3:
            own_broker.launch()
            time.sleep(chance.uniform(0, 0.4))
            own_broker.kill9()
        own_broker.launch()
        own_broker.wait_until_serving()
    for publisher in publishers:
        publisher.ending = True
    for thread in threads:
        thread.join(LIMIT_S)
    for publisher in publishers:
        assert publisher.failure is None
        found = drained(own_broker, publisher.queue, len(publisher.confirmed))
        assert len(found) == len(set(found)), f"seed {seed}: twice"
        lost = set(publisher.confirmed) - set(found)
        assert not lost, f"seed {seed}: {len(lost)} of {len(publisher.confirmed)} lost"
        if publisher.constant:
            assert found == sorted(found), f"seed {seed}: out of order"
