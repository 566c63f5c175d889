"""A shovel by the native protocol over kills: python -m tests.crash.native_shovels [--kills N].

A publisher fills a queue of one gateway, and a shovel of another one brings its messages. Both are killed
and started again meanwhile. Then the queue there has each confirmed message once. Exit code 0 only when that
holds. `tests.compare.shovels` measures its rate.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from pamqp import commands

from tests.crash.moves_rabbitmq import Client, Publisher, Queue, consume, working
from tests.support.amqp_client import Connection
from tests.support.brokers import Gateway
from tests.support.data_plane import until
from tests.support.management import SETTINGS, Api

_LIMIT_S = 300.0


def begin(source: Gateway, target: Gateway) -> None:
    """The queue at both, and the shovel."""
    for gateway in (source, target):
        with Connection(gateway.amqp_port) as connection:
            connection.channel()
            connection.call(1, commands.Queue.Declare(queue="q", durable=True))
    value = {
        "src-protocol": "penstock",
        "src-uri": f"penstock://guest:guest@127.0.0.1:{source.ports['native']}",
        "src-queue": "q",
        "src-prefetch-count": 65535,
        "dest-protocol": "penstock",
        "dest-uri": "penstock://",
        "dest-queue": "q",
        "reconnect-delay": 0.2,
    }
    api = Api(target)
    assert api.status("PUT", "parameters/shovel/%2F/s", {"value": value}) == 201
    api.close()


def over_kills(source: Gateway, target: Gateway, kills: int, seed: int) -> bool:
    """Whether each confirmed message came once."""
    chance = random.Random(seed)
    begin(source, target)
    queue = Queue("q", source, target)
    publisher = Client([queue], Publisher(), confirms=True)
    with working(lambda: publisher.turn(lambda queue: queue.publishes_to)):
        for number in range(kills):
            time.sleep(chance.uniform(0.3, 1.5))
            gateway = (source, target)[number % 2]
            gateway.kill9()
            gateway.start()
    publisher.close()
    consumer = Client([queue], consume, confirms=False)

    def all_arrived() -> bool:
        while consumer.turn(lambda queue: queue.consumes_from):
            pass
        return queue.confirmed <= queue.received.keys()

    try:
        until(all_arrived, _LIMIT_S)
    except AssertionError:
        print(target.log_tail(50))  # the line below says what is lost
    consumer.close()
    lost = len(queue.confirmed - queue.received.keys())
    twice = sum(queue.received.values()) - len(queue.received)
    print(f"confirmed {len(queue.confirmed)}, lost {lost}, twice {twice}, kills {kills}")
    return lost == 0 and twice == 0 and bool(queue.confirmed)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.native_shovels")
    parser.add_argument("--kills", type=int, default=20, help="of the source and the target in turn")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # With a login timeout for a machine with much other work.
    settings = {**SETTINGS, "native.listen": "127.0.0.1:0", "server.login_timeout_s": "5m"}
    with tempfile.TemporaryDirectory(prefix="penstock-native-") as name:
        folder = Path(name)
        with (
            Gateway(folder / "source", settings=settings) as source,
            Gateway(folder / "target", settings=settings) as target,
        ):
            # The port stays over a restart.
            source.settings["native.listen"] = f"127.0.0.1:{source.ports['native']}"
            ok = over_kills(source, target, options.kills, options.seed)
    print("PASS" if ok else "FAIL")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
