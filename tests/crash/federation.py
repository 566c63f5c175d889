"""Federation with RabbitMQ over kills: python -m tests.crash.federation [--messages N] [--kills N].

One exchange of the gateway has RabbitMQ as its upstream, and one of RabbitMQ has the gateway. Publishers fill
both at their upstreams, and both brokers are killed and started again meanwhile. Then each confirmed message
must have arrived. At last a queue is federated: what is in it at RabbitMQ comes to a consumer at the gateway.

A kill may repeat what was under way, which is the prefetch, and acknowledgements that its source had not yet
written: the gateway those of 100 ms. So the report has how far each kill took a link back. RabbitMQ may
forget more of them: a client takes messages of it meanwhile, without a link, and counts what it gets again.
Exit code 0 only when all of that holds.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass

import httpx
import pika
from pamqp import commands

from tests.crash.beside_rabbitmq import command, kill
from tests.crash.moves_rabbitmq import Client, Publisher, Queue, taken, working
from tests.support.amqp_client import Connection
from tests.support.brokers import Broker, Gateway, RabbitMQ
from tests.support.data_plane import until
from tests.support.management import SETTINGS

_LIMIT_S = 300.0
_PLUGINS = ("rabbitmq_management", "rabbitmq_federation", "rabbitmq_federation_management")
_PREFETCH = 1000
"""The default of both, as neither is told another one."""
_UNWRITTEN = 2000
"""Acknowledgements of 100 ms, at 20,000 a second."""
_SECOND_S = 1.0
_OF_QUEUE = 1000
"""Messages in the federated queue."""


@dataclass
class Report:
    """The result of a run."""

    confirmed: int
    lost: int
    twice: dict[str, int]
    """Messages that came again, by exchange: `in` has RabbitMQ as its upstream, `out` the gateway."""
    back: dict[str, list[int]]
    """How many messages each kill took a link back, by exchange."""
    forgotten: int
    """Messages that RabbitMQ gave again to a client without a link, a second and more after it had
    acknowledged them.
    """
    of_queue: int
    """Messages that the federated queue gave, in order."""
    kills: int
    took_s: float

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, and no more is repeated than kills may; without kills nothing."""
        return (
            self.lost == 0
            and max(self.back.get("out", [0])) <= _PREFETCH + _UNWRITTEN
            and (self.kills > 0 or not any(self.twice.values()))
            and self.of_queue == _OF_QUEUE
        )


class InOrder:
    """Takes messages, and notes where their order goes back to a message that came before."""

    def __init__(self) -> None:
        self.back: dict[str, list[int]] = {}
        self._next: dict[str, int] = {}

    def __call__(self, connection: Connection, queue: Queue) -> bool:
        numbers = taken(connection, queue)
        for number in numbers:
            expected = self._next.get(queue.name, 0)
            if number < expected:
                self.back.setdefault(queue.name, []).append(expected - number)
            self._next[queue.name] = number + 1
        return bool(numbers)


class Beside:
    """Takes messages of a queue and acknowledges them, and counts those that come again."""

    def __init__(self) -> None:
        self.forgotten = 0
        self._acknowledged: dict[int, float] = {}

    def __call__(self, connection: Connection, queue: Queue) -> bool:
        numbers = taken(connection, queue)
        now = time.monotonic()
        for number in numbers:
            before = self._acknowledged.get(number)
            if before is not None and now - before > _SECOND_S:
                self.forgotten += 1
            self._acknowledged[number] = now
        return bool(numbers)


def federate(management_port: int, upstream: Broker, kind: str, name: str) -> None:
    """Make an upstream and a policy, and wait for the link."""
    api = httpx.Client(
        base_url=f"http://127.0.0.1:{management_port}/api/", auth=("guest", "guest"), timeout=60
    )
    value = {"uri": f"amqp://guest:guest@127.0.0.1:{upstream.amqp_port}", "reconnect-delay": 1}
    api.put("parameters/federation-upstream/%2F/other", json={"value": value}).raise_for_status()
    policy = {"pattern": f"^{name}$", "definition": {"federation-upstream": "other"}, "apply-to": f"{kind}s"}
    api.put(f"policies/%2F/{name}", json=policy).raise_for_status()

    def runs() -> bool:
        links = api.get("federation-links").raise_for_status().json()
        return any(one.get(kind) == name and one["status"] == "running" for one in links)

    until(runs, _LIMIT_S)
    api.close()


def bound(broker: Broker, queue: str) -> None:
    """A queue that gets everything of a topic exchange of its name."""
    with Connection(broker.amqp_port) as connection:
        connection.channel()
        connection.call(1, commands.Exchange.Declare(exchange=queue, exchange_type="topic", durable=True))
        connection.call(1, commands.Queue.Declare(queue=queue, durable=True))
        connection.call(1, commands.Queue.Bind(queue=queue, exchange=queue, routing_key="#"))


def run(rabbitmq: RabbitMQ, gateway: Gateway, *, messages: int, kills: int, seed: int) -> Report:
    """Both brokers run; see the module."""
    chance = random.Random(seed)
    began = time.monotonic()
    to_gateway, to_rabbitmq = Queue("in", rabbitmq, gateway), Queue("out", gateway, rabbitmq)
    queues = (to_gateway, to_rabbitmq)
    for queue in queues:
        bound(queue.consumes_from, queue.name)
    federate(gateway.ports["management"], rabbitmq, "exchange", "in")
    federate(rabbitmq.management_port, gateway, "exchange", "out")
    alone, beside = Queue("alone", rabbitmq, rabbitmq), Beside()
    with Connection(rabbitmq.amqp_port) as connection:
        connection.channel()
        connection.call(1, commands.Queue.Declare(queue=alone.name, durable=True))
    publishers = [Client([queue], Publisher(queue.name), confirms=True) for queue in queues]
    publishers.append(Client([alone], Publisher(), confirms=True))
    taker = Client([alone], beside, confirms=False)

    def publish() -> None:
        for queue, publisher in zip((*queues, alone), publishers, strict=True):
            if queue.sent < messages:
                publisher.turn(lambda queue: queue.publishes_to)
        if all(queue.sent >= messages for queue in queues):
            time.sleep(0.01)

    with working(publish), working(lambda: taker.turn(lambda queue: queue.consumes_from)):
        for number in range(kills):
            time.sleep(chance.uniform(0.5, 3.0))
            kill((rabbitmq, gateway)[number % 2])
        until(lambda: all(queue.sent >= messages for queue in queues), _LIMIT_S)
    for client in (*publishers, taker):
        client.close()
    in_order = InOrder()
    consumer = Client(list(queues), in_order, confirms=False)

    def all_arrived() -> bool:
        while consumer.turn(lambda queue: queue.consumes_from):
            pass
        return all(queue.confirmed <= queue.received.keys() for queue in queues)

    try:
        until(all_arrived, _LIMIT_S)
    except AssertionError:
        pass  # the report says what is lost
    consumer.close()
    return Report(
        confirmed=sum(len(queue.confirmed) for queue in queues),
        lost=sum(len(queue.confirmed - queue.received.keys()) for queue in queues),
        twice={queue.name: sum(queue.received.values()) - len(queue.received) for queue in queues},
        back=in_order.back,
        forgotten=beside.forgotten,
        of_queue=_federated_queue(rabbitmq, gateway),
        kills=kills,
        took_s=time.monotonic() - began,
    )


def _federated_queue(rabbitmq: RabbitMQ, gateway: Gateway) -> int:
    """How many messages of RabbitMQ's queue come to a consumer at the gateway, in order."""
    with Connection(rabbitmq.amqp_port) as connection:
        connection.channel()
        connection.call(1, commands.Queue.Declare(queue="q", durable=True))
        connection.call(1, commands.Confirm.Select())
        for number in range(_OF_QUEUE):
            connection.publish(1, "", "q", b"%d" % number, properties=commands.Basic.Properties())
    got: list[bytes] = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as client:
        channel = client.channel()
        channel.queue_declare("q", durable=True)
        federate(gateway.ports["management"], rabbitmq, "queue", "q")
        channel.basic_consume("q", lambda _, __, ___, body: got.append(body), auto_ack=True)

        def all_came() -> bool:
            client.process_data_events(0.05)
            return len(got) >= _OF_QUEUE

        until(all_came, _LIMIT_S)
    return len(got) if got == [b"%d" % number for number in range(_OF_QUEUE)] else 0


def main() -> int:
    """Run the command line."""
    return command("federation", run, settings=SETTINGS, messages=50_000, plugins=_PLUGINS)


if __name__ == "__main__":
    sys.exit(main())
