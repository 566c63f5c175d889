"""Shovels over kills: python -m tests.crash.shovels [--protocol amqp10] [--messages N] [--kills N].

A publisher fills a queue of RabbitMQ. A shovel of the gateway takes its messages into the gateway, a second
one brings them back into another queue of RabbitMQ. Both brokers are killed and started again meanwhile. Then
each confirmed message must have arrived. With --protocol amqp10 both ends of the first shovel speak AMQP 1.0,
and of the second one the end at RabbitMQ. Exit code 0 only when each has arrived.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from typing import Any

from pamqp import commands

from tests.crash.beside_rabbitmq import command, kill
from tests.crash.moves_rabbitmq import Client, Publisher, Queue, consume, working
from tests.support.amqp_client import Connection
from tests.support.brokers import Gateway, RabbitMQ
from tests.support.data_plane import until
from tests.support.management import SETTINGS, Api

_PREFETCH = 500
_LIMIT_S = 300.0


@dataclass
class Report:
    """The result of a run."""

    confirmed: int
    lost: int
    twice: int
    kills: int
    took_s: float

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, and without kills nothing came twice. A kill repeats what was under way,
        and what its broker had not yet written of acknowledgements: the gateway those of 100 ms.
        """
        return self.lost == 0 and (self.kills > 0 or self.twice == 0)


def put(api: Api, name: str, **value: Any) -> None:
    """Make a shovel that connects again soon."""
    settings = {key.replace("_", "-"): one for key, one in value.items()}
    settings |= {"src-prefetch-count": _PREFETCH, "reconnect-delay": 0.2}
    assert api.status("PUT", f"parameters/shovel/%2F/{name}", {"value": settings}) == 201


def run(
    rabbitmq: RabbitMQ, gateway: Gateway, *, messages: int, kills: int, seed: int, protocol: str
) -> Report:
    """Both brokers run; see the module."""
    chance = random.Random(seed)
    there, back = Queue("there", rabbitmq, rabbitmq), Queue("back", rabbitmq, rabbitmq)
    with Connection(rabbitmq.amqp_port) as connection:
        connection.channel()
        for queue in (there, back):
            connection.call(1, commands.Queue.Declare(queue=queue.name, durable=True))
    api = Api(gateway)
    uri = f"amqp://guest:guest@127.0.0.1:{rabbitmq.amqp_port}"
    with Connection(gateway.amqp_port) as connection:
        connection.channel()
        connection.call(1, commands.Queue.Declare(queue="here", durable=True))
    first = {"src_queue": "there", "dest_queue": "here"}
    second = {"dest_queue": "back"}
    if protocol == "amqp10":
        first = {
            **{"src_protocol": protocol, "src_address": "/amq/queue/there"},
            **{"dest_protocol": protocol, "dest_address": "/queues/here"},
        }
        second = {"dest_protocol": protocol, "dest_address": "/amq/queue/back"}
    put(api, "in", src_uri=uri, dest_uri="amqp://", **first)
    put(api, "out", src_uri="amqp://", src_queue="here", dest_uri=uri, **second)
    api.close()
    publisher = Client([there], Publisher(), confirms=True)
    began = time.monotonic()

    def publish() -> None:
        if there.sent < messages:
            publisher.turn(lambda queue: queue.publishes_to)
        else:
            time.sleep(0.01)

    with working(publish):
        for number in range(kills):
            time.sleep(chance.uniform(0.5, 3.0))
            kill((rabbitmq, gateway)[number % 2])
        until(lambda: there.sent >= messages, _LIMIT_S)
    publisher.close()
    consumer = Client([back], consume, confirms=False)

    def all_arrived() -> bool:
        while consumer.turn(lambda queue: queue.consumes_from):
            pass
        return there.confirmed <= back.received.keys()

    try:
        until(all_arrived, _LIMIT_S)
    except AssertionError:
        pass  # the report says what is lost
    consumer.close()
    return Report(
        confirmed=len(there.confirmed),
        lost=len(there.confirmed - back.received.keys()),
        twice=sum(back.received.values()) - len(back.received),
        kills=kills,
        took_s=time.monotonic() - began,
    )


def main() -> int:
    """Run the command line."""
    plugins = ("rabbitmq_amqp1_0",)
    protocols = ("amqp091", "amqp10")
    return command("shovels", run, settings=SETTINGS, messages=100_000, plugins=plugins, protocols=protocols)


if __name__ == "__main__":
    sys.exit(main())
