"""Federation with RabbitMQ over kills: python -m tests.crash.federation [--messages N] [--kills N].

One exchange of the gateway has RabbitMQ as its upstream, and one of RabbitMQ has the gateway. Publishers fill
both at their upstreams, and both brokers are killed and started again meanwhile. Then each confirmed message
must have arrived. At last a queue is federated: what is in it at RabbitMQ comes to a consumer at the gateway.
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
from tests.crash.moves_rabbitmq import Client, Publisher, Queue, consume, working
from tests.support.amqp_client import Connection
from tests.support.brokers import Broker, Gateway, RabbitMQ
from tests.support.data_plane import until
from tests.support.management import SETTINGS

_LIMIT_S = 300.0
_PLUGINS = ("rabbitmq_management", "rabbitmq_federation", "rabbitmq_federation_management")
_OF_QUEUE = 1000
"""Messages in the federated queue."""


@dataclass
class Report:
    """The result of a run."""

    confirmed: int
    lost: int
    twice: int
    of_queue: int
    """Messages that the federated queue gave, in order."""
    kills: int
    took_s: float

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, and without kills nothing came twice."""
        return self.lost == 0 and (self.kills > 0 or self.twice == 0) and self.of_queue == _OF_QUEUE


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
    publishers = [Client([queue], Publisher(queue.name), confirms=True) for queue in queues]

    def publish() -> None:
        for queue, publisher in zip(queues, publishers, strict=True):
            if queue.sent < messages:
                publisher.turn(lambda queue: queue.publishes_to)
        if all(queue.sent >= messages for queue in queues):
            time.sleep(0.01)

    with working(publish):
        for number in range(kills):
            time.sleep(chance.uniform(0.5, 3.0))
            kill((rabbitmq, gateway)[number % 2])
        until(lambda: all(queue.sent >= messages for queue in queues), _LIMIT_S)
    for publisher in publishers:
        publisher.close()
    consumer = Client(list(queues), consume, confirms=False)

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
        twice=sum(sum(queue.received.values()) - len(queue.received) for queue in queues),
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
